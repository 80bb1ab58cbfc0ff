// What stands in for cuda_backend.cc in a build without the CUDA toolkit.
#include "gpupool/cuda_backend.h"

namespace gpupool {

Result<std::unique_ptr<Backend>, Status> open_cuda_backend(int) {
  return Status{Error::not_supported,
                "this build has no CUDA backend (the CUDA toolkit was not found when it was "
                "configured)"};
}

}  // namespace gpupool
