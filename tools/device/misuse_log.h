// The tools' misuse handler: one line on stderr for the first of each kind.
#ifndef GPUPOOL_TOOLS_DEVICE_MISUSE_LOG_H_
#define GPUPOOL_TOOLS_DEVICE_MISUSE_LOG_H_

#include "gpupool/stats.h"

namespace gpupool::tools {

/// For PoolOptions::misuse_handler. Thread safety: any thread.
void log_misuse(const MisuseReport& report);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_DEVICE_MISUSE_LOG_H_
