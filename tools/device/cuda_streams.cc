#include "tools/device/cuda_streams.h"

#include <cuda_runtime_api.h>

#include <string>

namespace gpupool::tools {
namespace {

/// Makes `ordinal` current for a scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal) {
    status_ = cudaGetDevice(&previous_);
    if (status_ == cudaSuccess) status_ = cudaSetDevice(ordinal);
  }
  ~CurrentDevice() {
    // Fails only where the process is ending and the runtime is gone: nothing is left to restore.
    static_cast<void>(cudaSetDevice(previous_));
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  cudaError_t status() const { return status_; }

 private:
  int previous_ = 0;
  cudaError_t status_ = cudaSuccess;
};

}  // namespace

Result<RawStream, Status> create_cuda_stream(int ordinal) {
  const CurrentDevice current(ordinal);
  cudaError_t status = current.status();
  cudaStream_t stream = nullptr;
  if (status == cudaSuccess) status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (status == cudaSuccess) return RawStream{stream};
  return Status{Error::backend_failure,
                std::string("cannot make a stream: ") + cudaGetErrorString(status)};
}

void destroy_cuda_stream(int ordinal, RawStream stream) {
  const CurrentDevice current(ordinal);
  // The stream is idle and ours; an error here would be an earlier one, already reported.
  if (current.status() == cudaSuccess) static_cast<void>(cudaStreamDestroy(stream));
}

}  // namespace gpupool::tools
