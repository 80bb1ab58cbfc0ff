// Every setting of a configuration as a line of text: what `gpupool check-config` prints, and what
// two configurations are compared by.
//
// Thread safety: plain functions. Cost: a few dozen strings.
#ifndef GPUPOOL_EXPORTER_CONFIG_DESCRIBE_H_
#define GPUPOOL_EXPORTER_CONFIG_DESCRIBE_H_

#include <string>
#include <vector>

#include "gpupool/exporter/config.h"

namespace gpupool::internal {

struct Setting {
  std::string key;    // "pool.capacity"
  std::string value;  // "8GiB (8589934592 bytes)"
};

/// All of them, in the order of configs/gpupool.yaml.
std::vector<Setting> settings(const Config& config);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_CONFIG_DESCRIBE_H_
