// Memory that goes back to the driver: what is asked for, what nobody has used for long, what
// others on the device need, and what the driver refused to take before.
#include <algorithm>

#include "base/check.h"
#include "pool/empty_pages.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::Driver;
using internal::EmptyMapping;
using internal::kPageBytes;
using internal::kUnitsPerPage;
using internal::MutexLock;
using internal::RunId;

namespace {

/// Pages that are given back at a time by maintenance, between two looks at its budget.
constexpr std::uint64_t kTrimPages = 16;
constexpr std::uint64_t kUnbounded = ~std::uint64_t{0};

/// Whether so little of a mapping is needed for the reserve that it goes, and an exact one is got
/// in its place: a segment of more than twice that. Handles are small, and what is short is as
/// well.
bool is_much_more(const internal::Arena& arena, std::uint64_t bytes, std::uint64_t needed) {
  return !arena.is_contiguous() && bytes > 2 * needed;
}

/// Of an arena that holds so much; what the reserve lacks then is got anew.
bool may_leave(const internal::Arena& arena, std::uint64_t bytes, std::uint64_t held,
               std::uint64_t reserve) {
  if (held >= reserve + bytes) return true;
  return held >= reserve && is_much_more(arena, bytes, reserve + bytes - held);
}

/// Runs of those mappings, which are leaving from now on.
std::vector<RunId> detach(const std::vector<EmptyMapping>& empty, internal::RunTable& runs,
                          std::uint64_t& leaving_bytes) {
  std::vector<RunId> leaving;
  for (const auto& [mapping, run] : empty) {
    const auto units = static_cast<std::uint32_t>(mapping.pages.count * kUnitsPerPage);
    leaving.push_back(
        runs.take_at(run, mapping.pages.first * kUnitsPerPage, units, internal::RunKind::leaving));
    leaving_bytes += units * internal::kUnitBytes;
  }
  return leaving;
}

}  // namespace

std::uint64_t Pool::Impl::trim(std::uint64_t target_held_bytes, TrimReason reason) {
  drain_patiently();
  finish_releases(true);
  {
    MutexLock lock(mu_);
    pause_to_complete_work(Patience::full);
  }
  // After completed work was looked for, so that one call gives back all that can be.
  MutexLock growth(growth_mu_);
  wait_for_maintenance();
  unmap_stale();
  std::vector<RunId> leaving;
  std::uint64_t before = free_complete_fallbacks();
  {
    MutexLock lock(mu_);
    before += held_bytes();
    leaving =
        detach_empty(std::min(target_held_bytes, limit_bytes_.get()), options_.reserve_bytes, true);
  }
  give_back_pages(leaving, reason);
  retry_stuck();
  MutexLock lock(mu_);
  recycler_->restart();
  return before - held_bytes();
}

void Pool::Impl::count_trim(std::uint64_t trimmed, TrimReason reason) {
  ++counted_.trims_by_reason[static_cast<std::size_t>(reason)];
  counted_.trimmed_bytes_by_reason[static_cast<std::size_t>(reason)] += trimmed;
  emit({.kind = SlowPathEventKind::trim, .bytes = trimmed, .trim_reason = reason});
}

std::uint64_t Pool::Impl::spare_pages() const {
  const std::uint64_t held = arena_->held_bytes() - arena_->stuck_bytes();
  return (held - std::min(held, options_.reserve_bytes)) / kPageBytes;
}

std::uint64_t Pool::Impl::idle_pages_due() {
  return std::min(idle_pages_.due(pool_time(), options_.runtime.trim), spare_pages());
}

template <class LetsGo>
std::vector<RunId> Pool::Impl::detach_some(std::uint64_t due, LetsGo lets_go) {
  if (due == 0) return {};
  std::vector<EmptyMapping> chosen;
  std::uint64_t pages = 0;
  std::uint64_t arena = arena_->held_bytes() - arena_->stuck_bytes();
  // What the reserve lacks in memory that is not empty. The smallest segment that is enough for it
  // stays, or at the end it would be the largest.
  const std::uint64_t occupied = arena - std::min(arena, tiers_.runs().empty_pages() * kPageBytes);
  std::uint64_t kept = options_.reserve_bytes - std::min(options_.reserve_bytes, occupied);
  // Shortest runs first, and so the smallest of empty segments: what stays is what served the
  // largest requests. No further than what is due: there may be very many.
  internal::for_each_empty(*arena_, tiers_.runs(), [&](const EmptyMapping& empty) {
    const internal::Mapping& mapping = empty.mapping;
    if (!may_leave(*arena_, mapping.bytes, arena, options_.reserve_bytes)) return true;
    if (kept > 0 && mapping.bytes >= kept && !is_much_more(*arena_, mapping.bytes, kept)) {
      kept = 0;
      return true;
    }
    if (!lets_go(mapping.pages.count, pages)) return true;
    chosen.push_back(empty);
    pages += mapping.pages.count;
    arena -= mapping.bytes;
    return pages < due;
  });
  return detach(chosen, tiers_.runs(), leaving_bytes_);
}

std::uint64_t Pool::Impl::trim_idle(std::uint64_t end_ns) {
  std::uint64_t released = 0;
  while (driver_.now_ns() < end_ns) {
    std::vector<RunId> leaving;
    {
      MutexLock lock(mu_);
      const std::uint64_t due = std::min(idle_pages_due(), kTrimPages);
      leaving = detach_some(due, [&](std::uint64_t pages, std::uint64_t more) {
        return idle_pages_.lets_go(pages, more);
      });
    }
    const std::uint64_t bytes = give_back_pages(leaving, TrimReason::idle);
    if (bytes == 0) break;
    MutexLock lock(mu_);
    idle_pages_.note_released(bytes / kPageBytes);
    released += bytes;
  }
  return released;
}

std::uint64_t Pool::Impl::missing_for_others() const {
  const std::uint64_t keep = options_.runtime.trim.keep_device_free_bytes;
  const std::uint64_t missing = keep - std::min(keep, counted_.device_free_bytes);
  return std::max(missing, bytes_over_limit());
}

std::uint64_t Pool::Impl::trim_for_others(std::uint64_t end_ns) {
  std::uint64_t released = 0;
  {
    MutexLock lock(mu_);
    if (owes_others_) tiers_.runs().part_idle();
  }
  while (driver_.now_ns() < end_ns) {
    std::vector<RunId> leaving;
    auto reason = TrimReason::pressure;
    {
      MutexLock lock(mu_);
      if (bytes_over_limit() > 0) reason = TrimReason::api;
      const std::uint64_t owed = internal::divide_up(missing_for_others(), kPageBytes);
      const std::uint64_t due = std::min({owed, spare_pages(), kTrimPages});
      if (owes_others_)
        leaving = detach_some(due, [](std::uint64_t, std::uint64_t) { return true; });
    }
    const std::uint64_t bytes = give_back_pages(leaving, reason);
    released += bytes;
    if (bytes > 0) continue;
    // Until the device's memory is read again: who has nothing to give need not look for it.
    MutexLock lock(mu_);
    owes_others_ = false;
    break;
  }
  return released;
}

std::uint64_t Pool::Impl::give_back_pages(std::vector<RunId> leaving, TrimReason reason) {
  if (leaving.empty()) return 0;
  // An exact segment for the reserve, where one that it needs little of is to go: before, as far as
  // there is room for both.
  refill_reserve(kUnbounded, 0);
  {
    MutexLock lock(mu_);
    if (const std::uint64_t pages = missing_reserve_pages(0); pages > 0) {
      // The driver has refused it: the smallest that is enough stays.
      const auto cost = [&](RunId id) {
        const std::uint64_t units = tiers_.runs()[id].units;
        return units < pages * kUnitsPerPage ? kUnbounded : units;
      };
      const auto kept = std::min_element(leaving.begin(), leaving.end(),
                                         [&](RunId a, RunId b) { return cost(a) < cost(b); });
      attach({*kept});
      leaving.erase(kept);
    }
  }
  const std::uint64_t released = give_back(leaving);
  if (released == 0) return 0;
  {
    MutexLock lock(mu_);
    recycler_->restart();
    count_trim(released, reason);
  }
  // Or else at once, from what the driver has just taken back, and so whatever others are to have;
  // once more where the driver has refused that.
  refill_reserve(kUnbounded, 0);
  refill_reserve(kUnbounded, 0);
  return released;
}

std::vector<RunId> Pool::Impl::detach_empty(std::uint64_t target_held_bytes, std::uint64_t reserve,
                                            bool may_refill) {
  if (held_bytes() <= target_held_bytes) return {};
  // Only memory that nobody may still be using: free runs without tickets, whole mappings.
  tiers_.runs().part_idle();
  std::vector<EmptyMapping> empty;
  internal::for_each_empty(*arena_, tiers_.runs(), [&](const EmptyMapping& found) {
    empty.push_back(found);
    return true;
  });
  // From the end of the arena, so that what stays is packed at its start. Where all but the reserve
  // goes, the largest first: a small segment may be enough for it.
  const bool is_all = target_held_bytes <= reserve && !arena_->is_contiguous();
  const auto is_later = [](const EmptyMapping& a, const EmptyMapping& b) {
    return a.mapping.pages.first > b.mapping.pages.first;
  };
  std::sort(empty.begin(), empty.end(), [&](const EmptyMapping& a, const EmptyMapping& b) {
    const bool is_same = !is_all || a.mapping.bytes == b.mapping.bytes;
    return is_same ? is_later(a, b) : a.mapping.bytes > b.mapping.bytes;
  });
  std::vector<EmptyMapping> chosen;
  std::uint64_t held = held_bytes();
  // The reserve is the arena's alone: fallbacks go back when they are freed, stuck memory as soon
  // as the driver takes it.
  std::uint64_t arena = arena_->held_bytes() - arena_->stuck_bytes();
  for (const EmptyMapping& candidate : empty) {
    if (held <= target_held_bytes) break;
    const std::uint64_t bytes = candidate.mapping.bytes;
    const bool may_go =
        may_refill ? may_leave(*arena_, bytes, arena, reserve) : arena >= reserve + bytes;
    if (!may_go) continue;
    chosen.push_back(candidate);
    held -= candidate.mapping.bytes;
    arena -= candidate.mapping.bytes;
  }
  // The front of a run that is cut keeps the run's id, so that the ids hold while going down.
  std::sort(chosen.begin(), chosen.end(), is_later);
  return detach(chosen, tiers_.runs(), leaving_bytes_);
}

void Pool::Impl::attach(const std::vector<RunId>& leaving) {
  for (const RunId id : leaving) {
    leaving_bytes_ -= tiers_.runs()[id].units * internal::kUnitBytes;
    tiers_.runs().put(id, TicketSet());
  }
}

std::uint64_t Pool::Impl::give_back(const std::vector<RunId>& leaving) {
  const Driver::Releasing releasing(driver_, ReleaseReason::trim);
  std::uint64_t released = 0;
  for (const RunId id : leaving) {
    internal::Mapping mapping;
    {
      MutexLock lock(mu_);
      mapping = arena_->mapping_of(tiers_.runs()[id].start / kUnitsPerPage);
    }
    std::vector<internal::Mapping> stuck;
    const auto gone = arena_->unback(mapping, stuck);
    MutexLock lock(mu_);
    leaving_bytes_ -= tiers_.runs()[id].units * internal::kUnitBytes;
    if (!gone.ok()) {
      tiers_.runs().put(id, TicketSet());
      continue;
    }
    tiers_.runs().remove(id);
    arena_->withdraw(mapping);
    arena_->keep_stuck(stuck);
    if (!stuck.empty()) continue;
    released += mapping.bytes;
    counted_.device_free_bytes += mapping.bytes;
  }
  return released;
}

std::uint64_t Pool::Impl::retry_stuck() {
  const Driver::Releasing releasing(driver_, ReleaseReason::retry);
  std::uint64_t released = 0;
  std::vector<internal::Mapping> stuck;
  {
    MutexLock lock(mu_);
    stuck = arena_->stuck();
  }
  for (const internal::Mapping& mapping : stuck) {
    std::vector<internal::Mapping> still_stuck;
    const auto gone = arena_->unback(mapping, still_stuck);
    if (!gone.ok()) continue;
    MutexLock lock(mu_);
    arena_->forget_stuck(mapping);
    arena_->keep_stuck(still_stuck);
    if (!still_stuck.empty()) continue;
    released += mapping.bytes;
    counted_.device_free_bytes += mapping.bytes;
  }
  return released;
}

}  // namespace gpupool
