// What backs pages, new ones and moved ones; and what moving leaves behind.
#include <algorithm>

#include "base/check.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::GrowthPlan;
using internal::GrowthRound;
using internal::kPageBytes;
using internal::kUnitBytes;
using internal::kUnitsPerPage;
using internal::MutexLock;
using internal::MutexUnlock;
using internal::PageSupply;
using internal::Rung;
using internal::Spared;

namespace {

constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};
/// A segment is for as many requests of one length as so many pages have room for, since what lies
/// in different ones never joins; for one that is longer than half of them, and where so much is
/// not to be had, for that request alone.
constexpr std::uint64_t kSegmentStepPages = 16;
/// Stale addresses are unmapped so many pages at a time, which keeps a step of maintenance short.
constexpr std::uint64_t kUnmapPages = 16;
/// Who moves pages where so many addresses are stale unmaps twice as many as he makes stale: where
/// nobody maintains the pool, stale addresses, and what one request may have to unmap, stay
/// bounded. With maintenance there are far fewer.
constexpr std::uint64_t kMaxStalePages = 4096;
/// So many are mapped at a time ahead of need, half a millisecond.
constexpr std::uint64_t kAheadPages = 16;

}  // namespace

bool Pool::Impl::exchanges_pages() const {
  return options_.runtime.recycling != Recycling::off || last_resorts_ > 0;
}

bool Pool::Impl::tracks_pages() const {
  return exchanges_pages() || options_.runtime.trim.idle_after_ns != 0 || streams_.keeps_apart();
}

std::uint64_t Pool::Impl::arena_limit_pages() const {
  // Fallbacks, overhead and what is stuck off the line are held, too.
  const std::uint64_t others = held_bytes() - arena_->backed_pages() * kPageBytes;
  return (limit_bytes_.get() - std::min(limit_bytes_.get(), others)) / kPageBytes;
}

bool Pool::Impl::can_grow(const Shape& shape, StreamIndex stream) const {
  const std::uint64_t others = held_bytes() - arena_->backed_pages() * kPageBytes;
  const std::uint64_t limit = limit_in_force();
  const std::uint64_t limit_pages = (limit - std::min(limit, others)) / kPageBytes;
  const std::uint64_t headroom = limit_pages - std::min(limit_pages, arena_->backed_pages());
  const auto can_serve = [&](const std::optional<GrowthPlan>& plan) {
    return plan.has_value() && recycler_->can_serve(*plan, options_.runtime, stream, headroom);
  };
  if (can_serve(plan_for(shape, stream, true))) return true;
  if (!exchanges_pages()) return false;
  if (recycler_->moves_pages(options_.runtime) && can_serve(plan_sparing(shape, stream)))
    return true;
  return pages_to_exchange(shape, stream, headroom).has_value();
}

std::optional<std::uint64_t> Pool::Impl::pages_to_exchange(const Shape& shape, StreamIndex stream,
                                                           std::uint64_t headroom) const {
  const auto plan =
      planner_->plan(shape.units_needed(), shape.alignment_needed(), stream, true, Spared::idle);
  if (!plan.has_value() || plan->charged_pages > headroom + tiers_.runs().idle_pages()) return {};
  return plan->charged_pages;
}

std::optional<GrowthPlan> Pool::Impl::plan_for(const Shape& shape, StreamIndex stream,
                                               bool may_extend) const {
  return planner_->plan(shape.units_needed(), shape.alignment_needed(), stream, may_extend);
}

std::optional<GrowthPlan> Pool::Impl::plan_sparing(const Shape& shape, StreamIndex stream) const {
  const bool at_once = recycler_->moves_at_once(options_.runtime, stream);
  return planner_->plan(shape.units_needed(), shape.alignment_needed(), stream, true,
                        at_once ? Spared::whole : Spared::idle);
}

PageSupply Pool::Impl::find_pages(const GrowthPlan& plan, const Shape& shape,
                                  const GrowthRound& round, StreamIndex stream) {
  PageSupply supply = prepare_pages(plan, round, stream);
  if (supply.missing_pages == 0 || !round.may_extend) return supply;
  if (!recycler_->moves_pages(options_.runtime)) return supply;
  const auto sparing = plan_sparing(shape, stream);
  return sparing.has_value() ? prepare_pages(*sparing, round, stream) : supply;
}

PageSupply Pool::Impl::prepare_pages(const GrowthPlan& plan, const GrowthRound& round,
                                     StreamIndex stream) {
  const std::uint64_t limit = std::min(arena_limit_pages(), round.most_pages);
  const bool is_used_up = options_.runtime.recycling == Recycling::eager &&
                          move_waits_.is_used_up(pool_time(), options_.runtime.recycling_wait);
  recycler_->hold_more(is_used_up);
  if (is_used_up) ++counted_.recycling_forgone;
  GrowthPlan larger = plan;
  if (!arena_->is_contiguous()) {
    const std::uint64_t allowed = recycler_->allowed_pages(plan, options_.runtime, limit);
    if (round.rung < Rung::break_up && arena_->backed_pages() + plan.pages > allowed) {
      // Segments do not move: an empty one goes back instead.
      PageSupply supply;
      supply.new_pages = supply.missing_pages = plan.pages;
      return supply;
    }
    const std::uint64_t step = kSegmentStepPages / plan.pages * plan.pages;
    const bool may_step =
        !round.is_exact && step > plan.pages && arena_->backed_pages() + step <= limit;
    const auto pages = may_step ? arena_->find_unbacked(step) : std::nullopt;
    if (pages.has_value()) larger = internal::plan_of(*pages);
  }
  PageSupply supply = recycler_->prepare(larger, options_.runtime, stream, limit, true);
  if (supply.missing_pages > 0) {
    recycler_->call_off(supply);
    return supply;
  }
  leaving_bytes_ += supply.moved_pages * kPageBytes;
  return supply;
}

void Pool::Impl::call_off(const PageSupply& supply) {
  leaving_bytes_ -= supply.moved_pages * kPageBytes;
  recycler_->call_off(supply);
}

Result<void> Pool::Impl::back_pages(PageSupply& supply) {
  std::uint64_t budget = 0;
  bool are_many_stale = false;
  {
    MutexLock lock(mu_);
    budget = limit_bytes_.get() - std::min(limit_bytes_.get(), held_bytes());
    are_many_stale = arena_->stale_pages() + supply.moved_pages > kMaxStalePages;
  }
  if (are_many_stale) unmap_stale(kUnlimited, 2 * supply.moved_pages);
  const std::uint64_t start = driver_.now_ns();
  std::vector<internal::Mapping> stuck;
  const auto backed = arena_->back(supply.targets, budget, stuck);
  MutexLock lock(mu_);
  if (supply.moved_pages > 0) {
    const std::uint64_t took = driver_.now_ns() - start;
    counted_.recycle_ns += took;
    // Nobody waits for what is moved ahead of need.
    const bool is_waited_for = supply.occupied_pages > 0;
    if (is_waited_for) move_waits_.use(pool_time(), took, options_.runtime.recycling_wait);
  }
  arena_->keep_stuck(stuck);
  if (!stuck.empty()) note_held();
  if (!backed.ok()) call_off(supply);
  return backed;
}

void Pool::Impl::add_pages(const PageSupply& supply) {
  recycler_->commit(supply);
  const std::uint64_t bytes = supply.new_pages * kPageBytes;
  counted_.device_free_bytes -= std::min(counted_.device_free_bytes, bytes);
  if (bytes > 0) emit({.kind = SlowPathEventKind::growth, .bytes = bytes});
}

// What moving leaves behind.

std::uint64_t Pool::Impl::unmap_stale(std::uint64_t budget_ns, std::uint64_t most_pages) {
  const std::uint64_t start = driver_.now_ns();
  std::uint64_t pages = 0;
  while (pages < most_pages) {
    std::vector<internal::Stale> stale;
    {
      MutexLock lock(mu_);
      stale = arena_->take_stale(streams_, std::min(kUnmapPages, most_pages - pages));
    }
    if (stale.empty()) break;
    const auto is_before = [](const internal::Stale& a, const internal::Stale& b) {
      return a.pages.first < b.pages.first;
    };
    std::sort(stale.begin(), stale.end(), is_before);
    const std::uint64_t unmapped = unmap(stale);
    if (unmapped == 0) break;  // tried again at the next step
    pages += unmapped;
    if (driver_.now_ns() - start >= budget_ns) break;
  }
  return pages;
}

std::uint64_t Pool::Impl::unmap(const std::vector<internal::Stale>& stale) {
  std::uint64_t pages = 0;
  for (auto first = stale.begin(); first != stale.end();) {
    auto next = first + 1;
    while (next != stale.end() && (next - 1)->pages.end() == next->pages.first &&
           (next - 1)->address + (next - 1)->pages.count * kPageBytes == next->address) {
      ++next;
    }
    const std::uint64_t count = (next - 1)->pages.end() - first->pages.first;
    const std::uint64_t start = driver_.now_ns();
    const auto gone = arena_->unmap(first->address, count * kPageBytes);
    MutexLock lock(mu_);
    counted_.recycle_ns += driver_.now_ns() - start;
    arena_->end_stale({first, next}, gone.ok());
    if (gone.ok()) pages += count;
    first = next;
  }
  return pages;
}

// Ahead of need.

void Pool::Impl::back_ahead(std::uint64_t end_ns) {
  while (commit_ahead(false) && driver_.now_ns() < end_ns) {
    internal::PageSupply supply;
    {
      MutexLock lock(mu_);
      supply = prepare_ahead();
      if (supply.targets.empty()) return;
    }
    const auto backed = back_pages(supply);
    if (!backed.ok()) return;
    MutexLock lock(mu_);
    ahead_ = std::move(supply);
    ahead_until_ns_ = driver_.now_ns();
  }
}

PageSupply Pool::Impl::prepare_ahead() {
  const std::uint32_t units = forecast_.wanted_units(pool_time());
  const bool moves = options_.runtime.recycling == Recycling::eager && arena_->is_contiguous();
  if (units == 0 || !moves || tiers_.runs().largest_ready_units() >= units) return {};
  const std::uint64_t pages = internal::divide_up(units, kUnitsPerPage);
  if (tiers_.runs().empty_pages() < pages) return {};
  auto plan = planner_->plan(units, 1, internal::kAnybody, true);
  if (!plan.has_value()) return {};
  // A part at a time, so that a step stays short: the next one goes on where this one ended.
  plan->spans.resize(1);
  plan->pages = plan->spans.front().count = std::min(plan->spans.front().count, kAheadPages);
  PageSupply supply = recycler_->prepare(*plan, options_.runtime, internal::kAnybody,
                                         arena_->backed_pages(), false);
  if (supply.missing_pages > 0) {
    recycler_->call_off(supply);
    return {};
  }
  leaving_bytes_ += supply.moved_pages * kPageBytes;
  return supply;
}

bool Pool::Impl::commit_ahead(bool must) {
  MutexLock lock(mu_);
  if (!ahead_.has_value()) return true;
  if (!driver_.backend().has_passed(ahead_until_ns_)) {
    if (!must) return false;
    const std::uint64_t until = ahead_until_ns_;
    MutexUnlock unlock(mu_);
    driver_.backend().wait_until(until);
  }
  leaving_bytes_ -= ahead_->moved_pages * kPageBytes;
  add_pages(*ahead_);
  ahead_.reset();
  return true;
}

bool Pool::Impl::open_addresses() {
  if (unmap_stale() > 0) return true;
  {
    MutexLock lock(mu_);
    if (!arena_->can_extend()) return false;
  }
  const auto base = arena_->reserve_more();
  if (!base.ok()) return false;
  MutexLock lock(mu_);
  arena_->extend(base.value());
  return true;
}

}  // namespace gpupool
