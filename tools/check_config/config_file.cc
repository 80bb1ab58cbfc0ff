#include "tools/check_config/config_file.h"

#include <cstdio>
#include <utility>

namespace gpupool::tools {

std::optional<Config> load_config_or_print(const std::string& path) {
  Result<Config, std::vector<ConfigError>> config = load_config_file(path);
  if (config.ok()) return std::move(config).value();
  for (const ConfigError& error : config.error()) {
    std::fprintf(stderr, "%s\n", error.text(path).c_str());
  }
  return std::nullopt;
}

}  // namespace gpupool::tools
