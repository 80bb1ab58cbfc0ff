#include "tools/device/cuda_streams.h"

namespace gpupool::tools {

Result<RawStream, Status> create_cuda_stream(int /*ordinal*/) {
  return Status{Error::not_supported, "this build has no CUDA"};
}

void destroy_cuda_stream(int /*ordinal*/, RawStream /*stream*/) {}

}  // namespace gpupool::tools
