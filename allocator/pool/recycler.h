// Page recycling, tier T4: what backs the pages that a growth plan asks for. Empty pages come from
// where they are; new ones are created as far as the policy lets the pool hold more.
//
//   eager     held <= (1 + slack) x the most pages that were ever occupied, as far as what is empty
//             suffices;   pressure, off: held <= the limit
//   empty     of a mapping that is wholly free, and whose last use is known complete; with
//             AliasReuse::same_stream also where that is the asking stream's alone
//
// A page that moves is mapped at its new address first, so that a driver that refuses changes
// nothing; its old address is stale until it is unmapped (arena.h), which somebody does who has the
// time. Shortest free runs give first: what is left is longer, and was found cheaper by a third to
// two thirds than taking the oldest.
//
// Thread safety: under the pool's lock; what prepare() gives is the caller's until it is committed
// or called off, which happens under one growth lock. Cost: a step for each page of free runs of a
// page or more, until there are enough.
#ifndef GPUPOOL_POOL_RECYCLER_H_
#define GPUPOOL_POOL_RECYCLER_H_

#include <cstdint>
#include <vector>

#include "arena/arena.h"
#include "gpupool/options.h"
#include "pool/empty_pages.h"
#include "pool/growth_planner.h"
#include "runs/run_table.h"

namespace gpupool::internal {

/// What is to back the pages of a plan, by rising address.
struct PageSupply {
  /// A mapping that is to move.
  struct Moved {
    RunId run = 0;  // leaving
    TicketSet tickets;
  };
  std::vector<Mapping> targets;  // the moved ones first to last, but with new ones among them
  std::vector<Moved> moved;      // of those targets that have a handle, in that order
  std::uint64_t moved_pages = 0;
  std::uint64_t new_pages = 0;
  std::uint64_t occupied_pages = 0;  // of the arena, once the request is served
  /// For which there is neither; the others are as if it were enough.
  std::uint64_t missing_pages = 0;
};

class Recycler {
 public:
  Recycler(Arena& arena, RunTable& runs) : arena_(arena), runs_(runs) {}

  bool moves_pages(const RuntimeOptions& options) const noexcept {
    return options.recycling != Recycling::off && arena_.is_contiguous();
  }
  /// Whether pages that only `stream` may use move for its own requests. What a graph uses stays
  /// where it is.
  bool moves_at_once(const RuntimeOptions& options, StreamIndex stream) const noexcept {
    return options.alias_reuse == AliasReuse::same_stream && runs_.may_move_own(stream);
  }
  /// Under `eager`: whether new pages are held instead of moving empty ones, from now on.
  void hold_more(bool more) noexcept { holds_more_ = more; }
  /// How many pages may be held in sum to serve the plan, of `limit_pages`.
  std::uint64_t allowed_pages(const GrowthPlan& plan, const RuntimeOptions& options,
                              std::uint64_t limit_pages) const;
  /// Whether the plan could be served now, `headroom` pages being to be had.
  bool can_serve(const GrowthPlan& plan, const RuntimeOptions& options, StreamIndex stream,
                 std::uint64_t headroom) const;
  /// New pages, whatever the policy, where there is room for them.
  PageSupply new_pages(const std::vector<PageSpan>& spans, const RuntimeOptions& options) const;
  /// Sets aside what backs the plan. `limit_pages`: the most that the arena may hold. `is_needed`:
  /// for a request, whose pages are occupied from now on.
  PageSupply prepare(const GrowthPlan& plan, const RuntimeOptions& options, StreamIndex stream,
                     std::uint64_t limit_pages, bool is_needed);
  /// The targets are backed: they become free runs.
  void commit(const PageSupply& supply);
  /// They are not: what was set aside is free again.
  void call_off(const PageSupply& supply);

  /// The most that were occupied by what was served; from now on counted from what is.
  void restart() noexcept { peak_occupied_pages_ = 0; }
  std::uint64_t recycled_pages() const noexcept { return recycled_pages_; }

 private:
  std::vector<EmptyMapping> choose(const GrowthPlan& plan, std::uint64_t pages,
                                   StreamIndex stream) const;
  std::uint64_t occupied_pages() const noexcept {
    return arena_.backed_pages() - runs_.empty_pages();
  }

  Arena& arena_;
  RunTable& runs_;
  std::uint64_t peak_occupied_pages_ = 0;
  std::uint64_t recycled_pages_ = 0;
  bool holds_more_ = false;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_RECYCLER_H_
