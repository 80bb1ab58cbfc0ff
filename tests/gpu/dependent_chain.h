// A chain of dependent launches in one stream, each in a block of its own from a pool: the second
// grid is there before the first is over, and reads what that has written, while blocks before
// them are freed and their pages are moved.
//
// Where pages are only moved once the work on them is over, no word may be wrong. Where they are
// moved at once (AliasReuse::same_stream), a grid may already be there when an earlier one still
// writes at the page's old address, which CUDA's guide excludes from its promise: what comes of it
// is measured.
//
// Thread safety: one thread. Cost: some 30 us a link.
#ifndef GPUPOOL_TESTS_GPU_DEPENDENT_CHAIN_H_
#define GPUPOOL_TESTS_GPU_DEPENDENT_CHAIN_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gpupool/pool.h"
#include "gpupool/status.h"
#include "tests/gpu/kernels.h"

namespace gpupool::gpu_tests {

struct ChainFigures {
  std::uint64_t links = 0;
  std::uint64_t pages_recycled = 0;
  /// Requests that were served once the device had nothing left to do.
  std::uint64_t served_after_wait = 0;
  Mismatches mismatches;
};

/// Limit of a pool for it: a little more than its blocks need, so that pages have to move.
inline constexpr std::uint64_t kChainCapacityBytes = std::uint64_t{208} << 20;

/// Frees all it has allocated. Requires: kernels.has_dependent_launch(), clear counters.
Result<ChainFigures, Status> run_dependent_chain(Pool& pool, Kernels& kernels, cudaStream_t stream,
                                                 std::uint64_t links);

/// The same in a pool of its own on device 0, under `alias_reuse`.
Result<ChainFigures, Status> measure_dependent_chain(AliasReuse alias_reuse, std::uint64_t links);

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_DEPENDENT_CHAIN_H_
