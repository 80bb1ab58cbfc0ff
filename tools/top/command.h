// The command `gpupool top`: the pools of several processes in a terminal, who fails first on top.
#ifndef GPUPOOL_TOOLS_TOP_COMMAND_H_
#define GPUPOOL_TOOLS_TOP_COMMAND_H_

#include "tools/command_line.h"

namespace gpupool::tools {

/// Adds the command to `app`; when it was chosen, `action` is set to what it asks for.
void add_top_command(CLI::App& app, Action& action);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TOP_COMMAND_H_
