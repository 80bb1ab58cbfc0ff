// `gpupool snapshot`: a saved snapshot as text, or a page on it.
#ifndef GPUPOOL_TOOLS_SNAPSHOT_COMMAND_H_
#define GPUPOOL_TOOLS_SNAPSHOT_COMMAND_H_

#include "tools/command_line.h"
#include "tools/serve/recorded_endpoints.h"
#include "tools/snapshot/file.h"

namespace gpupool::tools {

/// Adds the command to `app`; where the command line names it, `action` becomes what it does.
void add_snapshot_command(CLI::App& app, Action& action);

/// One moment, as the page asks for it. Requires: `file` outlives them.
RecordedSources snapshot_sources(const SnapshotFile& file);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SNAPSHOT_COMMAND_H_
