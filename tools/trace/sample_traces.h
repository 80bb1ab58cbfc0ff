// Where the recorded traces are that travel with the program.
//
// Searched in <program's folder>/../share/gpupool/traces: the same place in a build tree and in an
// installation. Thread safety: plain functions.
#ifndef GPUPOOL_TOOLS_TRACE_SAMPLE_TRACES_H_
#define GPUPOOL_TOOLS_TRACE_SAMPLE_TRACES_H_

#include <string>
#include <vector>

#include "gpupool/status.h"

namespace gpupool::tools {

/// Paths of the samples, in the order in which they are played. The error names what is missing;
/// what to give instead is the caller's to say.
Result<std::vector<std::string>, Status> find_sample_traces();

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TRACE_SAMPLE_TRACES_H_
