// The traces that a command line names, all of them or none.
//
// Thread safety: plain functions. Cost: trace.h, and a progress bar on stderr where that is a
// terminal.
#ifndef GPUPOOL_TOOLS_REPLAY_LOAD_TRACES_H_
#define GPUPOOL_TOOLS_REPLAY_LOAD_TRACES_H_

#include <string>
#include <vector>

#include "gpupool/status.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

/// In the order of `paths`; the error is of the first that cannot be read.
Result<std::vector<Trace>, Status> load_traces(const std::vector<std::string>& paths);

/// For --recycling-wait: a line on stderr for each trace without recorded time, of which there is
/// no share to wait for.
void note_untimed(const std::vector<Trace>& traces);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_REPLAY_LOAD_TRACES_H_
