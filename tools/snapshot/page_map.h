// The map as the page saves it, as /api/v1/snapshot would have answered it.
//
// Thread safety: plain functions. Cost: a copy of the columns.
#ifndef GPUPOOL_TOOLS_SNAPSHOT_PAGE_MAP_H_
#define GPUPOOL_TOOLS_SNAPSHOT_PAGE_MAP_H_

#include "tools/snapshot/checked_json.h"

namespace gpupool::tools {

/// `stats`: of the same file. Throws NotAsExpected.
Json snapshot_of_page(const Checked& map, const Checked& stats);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SNAPSHOT_PAGE_MAP_H_
