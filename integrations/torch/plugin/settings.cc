#include "integrations/torch/plugin/settings.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "integrations/torch/plugin/log.h"

namespace gpupool::torch {
namespace {

Result<void, Status> apply_environment(Config& config) {
  const char* const device = std::getenv("GPUPOOL_DEVICE");
  if (device == nullptr || *device == '\0') return {};
  const std::string_view name = device;
  if (name == "cuda" || name == "simulated") {
    config.torch.device = name == "cuda" ? TorchDevice::cuda : TorchDevice::simulated;
    return {};
  }
  return Status{Error::invalid_argument,
                "GPUPOOL_DEVICE is '" + std::string(name) + "'; allowed are cuda and simulated"};
}

}  // namespace

Result<Settings, Status> read_settings(const std::string& path) {
  Settings settings;
  settings.path = path;
  if (path.empty()) {
    settings.config.exporter.enabled = false;
  } else {
    LoadedFile file = load_file(path);
    if (file.is_good) {
      settings.config = std::move(file.config);
    } else if (file.on_config_error == OnConfigError::defaults) {
      log_line("the configuration is wrong, going on with the defaults: " + file.problems);
      settings.config = Config();
      settings.config.exporter.enabled = false;
    } else {
      return Status{Error::invalid_argument, "the configuration is wrong: " + file.problems};
    }
  }
  settings.loaded = settings.config;
  if (auto applied = apply_environment(settings.config); !applied.ok()) return applied.error();
  return settings;
}

}  // namespace gpupool::torch
