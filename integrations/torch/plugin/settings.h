// What the plug-in is told to do: the YAML file, GPUPOOL_DEVICE, or the defaults.
//
// Where this build reads no YAML (settings_without_yaml.cc), naming a file is an error.
// Thread safety: plain functions. Cost: milliseconds.
#ifndef GPUPOOL_INTEGRATIONS_TORCH_SETTINGS_H_
#define GPUPOOL_INTEGRATIONS_TORCH_SETTINGS_H_

#include <string>

#include "gpupool/exporter/config.h"
#include "gpupool/status.h"

namespace gpupool::torch {

struct Settings {
  Config config;
  /// The same without what the environment says, for comparing it with the file later.
  Config loaded;
  /// "": no file. Without one nothing is served by HTTP, as nobody asked for it.
  std::string path;
};

/// Reads `path`. Where the file is wrong and says `on_config_error: defaults`, each mistake is
/// logged and the defaults are given; otherwise the error has them all.
Result<Settings, Status> read_settings(const std::string& path);

/// What the file's loader gives, behind the two builds.
struct LoadedFile {
  bool is_good = false;
  Config config;
  std::string problems;  // one a line
  OnConfigError on_config_error = OnConfigError::stop;
};
LoadedFile load_file(const std::string& path);

}  // namespace gpupool::torch

#endif  // GPUPOOL_INTEGRATIONS_TORCH_SETTINGS_H_
