// The table that `gpupool top` shows.
//
// Thread safety: plain functions. Cost: strings.
#ifndef GPUPOOL_TOOLS_TOP_VIEW_H_
#define GPUPOOL_TOOLS_TOP_VIEW_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tools/terminal/terminal.h"
#include "tools/top/rank.h"

namespace gpupool::tools {

/// A line that sums up, a row for each rank in their order, and below those that are not ok why. On
/// a terminal no line is longer than it is wide, and there are at most `lines` of them; 0: all.
std::string top_text(const std::vector<Rank>& ranks, const Terminal& terminal, std::size_t lines);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TOP_VIEW_H_
