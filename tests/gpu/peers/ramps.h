// Words that rise by a step from one to the next, filled and checked by kernels of one device: what
// a sum over ranks is made of, since the sum of ramps is the ramp of the sums, exactly.
//
// Thread safety: launches from any thread that has the device current; mismatches() from one.
// Cost: about 4 us a launch.
#ifndef GPUPOOL_TESTS_GPU_PEERS_RAMPS_H_
#define GPUPOOL_TESTS_GPU_PEERS_RAMPS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tests/gpu/pattern.h"

namespace gpupool::gpu_tests {

/// Word i is seed + i * step, modulo 2^32.
struct Ramp {
  std::uint32_t seed = 0;
  std::uint32_t step = 0;

  Ramp& operator+=(const Ramp& other) {
    seed += other.seed;
    step += other.step;
    return *this;
  }
};

/// Of one rank in one round: no two alike, and no word of theirs 0 for long.
inline Ramp ramp_of(std::uint64_t round, std::uint64_t rank) {
  return {seed_of(round * 64 + rank), seed_of(~(round * 64 + rank)) | 1};
}

/// The kernels' text, for a tool that assembles them.
std::string ramps_ptx();

class Ramps {
 public:
  /// For the current device. Each kernel has run once, so that nothing is loaded later.
  static std::unique_ptr<Ramps> create();
  ~Ramps();
  Ramps(const Ramps&) = delete;
  Ramps& operator=(const Ramps&) = delete;

  void fill(cudaStream_t stream, const void* at, std::uint64_t bytes, const Ramp& ramp);
  void check(cudaStream_t stream, const void* at, std::uint64_t bytes, const Ramp& ramp);
  /// Of all checks so far. Waits for `stream`, which got all of them or comes after them.
  Mismatches mismatches(cudaStream_t stream);

 private:
  Ramps() = default;

  cudaLibrary_t library_ = nullptr;
  cudaKernel_t fill_ = nullptr;
  cudaKernel_t check_ = nullptr;
  void* counters_ = nullptr;  // Mismatches, on the device
};

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_PEERS_RAMPS_H_
