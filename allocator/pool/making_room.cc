// Room for a request that pages are missing for: one rung after the other (growth_round.h).
#include <algorithm>
#include <numeric>

#include "pool/pool_impl.h"

namespace gpupool {

using internal::GrowthRound;
using internal::kPageBytes;
using internal::kUnitBytes;
using internal::MutexLock;
using internal::PageSupply;
using internal::Rung;

namespace {

/// So many are got at a time for the reserve, which keeps a step of maintenance short.
constexpr std::uint64_t kRefillPages = 64;

}  // namespace

bool Pool::Impl::climb(const Shape& shape, StreamIndex stream, const PageSupply& missing,
                       GrowthRound& round) {
  {
    MutexLock lock(mu_);
    if (!exchanges_pages()) return false;
  }
  if (round.rung == Rung::look) {
    round.rung = Rung::drain;
    find_empty(round.log);
    return true;
  }
  std::uint64_t bound = limit_bytes_.get();
  std::uint64_t held = 0;
  std::optional<std::uint64_t> pages;
  {
    MutexLock lock(mu_);
    held = held_bytes();
    if (round.most_pages != GrowthRound::kNoLimit) {
      const std::uint64_t others = held - arena_->backed_pages() * kPageBytes;
      bound = std::min(bound, others + round.most_pages * kPageBytes);
    }
    pages = pages_to_exchange(shape, stream, (bound - std::min(bound, held)) / kPageBytes);
  }
  const bool is_contiguous = arena_->is_contiguous();
  if (round.rung == Rung::drain) {
    round.rung = Rung::break_up;
    if (!is_contiguous) {
      // The fewer are held the better, also where others have to be held for it.
      exchange(missing.new_pages * kPageBytes, std::min(bound, held), options_.reserve_bytes,
               TrimReason::recycle, round.log);
    } else if (pages.has_value()) {
      exchange(missing.new_pages * kPageBytes, bound, 0, TrimReason::out_of_memory, round.log);
    }
    return !is_contiguous || pages.has_value();
  }
  if (round.rung == Rung::exchange || !pages.has_value()) return false;
  round.rung = Rung::exchange;
  return exchange(*pages * kPageBytes, bound, 0, TrimReason::out_of_memory, round.log);
}

bool Pool::Impl::make_room(std::uint64_t bytes, LadderLog& log) {
  {
    MutexLock lock(mu_);
    if (held_bytes() + bytes <= limit_bytes_.get()) return true;
    if (bytes > limit_bytes_.get()) return false;
  }
  find_empty(log);
  return exchange(bytes, limit_bytes_.get(), options_.reserve_bytes, TrimReason::out_of_memory,
                  log);
}

void Pool::Impl::find_empty(LadderLog& log) {
  {
    MutexLock lock(mu_);
    // Empty pages are of no use to a block that cannot be in them.
    log.note(LadderRung::caches, drain_all());
    // Whoever waits for another thread in full does it without the growth lock.
    pause_to_complete_work(Patience::brief, &log);
    tiers_.runs().part_idle();
  }
  // A stale address in the way may be why no window is better.
  unmap_stale();
}

bool Pool::Impl::exchange(std::uint64_t bytes, std::uint64_t bound, std::uint64_t reserve,
                          TrimReason reason, LadderLog& log) {
  log.note_try(LadderRung::trim);
  std::vector<internal::RunId> leaving;
  {
    MutexLock lock(mu_);
    if (held_bytes() + bytes <= bound) return true;
    leaving = detach_empty(bound - std::min(bound, bytes), reserve, false);
    const auto sum = [&](std::uint64_t so_far, internal::RunId id) {
      return so_far + tiers_.runs()[id].units * kUnitBytes;
    };
    const std::uint64_t most = std::accumulate(leaving.begin(), leaving.end(), bound, sum);
    // Also too few keep down what is held, but do not serve what has no room.
    if (reason == TrimReason::out_of_memory && held_bytes() + bytes > most) {
      attach(leaving);
      return false;
    }
  }
  const std::uint64_t released = give_back(leaving);
  log.note(LadderRung::trim, released);
  MutexLock lock(mu_);
  if (released > 0) count_trim(released, reason);
  return held_bytes() + bytes <= bound;
}

std::uint64_t Pool::Impl::missing_reserve_pages(std::uint64_t keep) const {
  // Of segments without those that are on their way to the driver; handles may move instead.
  const std::uint64_t leaving = arena_->is_contiguous() ? 0 : leaving_bytes_;
  const std::uint64_t arena = arena_->held_bytes() - arena_->stuck_bytes() - leaving;
  const std::uint64_t missing = options_.reserve_bytes - std::min(options_.reserve_bytes, arena);
  const std::uint64_t free = counted_.device_free_bytes;
  const std::uint64_t there = std::min(
      free - std::min(free, keep), limit_bytes_.get() - std::min(limit_bytes_.get(), held_bytes()));
  return missing <= there ? missing / kPageBytes : 0;
}

void Pool::Impl::refill_reserve(std::uint64_t end_ns, std::uint64_t keep) {
  while (driver_.now_ns() < end_ns) {
    PageSupply supply;
    {
      MutexLock lock(mu_);
      const std::uint64_t pages = missing_reserve_pages(keep);
      if (pages == 0) break;
      // Of segments all at once: what lies in different ones never joins.
      const std::uint64_t step = arena_->is_contiguous() ? std::min(pages, kRefillPages) : pages;
      const auto plan = planner_->plan(static_cast<std::uint32_t>(step * internal::kUnitsPerPage),
                                       1, internal::kAnybody, false);
      if (!plan.has_value()) break;
      supply = recycler_->new_pages(plan->spans, options_.runtime);
    }
    if (!back_pages(supply).ok()) break;
    MutexLock lock(mu_);
    add_pages(supply);
    note_held();
  }
}

}  // namespace gpupool
