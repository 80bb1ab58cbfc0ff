// The advised setting as a configuration file, as exporter/config reads it, with comments that say
// what the other choices cost.
//
// Nothing of the input gets into the text but names, of which only printable ASCII is left: a
// comment stays a comment whatever a file is called.
// Thread safety: plain functions.
#ifndef GPUPOOL_TOOLS_ADVISE_YAML_H_
#define GPUPOOL_TOOLS_ADVISE_YAML_H_

#include <string>
#include <vector>

#include "tools/advise/advisor.h"

namespace gpupool::tools {

/// Requires: advice.chosen.
std::string to_yaml(const Advice& advice, const std::vector<Trace>& traces,
                    const AdviseOptions& options);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_ADVISE_YAML_H_
