// The expensive half of an asymmetric fence: after heavy_fence() returns, each other thread of the
// process has passed a full memory barrier, so that the cheap half, on the path that is taken a
// hundred million times a second, need only keep the compiler from reordering.
//
// Linux: membarrier(2), MEMBARRIER_CMD_PRIVATE_EXPEDITED (kernel 4.14). A container may refuse it.
//
// Thread safety: any thread. Cost: an interrupt to each core that runs a thread of the process,
// a few microseconds.
#ifndef GPUPOOL_BASE_HEAVY_FENCE_H_
#define GPUPOOL_BASE_HEAVY_FENCE_H_

namespace gpupool::internal {

/// Whether the kernel lets this process use heavy_fence(); asked once.
bool has_heavy_fence() noexcept;
/// Requires: has_heavy_fence().
void heavy_fence() noexcept;

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_HEAVY_FENCE_H_
