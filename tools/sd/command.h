// `gpupool sd`: the files by which a job's processes are found (exporter.discovery), as one list of
// targets over HTTP, in the form of Prometheus' http_sd.
#ifndef GPUPOOL_TOOLS_SD_COMMAND_H_
#define GPUPOOL_TOOLS_SD_COMMAND_H_

#include "tools/command_line.h"

namespace gpupool::tools {

/// Adds the command to `app`; where the command line names it, `action` becomes what it does.
void add_sd_command(CLI::App& app, Action& action);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SD_COMMAND_H_
