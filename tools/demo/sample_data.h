// Where the recorded traces are that travel with the program.
//
// Searched in <program's folder>/../share/gpupool/traces: the same place in a build tree and in an
// installation. Thread safety: plain functions.
#ifndef GPUPOOL_TOOLS_DEMO_SAMPLE_DATA_H_
#define GPUPOOL_TOOLS_DEMO_SAMPLE_DATA_H_

#include <string>
#include <vector>

#include "gpupool/status.h"

namespace gpupool::tools {

/// Paths of the samples, in the order in which the demo plays them. The error names the folder
/// that was searched.
Result<std::vector<std::string>, Status> find_sample_traces();

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_DEMO_SAMPLE_DATA_H_
