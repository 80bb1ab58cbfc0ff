#include <utility>

#include "integrations/torch/plugin/settings.h"

namespace gpupool::torch {

LoadedFile load_file(const std::string& path) {
  LoadedFile file;
  auto loaded = load_config_file(path);
  if (loaded.ok()) {
    file.is_good = true;
    file.config = std::move(loaded).value();
    return file;
  }
  for (const ConfigError& error : loaded.error()) {
    file.problems += (file.problems.empty() ? "" : "; ") + error.text(path);
  }
  file.on_config_error = find_on_config_error_in_file(path);
  return file;
}

}  // namespace gpupool::torch
