// `gpupool compare`: options in, tables or JSON out.
#ifndef GPUPOOL_TOOLS_COMPARE_COMMAND_H_
#define GPUPOOL_TOOLS_COMPARE_COMMAND_H_

#include "tools/command_line.h"

namespace gpupool::tools {

/// Adds the command to `app`; where the command line names it, `action` becomes what it does.
void add_compare_command(CLI::App& app, Action& action);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_COMPARE_COMMAND_H_
