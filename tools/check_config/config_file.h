// A configuration file, or its errors on stderr: what demo and check-config share.
#ifndef GPUPOOL_TOOLS_CHECK_CONFIG_CONFIG_FILE_H_
#define GPUPOOL_TOOLS_CHECK_CONFIG_CONFIG_FILE_H_

#include <optional>
#include <string>

#include "gpupool/exporter/config.h"

namespace gpupool::tools {

/// Loads `path`; where that fails, prints every error as "FILE:LINE: key: message" to stderr.
std::optional<Config> load_config_or_print(const std::string& path);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_CHECK_CONFIG_CONFIG_FILE_H_
