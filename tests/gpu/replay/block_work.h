// What the streams of a replay do with the blocks: a pattern is written into each block when it is
// handed out and looked for before it is freed, in the order of the block's stream. The host runs
// ahead of it, as a program's does.
//
// Streams are named by their index in the trace. Thread safety: one thread. Cost: a launch.
#ifndef GPUPOOL_TESTS_GPU_REPLAY_BLOCK_WORK_H_
#define GPUPOOL_TESTS_GPU_REPLAY_BLOCK_WORK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "gpupool/simulated_backend.h"
#include "gpupool/status.h"
#include "gpupool/stream.h"
#include "tests/gpu/pattern.h"

namespace gpupool::gpu_tests {

class BlockWork {
 public:
  virtual ~BlockWork() = default;
  virtual Result<void, Status> fill(std::uint16_t stream, const Pattern& pattern) = 0;
  virtual Result<void, Status> check(std::uint16_t stream, const Pattern& pattern) = 0;
  /// Keeps the stream busy for that long.
  virtual Result<void, Status> stall(std::uint16_t stream, std::uint64_t ns) = 0;
  virtual Result<void, Status> wait_for_all() = 0;
  /// So far; waits for all.
  virtual Result<Mismatches, Status> mismatches() = 0;
};

/// Kernels on the current CUDA device; not supported where the build has no CUDA. The streams
/// outlive it.
Result<std::unique_ptr<BlockWork>, Status> make_cuda_work(const std::vector<RawStream>& streams);

/// On the simulated device: each launch takes the host 4 us, each piece of work 2 us and a byte's
/// share of 4 TB/s, and a stream's queue takes 1 024 pieces before it blocks the host. With real
/// memory words are written and looked at, of blocks above 64 KiB one in each 4 KiB; with addresses
/// alone the device's own rules are all that is checked. The device outlives it.
std::unique_ptr<BlockWork> make_simulated_work(SimulatedBackend& device, SimulatedMemory memory,
                                               const std::vector<RawStream>& streams);

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_REPLAY_BLOCK_WORK_H_
