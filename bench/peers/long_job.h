// Work that keeps one stream of a GPU busy for a chosen time, without device code of our own in the
// build: a kernel of a few instructions in PTX that the driver compiles, or, where it cannot, a
// chain of fills.
//
// The kernel takes one thread of one block; the fills take the memory's bandwidth, too. Both end by
// themselves. Thread safety: one thread.
#ifndef GPUPOOL_BENCH_PEERS_LONG_JOB_H_
#define GPUPOOL_BENCH_PEERS_LONG_JOB_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "gpupool/status.h"

namespace gpupool::bench {

class LongJob {
 public:
  /// Ready to start: compiled and run once, so that nothing is loaded later.
  static Result<std::unique_ptr<LongJob>, Status> create();
  ~LongJob();
  LongJob(const LongJob&) = delete;
  LongJob& operator=(const LongJob&) = delete;

  /// Gives the work to `stream`; it runs for about `duration` (at most kLongest) once it begins.
  Result<void, Status> start(cudaStream_t stream, std::chrono::nanoseconds duration);
  /// "a kernel", or "fills".
  const char* kind() const { return kernel_ != nullptr ? "a kernel" : "fills"; }

  static constexpr std::chrono::nanoseconds kLongest = std::chrono::milliseconds(100);

 private:
  LongJob() = default;
  Result<void, Status> load_kernel();
  Result<void, Status> prepare_fills();

  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
  void* buffer_ = nullptr;
  std::size_t buffer_bytes_ = 0;
  double fill_ns_ = 0;
};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_LONG_JOB_H_
