// `gpupool advise`: traces in; out come a table, JSON or a configuration file.
#ifndef GPUPOOL_TOOLS_ADVISE_COMMAND_H_
#define GPUPOOL_TOOLS_ADVISE_COMMAND_H_

#include "tools/command_line.h"

namespace gpupool::tools {

/// Adds the command to `app`; where the command line names it, `action` becomes what it does.
void add_advise_command(CLI::App& app, Action& action);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_ADVISE_COMMAND_H_
