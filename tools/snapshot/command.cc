#include "tools/snapshot/command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "tools/serve/bind.h"
#include "tools/serve/serve.h"
#include "tools/snapshot/report.h"
#include "tools/terminal/terminal.h"

namespace gpupool::tools {
namespace {

struct SnapshotCommand {
  std::string path;
  bool is_served = false;
  std::string bind = kDefaultBind;
  bool has_bind = false;
};

ExitCode run_snapshot(const SnapshotCommand& command) {
  const auto file = load_snapshot(command.path);
  if (!file.ok()) {
    print_error(file.error().message);
    return ExitCode::usage;
  }
  if (command.is_served) {
    return serve_recorded(
        snapshot_sources(file.value()), command.bind,
        "file:   " + file.value().name + ", of " + utc_text(file.value().time_ms) + "\n");
  }
  if (command.has_bind) print_error("--bind has no effect without --serve");
  return print_result(to_text(file.value(), inspect_terminal(stdout)));
}

}  // namespace

void add_snapshot_command(CLI::App& app, Action& action) {
  CLI::App& snapshot = *app.add_subcommand(
      "snapshot", "Show a saved snapshot: what is free, by state and by tag, or the page on it");
  const auto command = std::make_shared<SnapshotCommand>();
  snapshot
      .add_option(
          "FILE", command->path,
          "What /api/v1/snapshot answered, or the page saved as JSON; plain or gzip'd. Of a "
          "snapshot by PyTorch's allocator gpupool.torch.convert_snapshot() makes a trace, "
          "which gpupool replay --serve shows")
      ->required();
  snapshot.add_flag("--serve", command->is_served, "Serve the page on it, until stopped");
  CLI::Option* const bind =
      snapshot
          .add_option(
              "--bind", command->bind,
              std::string("Where --serve does, on this machine alone, port 0 for any (default ") +
                  kDefaultBind + ")")
          ->type_name("HOST:PORT");
  snapshot.callback([command, bind, &action] {
    command->has_bind = bind->count() != 0;
    action = [command] { return run_snapshot(*command); };
  });
}

}  // namespace gpupool::tools
