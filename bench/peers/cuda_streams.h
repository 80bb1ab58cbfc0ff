// Streams of device 0 for systems that take the runtime's handles, and errors of the runtime as
// Status.
//
// Thread safety: one thread.
#ifndef GPUPOOL_BENCH_PEERS_CUDA_STREAMS_H_
#define GPUPOOL_BENCH_PEERS_CUDA_STREAMS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gpupool/status.h"

namespace gpupool::bench {

inline Result<void, Status> check_cuda(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return {};
  return Status{Error::backend_failure, what + ": " + cudaGetErrorString(error)};
}

class CudaStreams {
 public:
  CudaStreams() = default;
  ~CudaStreams() {
    for (cudaStream_t stream : handles_) {
      // Idle and ours; an error here would be an earlier one.
      if (stream != nullptr) static_cast<void>(cudaStreamDestroy(stream));
    }
  }
  CudaStreams(const CudaStreams&) = delete;
  CudaStreams& operator=(const CudaStreams&) = delete;

  /// Makes device 0 current and one stream for each number; 0 is the default stream.
  Result<void, Status> create(const std::vector<std::uint64_t>& numbers) {
    if (const auto set = check_cuda(cudaSetDevice(0), "no CUDA device"); !set.ok())
      return set.error();
    for (const std::uint64_t number : numbers) {
      cudaStream_t stream = nullptr;
      if (number != 0) {
        const auto made = check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                     "cannot make a stream");
        if (!made.ok()) return made.error();
      }
      handles_.push_back(stream);
    }
    return {};
  }
  const std::vector<cudaStream_t>& handles() const { return handles_; }

 private:
  std::vector<cudaStream_t> handles_;
};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_CUDA_STREAMS_H_
