// Which mappings are wholly free, and out of use by whatever address: those that can go back to the
// driver.
//
// Thread safety: under the pool's lock. Cost: a step for each page of free runs of a page or more,
// until there are enough.
#ifndef GPUPOOL_POOL_EMPTY_PAGES_H_
#define GPUPOOL_POOL_EMPTY_PAGES_H_

#include <algorithm>
#include <cstdint>

#include "arena/arena.h"
#include "base/units.h"
#include "runs/run_table.h"

namespace gpupool::internal {

struct EmptyMapping {
  Mapping mapping;
  RunId run = 0;  // that it lies in
};

/// Calls `visit(empty)` for each in the runs that everybody may use, shortest runs first; until it
/// gives false.
template <class Visit>
void for_each_empty(const Arena& arena, const RunTable& runs, Visit visit) {
  runs.for_each_long(kAnybody, [&](RunId id) {
    const Run& run = runs[id];
    const std::uint64_t first = divide_up(run.start, kUnitsPerPage);
    // From the run's end, since the front of one that is cut keeps its id.
    for (std::uint64_t end = run.end() / kUnitsPerPage; end > first;) {
      const Mapping& mapping = arena.mapping_of(end - 1);
      const bool is_whole = mapping.pages.first >= first && mapping.pages.end() == end;
      end = std::min(end - 1, std::max(first, mapping.pages.first));
      // One that is mapped elsewhere as well would not be gone.
      const bool is_empty = is_whole && mapping.aliases == 0 && runs.are_idle(id, mapping.pages);
      if (is_empty && !visit(EmptyMapping{mapping, id})) return false;
    }
    return true;
  });
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_EMPTY_PAGES_H_
