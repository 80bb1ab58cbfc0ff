#include "tests/gpu/dependent_chain.h"

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gpupool/cuda_backend.h"

namespace gpupool::gpu_tests {
namespace {

constexpr std::size_t kLiveBlocks = 12;
constexpr std::uint64_t kMaintainLinks = 64;

/// From 64 KiB to 32 MiB, uniform in the logarithm.
std::uint64_t random_bytes(std::mt19937_64& random) {
  const std::uint64_t power = std::uint64_t{1} << (16 + random() % 9);
  return (power + random() % power) / 512 * 512;
}

class Chain {
 public:
  Chain(Pool& pool, Kernels& kernels, cudaStream_t stream, StreamRef ref)
      : pool_(pool), kernels_(kernels), stream_(stream), ref_(ref) {}

  Result<void, Status> add_link();
  /// Looks at what is left, and frees it.
  Result<void, Status> end();
  std::uint64_t served_after_wait() const { return served_after_wait_; }

 private:
  Result<void*, Status> allocate(std::uint64_t bytes);
  Result<void, Status> free(std::size_t index);

  Pool& pool_;
  Kernels& kernels_;
  cudaStream_t stream_;
  StreamRef ref_;
  std::mt19937_64 random_{47};
  std::vector<Pattern> live_;  // the newest last
  std::uint64_t blocks_ = 0;
  std::uint64_t served_after_wait_ = 0;
};

Result<void*, Status> Chain::allocate(std::uint64_t bytes) {
  const auto block = pool_.allocate(bytes, ref_);
  if (block.ok()) return block.value();
  const auto waited = check_cuda(cudaStreamSynchronize(stream_), "the device failed");
  if (!waited.ok()) return waited.error();
  pool_.maintain();
  pool_.maintain();
  const auto again = pool_.allocate(bytes, ref_);
  if (!again.ok()) return Status{again.error(), pool_.last_failure().text()};
  ++served_after_wait_;
  return again.value();
}

Result<void, Status> Chain::free(std::size_t index) {
  if (!pool_.deallocate(reinterpret_cast<void*>(live_[index].address), ref_)) {
    return Status{Error::invalid_argument, "the pool refused a free of its own block"};
  }
  live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
  return {};
}

Result<void, Status> Chain::add_link() {
  const std::uint64_t bytes = random_bytes(random_);
  const auto block = allocate(bytes);
  if (!block.ok()) return block.error();
  const Pattern own{reinterpret_cast<DeviceAddress>(block.value()), bytes, seed_of(blocks_++)};
  const auto given = kernels_.chain(stream_, live_.empty() ? Pattern() : live_.back(), own);
  if (!given.ok()) return given.error();
  live_.push_back(own);
  if (blocks_ % kMaintainLinks == 0) pool_.maintain();
  // Not the newest: the next link reads it.
  if (live_.size() > kLiveBlocks) return free(random_() % (live_.size() - 1));
  return {};
}

Result<void, Status> Chain::end() {
  while (!live_.empty()) {
    const auto given = kernels_.check(stream_, live_.back());
    if (!given.ok()) return given.error();
    if (const auto freed = free(live_.size() - 1); !freed.ok()) return freed.error();
  }
  return {};
}

}  // namespace

Result<ChainFigures, Status> run_dependent_chain(Pool& pool, Kernels& kernels, cudaStream_t stream,
                                                 std::uint64_t links) {
  const auto ref = pool.adopt_stream(stream);
  if (!ref.ok()) return Status{ref.error(), "the pool did not take a stream"};
  Chain chain(pool, kernels, stream, ref.value());
  const std::uint64_t before = pool.stats().pages_recycled;
  auto done = Result<void, Status>();
  for (std::uint64_t i = 0; done.ok() && i < links; ++i) done = chain.add_link();
  if (done.ok()) done = chain.end();
  if (!done.ok()) return done.error();
  const auto mismatches = kernels.mismatches();
  if (!mismatches.ok()) return mismatches.error();
  ChainFigures figures;
  figures.links = links;
  figures.pages_recycled = pool.stats().pages_recycled - before;
  figures.served_after_wait = chain.served_after_wait();
  figures.mismatches = mismatches.value();
  return figures;
}

Result<ChainFigures, Status> measure_dependent_chain(AliasReuse alias_reuse, std::uint64_t links) {
  auto backend = open_cuda_backend(0);
  if (!backend.ok()) return backend.error();
  cudaStream_t stream = nullptr;
  auto done = check_cuda(cudaSetDevice(0), "no CUDA device");
  if (done.ok()) {
    done = check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                      "cannot make a stream");
  }
  if (!done.ok()) return done.error();
  PoolOptions options;
  options.capacity = kChainCapacityBytes;
  options.runtime.recycling = Recycling::eager;
  options.runtime.alias_reuse = alias_reuse;
  auto pool = Pool::create(*backend.value(), options);
  auto kernels = Kernels::create();
  auto figures = Result<ChainFigures, Status>(Status());
  if (!pool.ok()) {
    figures = pool.error();
  } else if (!kernels.ok()) {
    figures = kernels.error();
  } else if (!kernels.value()->has_dependent_launch()) {
    figures = Status{Error::not_supported, "the card has no dependent launch"};
  } else {
    figures = run_dependent_chain(*pool.value(), *kernels.value(), stream, links);
  }
  // Whatever the outcome: the pool ends before its stream, with an idle device.
  static_cast<void>(cudaDeviceSynchronize());
  if (pool.ok()) pool.value().reset();
  static_cast<void>(cudaStreamDestroy(stream));
  return figures;
}

}  // namespace gpupool::gpu_tests
