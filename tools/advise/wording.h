// Pieces of text that the table and the YAML of `gpupool advise` share.
//
// Thread safety: plain functions.
#ifndef GPUPOOL_TOOLS_ADVISE_WORDING_H_
#define GPUPOOL_TOOLS_ADVISE_WORDING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/advise/advisor.h"

namespace gpupool::tools {

/// The trace's name, its bytes outside of printable ASCII as '?'.
std::string plain_name(const Trace& trace);
/// A share as percent: "0.12%", "<0.01%", "0%".
std::string share_text(double share);
/// "a simulated device of 140 GiB, 2 passes each".
std::string device_text(const AdviseOptions& options);
/// A ratio of held to requested; "-" where requests failed, since less was then held because less
/// was served.
std::string ratio_text(double ratio, std::uint64_t failed);
/// "`capacity: 1180MiB` would do, with recycling pressure".
std::string least_need_text(const std::vector<Need>& needs);
/// Where the smallest capacity was searched for: what it is, on the trace that needs most.
std::string capacity_text(const Trial& trial);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_ADVISE_WORDING_H_
