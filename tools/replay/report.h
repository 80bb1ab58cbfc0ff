// The results of a replay as text: a table for people, JSON for scripts.
//
// The JSON keys are a contract: scripts read them. Thread safety: plain functions.
#ifndef GPUPOOL_TOOLS_REPLAY_REPORT_H_
#define GPUPOOL_TOOLS_REPLAY_REPORT_H_

#include <string>
#include <vector>

#include "tools/replay/replay.h"
#include "tools/terminal/terminal.h"

namespace gpupool::tools {

/// One array with an object for each trace and pass, and a line end.
std::string to_json(const std::vector<PassResult>& results);

/// A line that says what was played on, and a row for each trace and pass. Fits 120 columns with
/// names up to 20 characters.
std::string to_table(const std::vector<PassResult>& results, const ReplayOptions& options,
                     const ReplaySetting& setting, const Terminal& terminal);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_REPLAY_REPORT_H_
