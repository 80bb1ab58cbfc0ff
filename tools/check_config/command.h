// `gpupool check-config`: the settings in force, or everything that is wrong with a file.
#ifndef GPUPOOL_TOOLS_CHECK_CONFIG_COMMAND_H_
#define GPUPOOL_TOOLS_CHECK_CONFIG_COMMAND_H_

#include "tools/command_line.h"

namespace gpupool::tools {

/// Adds the command to `app`; where the command line names it, `action` becomes what it does.
void add_check_config_command(CLI::App& app, Action& action);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_CHECK_CONFIG_COMMAND_H_
