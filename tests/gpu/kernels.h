// The kernels with which the tests on a card write into blocks and look at what is in them, and
// the counters of what was wrong.
//
// `fill` and `check` use the memory's bandwidth; the others take few threads. Nothing here waits
// for the device but create, mismatches and clear_mismatches; a launch blocks its caller only where
// the stream's queue is full.
//
// Thread safety: launches from any thread, the rest from one. Cost: about 4 us a launch.
#ifndef GPUPOOL_TESTS_GPU_KERNELS_H_
#define GPUPOOL_TESTS_GPU_KERNELS_H_

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "gpupool/status.h"
#include "tests/gpu/pattern.h"

namespace gpupool::gpu_tests {

inline Result<void, Status> check_cuda(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return {};
  return Status{Error::backend_failure, what + ": " + cudaGetErrorString(error)};
}

/// Whether a kernel starts when all before it in its stream is over, or, by programmatic dependent
/// launch, when each block of the one before has said that it may.
enum class Launch : std::uint8_t { ordinary, dependent };

/// What a reader does before what it is to read is written.
enum class Ahead : std::uint32_t { nothing, is_there, has_read };

/// Who waits for whom where a reader is already there when its writer writes.
struct Meeting {
  DeviceAddress flags = 0;  // 16 bytes: reader is there, writer is done, meetings counted, unused
  std::uint32_t token = 0;  // of this meeting
  std::uint64_t writer_limit_ns = 0;  // how long the writer waits for the reader; 0: not at all
  std::uint64_t reader_limit_ns = 0;  // how long the reader waits for the writer; 0: not at all
  Ahead ahead = Ahead::nothing;
};

class Kernels {
 public:
  static constexpr std::size_t kCounters = 4;

  /// Compiled for the current device and each run once, so that nothing is loaded later. The error
  /// says what is missing; `dependent` kernels are there from compute capability 9.0 on.
  static Result<std::unique_ptr<Kernels>, Status> create();
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  bool has_dependent_launch() const { return dependent_library_ != nullptr; }

  Result<void, Status> fill(cudaStream_t stream, const Pattern& pattern);
  Result<void, Status> check(cudaStream_t stream, const Pattern& pattern, std::size_t counter = 0);
  /// Keeps the stream busy for that long with one thread.
  Result<void, Status> spin(cudaStream_t stream, std::uint64_t ns);
  /// Reads and writes each word of the range again and again until the word at `control` is not 0;
  /// at +4 it says that `limit_ns` was over first, at +8 (8 bytes) how many rounds it made.
  /// Requires: the range was filled with the pattern, and 16 bytes at `control` are 0.
  Result<void, Status> resident(cudaStream_t stream, DeviceAddress control, const Pattern& pattern,
                                std::uint64_t limit_ns, std::size_t counter = 0);
  /// Checks what the kernel before it has written into `previous`, then fills `own`. Lets the next
  /// one begin at once, and waits for the one before it before it touches memory.
  Result<void, Status> chain(cudaStream_t stream, const Pattern& previous, const Pattern& own,
                             std::size_t counter = 0);
  /// Fills, where it is to meet its reader once that is there.
  Result<void, Status> write_met(cudaStream_t stream, const Pattern& pattern,
                                 const Meeting& meeting);
  /// Checks; launched dependent, it may be there before the kernel in front of it is over.
  Result<void, Status> read_met(cudaStream_t stream, const Pattern& pattern, const Meeting& meeting,
                                Launch launch, std::size_t counter = 0);

  /// Reads at `read_at`, writes at the pattern's address, and checks at `read_at`, in one grid.
  Result<void, Status> write_and_read(cudaStream_t stream, const Pattern& pattern,
                                      DeviceAddress read_at, const Meeting& meeting,
                                      std::size_t counter = 0);

  /// Waits for the whole device.
  Result<Mismatches, Status> mismatches(std::size_t counter = 0);
  Result<void, Status> clear_mismatches();

 private:
  Kernels() = default;
  Result<void, Status> load();
  Result<void, Status> run_each_once();
  DeviceAddress counter_address(std::size_t counter) const;
  static Result<void, Status> launch(cudaKernel_t kernel, cudaStream_t stream, unsigned blocks,
                                     unsigned threads, void** arguments, Launch how);
  unsigned blocks_for(const Pattern& pattern) const;

  cudaLibrary_t general_library_ = nullptr;
  cudaLibrary_t dependent_library_ = nullptr;
  cudaKernel_t fill_ = nullptr;
  cudaKernel_t check_ = nullptr;
  cudaKernel_t spin_ = nullptr;
  cudaKernel_t resident_ = nullptr;
  cudaKernel_t chain_ = nullptr;
  cudaKernel_t write_met_ = nullptr;
  cudaKernel_t read_met_ = nullptr;
  cudaKernel_t write_and_read_ = nullptr;
  unsigned most_blocks_ = 0;
  void* counters_ = nullptr;  // Mismatches, on the device
};

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_KERNELS_H_
