// The misuse handler of a loaded configuration: one line on standard error for the first of each
// kind.
//
// Thread safety: any thread. Cost: a line.
#ifndef GPUPOOL_EXPORTER_CONFIG_MISUSE_LOG_H_
#define GPUPOOL_EXPORTER_CONFIG_MISUSE_LOG_H_

#include <string>
#include <utility>
#include <vector>

#include "gpupool/stats.h"

namespace gpupool::internal {

/// For PoolOptions::misuse_handler.
class MisuseLog {
 public:
  explicit MisuseLog(std::vector<std::string> tags) : tags_(std::move(tags)) {}
  void operator()(const MisuseReport& report) const noexcept;

 private:
  std::vector<std::string> tags_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_CONFIG_MISUSE_LOG_H_
