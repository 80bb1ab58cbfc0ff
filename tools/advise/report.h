// The advice as text: for people, and as JSON for scripts. The JSON keys are a contract.
//
// Thread safety: plain functions.
#ifndef GPUPOOL_TOOLS_ADVISE_REPORT_H_
#define GPUPOOL_TOOLS_ADVISE_REPORT_H_

#include <string>
#include <vector>

#include "tools/advise/advisor.h"
#include "tools/terminal/terminal.h"

namespace gpupool::tools {

/// One object with everything that was tried, and a line end.
std::string to_json(const Advice& advice, const std::vector<Trace>& traces,
                    const AdviseOptions& options);

/// The settings by memory, each trace under the chosen one, the YAML and what it saves. Fits 120
/// columns with names up to 20 characters.
std::string to_text(const Advice& advice, const std::vector<Trace>& traces,
                    const AdviseOptions& options, const Terminal& terminal);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_ADVISE_REPORT_H_
