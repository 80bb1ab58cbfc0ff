// Which mappings are wholly free, and so may move; and which of them are out of use by whatever
// address, and so may go back to the driver.
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

/// Calls `visit(run, mapping)` for each that is wholly free and that `stream` may use, in the order
/// of RunTable::for_each_long(); until it gives false.
template <class Visit>
void for_each_free(const Arena& arena, const RunTable& runs, StreamIndex stream, Visit visit) {
  runs.for_each_long(stream, [&](RunId id) {
    const Run& run = runs[id];
    const std::uint64_t first = divide_up(run.start, kUnitsPerPage);
    // From the run's end, since the front of one that is cut keeps its id.
    for (std::uint64_t end = run.end() / kUnitsPerPage; end > first;) {
      const Mapping& mapping = arena.mapping_of(end - 1);
      const bool is_whole = mapping.pages.first >= first && mapping.pages.end() == end;
      end = std::min(end - 1, std::max(first, mapping.pages.first));
      if (is_whole && !visit(id, mapping)) return false;
    }
    return true;
  });
}

/// Calls `visit(empty)` for each that may go back, in the same order; until it gives false.
template <class Visit>
void for_each_empty(const Arena& arena, const RunTable& runs, Visit visit) {
  for_each_free(arena, runs, kAnybody, [&](RunId id, const Mapping& mapping) {
    // One that is mapped elsewhere as well would not be gone.
    const bool is_empty = mapping.aliases == 0 && runs.are_idle(id, mapping.pages);
    return !is_empty || visit(EmptyMapping{mapping, id});
  });
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_EMPTY_PAGES_H_
