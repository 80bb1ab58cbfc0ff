// `gpupool replay`: options in, table or JSON out, or a page on it.
#ifndef GPUPOOL_TOOLS_REPLAY_COMMAND_H_
#define GPUPOOL_TOOLS_REPLAY_COMMAND_H_

#include <functional>
#include <string>

#include "tools/command_line.h"
#include "tools/replay/replay.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

/// What --serve does; `bind` as it was given.
using ServeReplay = std::function<ExitCode(Trace, const ReplayOptions&, const std::string& bind)>;

/// Adds the command to `app`; where the command line names it, `action` becomes what it does.
/// Without `serve` there is no --serve: a build without the exporter has no server.
void add_replay_command(CLI::App& app, Action& action, const ServeReplay& serve = nullptr);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_REPLAY_COMMAND_H_
