// CUDA memory behind the Backend interface. No CUDA header is needed to include this, and no CUDA
// library to run a program that does: driver entry points are looked up when a device is opened.
//
// Thread safety: the factory may be called from any thread. Cost: opening a device retains its
// primary context (hundreds of milliseconds the first time in a process).
#ifndef GPUPOOL_CUDA_BACKEND_H_
#define GPUPOOL_CUDA_BACKEND_H_

#include <memory>

#include "gpupool/backend.h"
#include "gpupool/status.h"

namespace gpupool {

/// Opens CUDA device `ordinal`. Errors: not_supported where this build has no CUDA, or there is no
/// driver or no such device; the message says which, in words for a person.
Result<std::unique_ptr<Backend>, Status> open_cuda_backend(int ordinal);

}  // namespace gpupool

#endif  // GPUPOOL_CUDA_BACKEND_H_
