#include "tools/check_config/command.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "tools/check_config/config_file.h"

namespace gpupool::tools {
namespace {

ExitCode run_check_config(const std::string& path) {
  const std::optional<Config> config = load_config_or_print(path);
  if (!config) return ExitCode::usage;
  std::string text = describe(*config);
  if (text.empty() || text.back() != '\n') text += '\n';
  return print_result(text);
}

}  // namespace

void add_check_config_command(CLI::App& app, Action& action) {
  CLI::App& check = *app.add_subcommand(
      "check-config", "Print the settings that a file gives, or every error in it");
  const auto path = std::make_shared<std::string>();
  check.add_option("FILE", *path, "Configuration, YAML")->required();
  check.callback([path, &action] { action = [path] { return run_check_config(*path); }; });
}

}  // namespace gpupool::tools
