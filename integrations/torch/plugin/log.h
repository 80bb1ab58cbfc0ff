// The plug-in's voice: whole lines on standard error, "gpupool: ...", for what has no caller to be
// told.
//
// Thread safety: any thread. Cost: one write(2), nothing buffered, so that it may be used wherever
// the process stands.
#ifndef GPUPOOL_INTEGRATIONS_TORCH_LOG_H_
#define GPUPOOL_INTEGRATIONS_TORCH_LOG_H_

#include <string_view>

namespace gpupool::torch {

void log_line(std::string_view text) noexcept;

}  // namespace gpupool::torch

#endif  // GPUPOOL_INTEGRATIONS_TORCH_LOG_H_
