#include "tests/gpu/peers/fleet.h"

#include <chrono>
#include <exception>
#include <utility>

#include "gpupool/cuda_backend.h"

namespace gpupool::gpu_tests {
namespace {

constexpr int kMostTries = 1000;

/// For memory of cudaMalloc, which needs it: a pool sets access to its pages itself.
void enable_peer_access(int count) {
  for (int reader = 0; reader < count; ++reader) {
    const OnDevice on(reader);
    for (int owner = 0; owner < count; ++owner) {
      if (owner == reader || !can_reach(reader, owner)) continue;
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(owner, 0);
      if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
        static_cast<void>(cudaGetLastError());
      } else {
        must(enabled, "cudaDeviceEnablePeerAccess");
      }
    }
  }
}

}  // namespace

Cards open_cards(int count) {
  Cards cards(static_cast<std::size_t>(count));
  for (int device = 0; device < count; ++device) {
    Card& card = cards[static_cast<std::size_t>(device)];
    card.device = device;
    const OnDevice on(device);
    must(cudaFree(nullptr), "starting a device");
    card.backend = must(open_cuda_backend(device), "opening a device");
    card.kernels = must(Kernels::create(), "kernels");
    card.ramps = Ramps::create();
  }
  return cards;
}

PoolOptions options_for(const Mode& mode, int device, int count, std::uint64_t capacity_bytes) {
  PoolOptions options;
  options.name = "gpu" + std::to_string(device);
  options.capacity = capacity_bytes;
  options.backing = mode.backing;
  options.contiguous = mode.contiguous;
  options.runtime.recycling = Recycling::eager;
  options.runtime.recycling_wait = 1;  // as many moves as can be, however long they take
  for (int peer = 0; mode.backing == Backing::vmm && peer < count; ++peer) {
    if (peer != device && can_reach(peer, device)) options.peers.push_back(peer);
  }
  return options;
}

Fleet::Fleet(Cards& cards, const Mode& mode, std::uint64_t capacity_bytes, Watch& watch)
    : cards_(cards), mode_(mode), watch_(watch) {
  if (mode_.backing == Backing::cudamalloc) enable_peer_access(static_cast<int>(count()));
  for (std::size_t i = 0; i < count(); ++i) open_pool(i, capacity_bytes);
  for (std::size_t i = 0; i < count(); ++i) maintainers_.emplace_back([this, i] { maintain(i); });
}

Fleet::~Fleet() {
  try {
    close();
  } catch (const std::exception& error) {
    report().fault("the end of the pools", error.what());
  }
}

void Fleet::open_pool(std::size_t i, std::uint64_t capacity_bytes) {
  const int device = cards_[i].device;
  PoolOptions options = options_for(mode_, device, static_cast<int>(count()), capacity_bytes);
  options.misuse_handler = [this, device](const MisuseReport& misuse) {
    report().fault("pool of device " + std::to_string(device),
                   std::string("misuse: ") + to_string(misuse.kind));
  };
  // Another device is current, as in all that follows.
  const OnDevice on(away_from(i, 0));
  pools_.push_back(
      must(watch_.ask("Pool::create", [&] { return Pool::create(*cards_[i].backend, options); }),
           "a pool"));
}

void Fleet::maintain(std::size_t i) {
  try {
    must(cudaSetDevice(away_from(i, 0)), "cudaSetDevice");
    while (!is_ending_.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      watch_.ask("Pool::maintain", [&] { return pool(i).maintain(); });
    }
  } catch (const std::exception& error) {
    report().fault("maintaining the pool of device " + std::to_string(cards_[i].device),
                   error.what());
  }
}

void Fleet::close() {
  is_ending_ = true;
  for (std::thread& maintainer : maintainers_) maintainer.join();
  maintainers_.clear();
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    const OnDevice on(away_from(i, 0));
    watch_.ask("~Pool", [&] { pools_[i].reset(); });
    const std::uint64_t held = cards_[i].backend->held_bytes();
    if (held != 0) {
      report().fault("the pool of device " + std::to_string(cards_[i].device),
                     "left " + std::to_string(held) + " bytes of the driver's behind");
    }
  }
}

int Fleet::away_from(std::size_t i, std::size_t n) const {
  if (count() == 1) return cards_[i].device;
  return cards_[(i + 1 + n % (count() - 1)) % count()].device;
}

std::vector<std::uint64_t> Fleet::pages_moved() const {
  std::vector<std::uint64_t> moved;
  for (const auto& pool : pools_) {
    const StatsV1 stats = pool->stats();
    moved.push_back(mode_.moves_pages() ? stats.pages_recycled : stats.pages_unmapped);
  }
  return moved;
}

void Fleet::expect_empty() {
  for (std::size_t i = 0; i < count(); ++i) {
    const StatsV1 stats = watch_.ask("Pool::stats", [&] { return pool(i).stats(); });
    const std::string what = "the pool of device " + std::to_string(cards_[i].device);
    if (stats.live_blocks != 0) {
      report().fault(what, std::to_string(stats.live_blocks) + " blocks are still live");
    }
    if (mode_.moves_pages() && stats.pages_recycled == 0) {
      report().fault(what, "no page has moved: the step shows nothing of access set anew");
    }
    const auto found = [&]() -> std::uint64_t {
      const OnDevice on(cards_[i].device);
      return must(cards_[i].kernels->mismatches(), "reading counters").words +
             must(cards_[i].kernels->mismatches(1), "reading counters").words;
    }();
    if (found != 0) report().fault(what, std::to_string(found) + " words were not their block's");
    const OnDevice on(cards_[i].device);
    must(cards_[i].kernels->clear_mismatches(), "clearing counters");
  }
}

PoolStream::PoolStream(Fleet& fleet, std::size_t card) : fleet_(fleet), index_(card) {
  {
    const OnDevice on(device());
    must(cudaStreamCreateWithFlags(&raw_, cudaStreamNonBlocking), "a stream");
  }
  ref_ = must(fleet_.watch().ask("Pool::adopt_stream",
                                 [&] { return fleet_.pool(index_).adopt_stream(raw_); }),
              "adopting a stream");
}

PoolStream::~PoolStream() {
  try {
    synchronize();
    fleet_.watch().ask("Pool::release_stream",
                       [&] { return fleet_.pool(index_).release_stream(ref_); });
    const OnDevice on(device());
    must(cudaStreamDestroy(raw_), "ending a stream");
  } catch (const std::exception& error) {
    fleet_.report().fault("a stream of device " + std::to_string(index_), error.what());
  }
}

void* PoolStream::find_block(std::size_t bytes, AllocationClass allocation_class) {
  AllocationRequest request;
  request.bytes = bytes;
  request.allocation_class = allocation_class;
  const auto block = fleet_.watch().ask(
      "Pool::allocate", [&] { return fleet_.pool(index_).allocate(request, ref_); });
  if (!block.ok()) {
    if (block.error() == Error::out_of_memory) return nullptr;
    throw Broken(fleet_.pool(index_).last_failure().text());
  }
  const std::string wrong = find_wrong_device(block.value(), device());
  if (!wrong.empty()) fleet_.report().fault("pointer attributes", wrong);
  return block.value();
}

void* PoolStream::get_block(std::size_t bytes, AllocationClass allocation_class) {
  // Others may hold it all for a moment.
  for (int i = 0; i < kMostTries; ++i) {
    void* const block = find_block(bytes, allocation_class);
    if (block != nullptr) return block;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw Broken(fleet_.pool(index_).last_failure().text());
}

void PoolStream::free_block(void* block) {
  const bool is_taken = fleet_.watch().ask(
      "Pool::deallocate", [&] { return fleet_.pool(index_).deallocate(block, ref_); });
  if (!is_taken) throw Broken("a free was refused");
}

void PoolStream::settle() {
  synchronize();
  // The first closes the epoch, the second finds that it is complete.
  for (int i = 0; i < 2; ++i) {
    fleet_.watch().ask("Pool::maintain", [&] { return fleet_.pool(index_).maintain(); });
  }
  fleet_.watch().ask("Pool::drain_caches", [&] { return fleet_.pool(index_).drain_caches(); });
}

}  // namespace gpupool::gpu_tests
