// Where the arena grows: which unbacked pages, once they are backed, make a stretch of units that
// is long enough for a request.
//
// Free runs that the stream may use and unbacked pages lie in stretches between what is taken. In
// each stretch that is long enough that window is looked for which needs the fewest pages; of
// equals the lowest. Where pages are short, those that could move elsewhere and would not, because
// the window takes them, count like those that are to be backed (Spared): what is left then
// suffices if it does for any window.
//
// Note [Stretches that matter]
// A request of n - 1 pages and b units more (b from 1 to a page) fits into a stretch of one hole
// with runs of less than b / 2 units beside it only where the hole has n pages or more; and it
// costs n there, at the front of the hole. A stretch of several holes has a run of a page or more
// between them. So of all stretches without a run of b / 2 units no one is better than that of the
// lowest hole of n pages. What is left to look at are those with such a run, or with runs of the
// stream's own, which may lie in a row; and the line's tail.
//
// Thread safety: under the pool's lock. Cost: O(n log n) for the pieces of a stretch that is looked
// at, and O(log) of all holes for each of the runs that the note speaks of; no more than a step for
// each hole and the free runs beside it. With pages spared, a step more for each page of those
// runs.
#ifndef GPUPOOL_POOL_GROWTH_PLANNER_H_
#define GPUPOOL_POOL_GROWTH_PLANNER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "arena/arena.h"
#include "pool/stretch.h"
#include "runs/run_table.h"

namespace gpupool::internal {

struct GrowthPlan {
  std::vector<PageSpan> spans;      // to be backed, by rising address
  std::uint64_t pages = 0;          // in sum
  std::uint64_t charged_pages = 0;  // those, and of the window those that were to be spared
  PageSpan window;                  // every page that the request will touch
  // How many more will be occupied: what is unfinished, the asking stream's own too, is already.
  std::uint64_t fresh_pages = 0;
};

/// To back all of a segment.
GrowthPlan plan_of(PageSpan segment);

/// Which pages of free runs a plan leaves where it can.
enum class Spared : std::uint8_t {
  nothing,
  idle,   // of mappings that are wholly free and whose last use is known complete
  whole,  // of all mappings that are wholly free
};

class GrowthPlanner {
 public:
  /// So few holes are looked at one by one, whatever is beside them.
  static constexpr std::size_t kFewHoles = 64;

  GrowthPlanner(const Arena& arena, const RunTable& runs, std::size_t few_holes = kFewHoles)
      : arena_(arena), runs_(runs), few_holes_(few_holes) {}

  /// Nothing where there is no stretch of addresses that is long enough. `may_extend`: free runs
  /// count; else unbacked pages alone, which are enough whoever takes the runs meanwhile.
  std::optional<GrowthPlan> plan(std::uint32_t units, std::uint32_t align_units, StreamIndex stream,
                                 bool may_extend, Spared spared = Spared::nothing) const;
  /// How few pages, unbacked or of mappings that are wholly free, the request needs once nothing is
  /// stale; nothing where no stretch is long enough. Requires: addresses in a row.
  std::optional<std::uint64_t> fewest_pages_later(std::uint32_t units, StreamIndex stream) const;
  /// The longest request that `pages` more pages could serve, for a stream that has freed nothing.
  std::uint64_t largest_units(std::uint64_t pages) const;

 private:
  struct Search {
    StreamIndex stream = kAnybody;
    bool may_extend = true;
    Spared spared = Spared::nothing;
  };
  /// Calls `visit(stretch)` for each that has some of the `holes`, or the tail.
  template <class Holes, class Visit>
  void for_each_stretch(const Holes& holes, const Search& search, Visit visit) const;
  /// For those that may have the best window for so many units: see the note.
  template <class Visit>
  void for_each_likely(std::uint32_t units, const Search& search, Visit visit) const;
  /// For those of the holes (or the tail) that begin at these pages, which are sorted for that.
  template <class Visit>
  void for_each_stretch_at(std::vector<std::uint64_t>& holes, const Search& search,
                           Visit visit) const;
  /// Adds where holes begin that are beside runs of `units` or more that the stream may use, or
  /// beside any of its own. False where there are more such runs than holes.
  bool add_holes_beside_runs(std::uint64_t units, StreamIndex stream,
                             std::vector<std::uint64_t>& holes) const;
  /// The hole, or the tail, that begins at `page`; of no pages where there is none.
  PageSpan hole_at(std::uint64_t page) const;
  /// The hole that ends at `unit`.
  std::optional<PageSpan> hole_before(std::uint64_t unit) const;
  /// The stretch that `hole` is in.
  void make_stretch(PageSpan hole, const Search& search, Stretch& stretch) const;
  void begin_at(PageSpan hole, const Search& search, Stretch& stretch) const;
  void add_hole(PageSpan hole, const Search& search, Stretch& stretch) const;
  /// Free runs from the first to the last of which [start, end) consists.
  void add_backed(std::uint64_t start, std::uint64_t end, Spared spared, Stretch& stretch) const;
  /// How many empty pages of the free runs are none any more once all of the window is taken.
  std::uint64_t empty_pages(std::uint64_t start, std::uint64_t end_unit, PageSpan window) const;

  const Arena& arena_;
  const RunTable& runs_;
  std::size_t few_holes_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_GROWTH_PLANNER_H_
