// Real streams for a GPU, made and ended without a CUDA header in the rest of the tools.
//
// Both leave the calling thread's current device as it was. Without CUDA in the build, making one
// is not supported. Thread safety: any thread. Cost: tens of microseconds.
#ifndef GPUPOOL_TOOLS_DEVICE_CUDA_STREAMS_H_
#define GPUPOOL_TOOLS_DEVICE_CUDA_STREAMS_H_

#include "gpupool/status.h"
#include "gpupool/stream.h"

namespace gpupool::tools {

Result<RawStream, Status> create_cuda_stream(int ordinal);
void destroy_cuda_stream(int ordinal, RawStream stream);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_DEVICE_CUDA_STREAMS_H_
