// Where the arena grows: which unbacked pages, once they are backed, make a stretch of units that
// is long enough for a request.
//
// Free runs that the stream may use and unbacked pages lie in stretches between what is taken. In
// each stretch that is long enough that window is looked for which needs the fewest pages; of
// equals the lowest.
//
// Thread safety: under the pool's lock. Cost: one step for each hole and each free run beside one,
// a few more for each that lies in a row with others.
#ifndef GPUPOOL_POOL_GROWTH_PLANNER_H_
#define GPUPOOL_POOL_GROWTH_PLANNER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "arena/arena.h"
#include "runs/run_table.h"

namespace gpupool::internal {

struct GrowthPlan {
  std::vector<PageSpan> spans;       // to be backed, by rising address
  std::uint64_t pages = 0;           // in sum
  PageSpan window;                   // every page that the request will touch
  std::uint64_t exact_pages = 0;     // that would do where nothing free is of use
  std::uint64_t unshared_pages = 0;  // of the window, those in which nothing else lies
  // How many more will be occupied: what is unfinished, the asking stream's own too, is already.
  std::uint64_t fresh_pages = 0;
};

class GrowthPlanner {
 public:
  GrowthPlanner(const Arena& arena, const RunTable& runs) : arena_(arena), runs_(runs) {}

  /// Nothing where there is no stretch of addresses that is long enough. `may_extend`: free runs
  /// count; else unbacked pages alone, which are enough whoever takes the runs meanwhile.
  std::optional<GrowthPlan> plan(std::uint32_t units, std::uint32_t align_units, StreamIndex stream,
                                 bool may_extend) const;
  /// The longest request that `pages` more pages could serve, for a stream that has freed nothing.
  std::uint64_t largest_units(std::uint64_t pages) const;

 private:
  /// Units of one kind in a row.
  struct Piece {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    bool is_backed = false;
  };
  struct Window {
    std::uint64_t start = 0;
    std::uint64_t pages = ~std::uint64_t{0};  // to be backed
  };

  /// Calls `visit(pieces)` for each stretch.
  template <class Visit>
  void for_each_stretch(StreamIndex stream, bool may_extend, Visit visit) const;
  static Window best_window(const std::vector<Piece>& pieces, std::uint32_t units,
                            std::uint32_t align_units);
  static std::uint64_t unbacked_pages(const std::vector<Piece>& pieces, std::uint64_t start,
                                      std::uint64_t end);
  static std::uint64_t unshared_pages(const std::vector<Piece>& pieces, PageSpan window);
  /// The longest row that begins with a piece, the first to last or the last to first, and that
  /// many more pages make one.
  template <class Iterator>
  static std::uint64_t longest_from_pieces(Iterator first, Iterator end, std::uint64_t pages);
  /// How many empty pages of the backed piece are none any more once all of the window is taken.
  std::uint64_t empty_pages(const Piece& piece, PageSpan window) const;

  const Arena& arena_;
  const RunTable& runs_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_GROWTH_PLANNER_H_
