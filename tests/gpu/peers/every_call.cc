// Every public call of a pool, and of what opens its device, in threads that have this device
// current, another one, or none: each is to leave it so.
#include <array>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpupool/cuda_backend.h"
#include "tests/gpu/peers/steps.h"

namespace gpupool::gpu_tests {
namespace {

constexpr std::size_t kBlock = std::size_t{3} << 20;
constexpr CapturePoolId kPrivate{7, 7};
using Streams = std::array<cudaStream_t, 2>;

class EveryCall {
 public:
  EveryCall(Task& task, const Card& card, const Streams& streams)
      : task_(task), watch_(task.watch), card_(card), streams_(streams) {}

  /// The whole life of a pool, on the calling thread.
  void go();

 private:
  void open();
  void* allocate(StreamRef stream, AllocationClass allocation_class = AllocationClass::normal);
  void use_blocks();
  void use_streams();
  void use_private_pool();
  void ask_questions();
  void keep_up();
  void need(bool is_right, const char* what) {
    if (!is_right) throw Broken(std::string(what) + " was refused");
  }

  Task& task_;
  Watch& watch_;
  const Card& card_;
  const Streams& streams_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Pool> pool_;
  std::array<StreamRef, 2> refs_;
};

void EveryCall::open() {
  backend_ = must(watch_.ask("open_cuda_backend", [&] { return open_cuda_backend(card_.device); }),
                  "opening a device");
  const PoolOptions options = options_for(
      task_.mode, card_.device, static_cast<int>(task_.cards.size()), capacity_of(task_.mode));
  pool_ =
      must(watch_.ask("Pool::create", [&] { return Pool::create(*backend_, options); }), "a pool");
  for (std::size_t i = 0; i < refs_.size(); ++i) {
    refs_[i] =
        must(watch_.ask("Pool::adopt_stream", [&] { return pool_->adopt_stream(streams_[i]); }),
             "adopting a stream");
  }
}

void* EveryCall::allocate(StreamRef stream, AllocationClass allocation_class) {
  AllocationRequest request;
  request.bytes = kBlock;
  request.allocation_class = allocation_class;
  void* const block = must(
      watch_.ask("Pool::allocate", [&] { return pool_->allocate(request, stream); }), "a block");
  // The runtime would give a thread that has none a context to answer with.
  if (current_place().context == nullptr) return block;
  const std::string wrong = find_wrong_device(block, card_.device);
  if (!wrong.empty()) watch_.report().fault("pointer attributes", wrong);
  return block;
}

void EveryCall::use_blocks() {
  void* const by_handle = must(
      watch_.ask("Pool::allocate, by handle", [&] { return pool_->allocate(4096, streams_[0]); }),
      "a block");
  need(watch_.ask("Pool::deallocate, by handle",
                  [&] { return pool_->deallocate(by_handle, 4096, streams_[0]); }),
       "a free");
  void* const contiguous = allocate(refs_[0], AllocationClass::contiguous);
  need(watch_.ask("Pool::deallocate, contiguous",
                  [&] { return pool_->deallocate(contiguous, kBlock, refs_[0]); }),
       "a free");
  AllocationRequest request;
  request.bytes = kBlock;
  void* const any = must(watch_.ask("Pool::allocate_for_any_stream",
                                    [&] { return pool_->allocate_for_any_stream(request); }),
                         "a block");
  need(watch_.ask("Pool::deallocate_unused", [&] { return pool_->deallocate_unused(any, kBlock); }),
       "a free");
}

void EveryCall::use_streams() {
  void* const block = allocate(refs_[0]);
  need(watch_.ask("Pool::record_stream", [&] { return pool_->record_stream(block, refs_[1]); }),
       "record_stream");
  need(watch_.ask("Pool::record_use", [&] { return pool_->record_use(block, refs_[1]); }),
       "record_use");
  watch_.ask("Pool::note_dependency", [&] { return pool_->note_dependency(refs_[0], refs_[1]); });
  need(watch_.ask("Pool::deallocate", [&] { return pool_->deallocate(block, refs_[1]); }),
       "a free");
}

void EveryCall::use_private_pool() {
  must(watch_.ask(
           "Pool::begin_allocate_to_pool",
           [&] { return pool_->begin_allocate_to_pool(kPrivate, [](RawStream) { return true; }); }),
       "a private pool");
  void* const block = allocate(refs_[0]);
  must(watch_.ask("Pool::end_allocate_to_pool",
                  [&] { return pool_->end_allocate_to_pool(kPrivate); }),
       "a private pool's end");
  need(watch_.ask("Pool::deallocate", [&] { return pool_->deallocate(block, refs_[0]); }),
       "a free");
  must(watch_.ask("Pool::release_pool", [&] { return pool_->release_pool(kPrivate); }),
       "a private pool's release");
}

void EveryCall::ask_questions() {
  void* const block = allocate(refs_[0]);
  static_cast<void>(watch_.ask("Pool::find_size", [&] { return pool_->find_size(block); }));
  static_cast<void>(watch_.ask("Pool::find_stream", [&] { return pool_->find_stream(block); }));
  static_cast<void>(watch_.ask("Pool::find_export", [&] { return pool_->find_export(block); }));
  watch_.ask("Pool::would_fit", [&] { return pool_->would_fit(kBlock, refs_[0]); });
  watch_.ask("Pool::stats", [&] { return pool_->stats(); });
  watch_.ask("Pool::visit_blocks", [&] { pool_->visit_blocks([](const BlockInfo&) {}); });
  watch_.ask("Pool::last_failure", [&] { return pool_->last_failure(); });
  watch_.ask("Pool::check_canaries", [&] { return pool_->check_canaries(); });
  need(watch_.ask("Pool::deallocate", [&] { return pool_->deallocate(block, refs_[0]); }),
       "a free");
}

void EveryCall::keep_up() {
  for (int i = 0; i < 3; ++i) watch_.ask("Pool::maintain", [&] { return pool_->maintain(); });
  watch_.ask("Pool::drain_caches", [&] { return pool_->drain_caches(); });
  watch_.ask("Pool::trim", [&] { return pool_->trim(0); });
  must(
      watch_.ask("Pool::reconfigure", [&] { return pool_->reconfigure(pool_->runtime_options()); }),
      "reconfigure");
  must(watch_.ask("Pool::set_capacity",
                  [&] { return pool_->set_capacity(CapacityLimit(capacity_of(task_.mode) / 2)); }),
       "set_capacity");
  watch_.ask("Pool::reset_peaks", [&] { pool_->reset_peaks(); });
  watch_.ask("Pool::check_invariants", [&] { pool_->check_invariants(); });
}

void EveryCall::go() {
  open();
  use_blocks();
  use_streams();
  use_private_pool();
  ask_questions();
  keep_up();
  for (const StreamRef ref : refs_) {
    need(watch_.ask("Pool::release_stream", [&] { return pool_->release_stream(ref); }),
         "releasing a stream");
  }
  watch_.ask("~Pool", [&] { pool_.reset(); });
  if (backend_->held_bytes() != 0) throw Broken("the pool left memory of the driver's behind");
  watch_.ask("~Backend", [&] { backend_.reset(); });
}

/// On a thread of its own, which has `current` set, or nothing.
void go_with(Task& task, const Card& card, const Streams& streams, std::optional<int> current) {
  std::thread thread([&] {
    const std::string where =
        "a pool of device " + std::to_string(card.device) + " in a thread with " +
        (current.has_value() ? "device " + std::to_string(*current) + " current" : "no device set");
    try {
      if (current.has_value()) must(cudaSetDevice(*current), "cudaSetDevice");
      EveryCall(task, card, streams).go();
    } catch (const std::exception& error) {
      task.watch.report().fault(where, error.what());
    }
  });
  thread.join();
  task.watch.report().progress = ++task.row.rounds;
}

}  // namespace

void call_everything(Task& task) {
  task.row.wanted_rounds = task.cards.size() * (task.cards.size() + 1);
  for (const Card& card : task.cards) {
    Streams streams{};
    const OnDevice on(card.device);
    for (cudaStream_t& stream : streams) {
      must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    }
    go_with(task, card, streams, std::nullopt);
    for (const Card& current : task.cards) go_with(task, card, streams, current.device);
    for (cudaStream_t stream : streams) must(cudaStreamDestroy(stream), "ending a stream");
  }
}

void prove_checks(Task& task) {
  for (Card& card : task.cards) {
    const OnDevice on(card.device);
    void* memory = nullptr;
    constexpr std::size_t kBytes = 4 * 10'001;
    const std::uint32_t wrong = 0;
    must(cudaMalloc(&memory, kBytes), "cudaMalloc");
    const Ramp ramp = ramp_of(1, static_cast<std::uint64_t>(card.device));
    card.ramps->fill(nullptr, memory, kBytes, ramp);
    card.ramps->check(nullptr, memory, kBytes, ramp);
    const Mismatches none = card.ramps->mismatches(nullptr);
    must(cudaMemcpy(static_cast<std::uint32_t*>(memory) + 5'000, &wrong, sizeof wrong,
                    cudaMemcpyHostToDevice),
         "cudaMemcpy");
    card.ramps->check(nullptr, memory, kBytes, ramp);
    const Mismatches one = card.ramps->mismatches(nullptr);
    const std::uint64_t place = reinterpret_cast<std::uint64_t>(memory) + 4 * 5'000;
    if (none.words != 0 || one.words != 1 || one.first_address != place ||
        one.first_expected != ramp.seed + 5'000 * ramp.step || one.first_found != wrong) {
      task.watch.report().fault("the check itself", "did not find the one word that is wrong");
    }
    must(cudaFree(memory), "cudaFree");
    card.ramps = Ramps::create();  // with counters of 0
    ++task.row.rounds;
  }
  task.row.wanted_rounds = task.cards.size();
}

}  // namespace gpupool::gpu_tests
