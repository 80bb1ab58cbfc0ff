// The gpupool program: finds the command and runs it.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <string_view>

#include "tools/advise/command.h"
#include "tools/command_line.h"
#include "tools/compare/command.h"
#include "tools/replay/command.h"
#include "tools/trace/line_reader.h"
#if GPUPOOL_TOOLS_EXPORTER
#include "tools/check_config/command.h"
#include "tools/demo/command.h"
#include "tools/sd/command.h"
#include "tools/serve/serve.h"
#include "tools/snapshot/command.h"
#endif
#if GPUPOOL_TOOLS_TOP
#include "tools/top/command.h"
#endif

namespace gpupool::tools {
namespace {

std::string version_text() {
  return std::string("gpupool ") + GPUPOOL_TOOLS_VERSION +
         " (CUDA backend: " + (GPUPOOL_TOOLS_CUDA ? "yes" : "no") +
         ", exporter: " + (GPUPOOL_TOOLS_EXPORTER ? "yes" : "no") + ")";
}

bool has_command(const CLI::App& app, std::string_view name) {
  return !app.get_subcommands([name](const CLI::App* c) { return c->get_name() == name; }).empty();
}

std::string command_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names += " " + command->get_name();
  }
  return names;
}

ExitCode run(int argc, char** argv) {
  CLI::App app("A GPU memory pool that can be watched");
  app.name("gpupool");
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());
  app.failure_message(CLI::FailureMessage::simple);
  Action action;
#if GPUPOOL_TOOLS_EXPORTER
  add_replay_command(app, action, serve_replay);
#else
  add_replay_command(app, action);
#endif
  add_compare_command(app, action);
  add_advise_command(app, action);
#if GPUPOOL_TOOLS_EXPORTER
  add_demo_command(app, action);
  add_check_config_command(app, action);
  add_sd_command(app, action);
  add_snapshot_command(app, action);
#endif
#if GPUPOOL_TOOLS_TOP
  add_top_command(app, action);
#endif
  // CLI11 would say that a command is missing, though one was given.
  if (argc > 1 && argv[1][0] != '-' && !has_command(app, argv[1])) {
    print_error("unknown command " + quote(argv[1]) + "; this build has:" + command_names(app));
    return ExitCode::usage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    std::ostringstream text;
    app.exit(help, text, text);
    return print_result(text.str());
  } catch (const CLI::ParseError& error) {
    print_error(std::string(error.what()) + " (try --help)");
    return ExitCode::usage;
  }
  return action();
}

}  // namespace
}  // namespace gpupool::tools

int main(int argc, char** argv) {
  // A reader of our output that goes away is seen where we write, not by dying in silence.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return static_cast<int>(gpupool::tools::run(argc, argv));
  } catch (const std::exception& error) {
    // Ours: memory of the host ran out, or a bug. The user's mistakes are values, not exceptions.
    std::fprintf(stderr, "gpupool: internal error: %s\n", error.what());
    return static_cast<int>(gpupool::tools::ExitCode::internal_error);
  }
}
