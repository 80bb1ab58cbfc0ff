// Memory that goes back to the driver: what is asked for, what nobody has used for long, what
// others on the device need, and what the driver refused to take before.
#include <algorithm>

#include "base/check.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::kPageBytes;
using internal::kUnitsPerPage;
using internal::MutexLock;
using internal::RunId;

namespace {

/// Pages that are given back at a time by maintenance, between two looks at its budget.
constexpr std::uint64_t kTrimPages = 16;

}  // namespace

std::uint64_t Pool::Impl::trim(std::uint64_t target_held_bytes, TrimReason reason) {
  drain_patiently();
  {
    MutexLock lock(mu_);
    pause_to_complete_work(Patience::full);
  }
  // After completed work was looked for, so that one call gives back all that can be.
  MutexLock growth(growth_mu_);
  wait_for_maintenance();
  unmap_stale(~std::uint64_t{0});
  std::uint64_t released = free_complete_fallbacks();
  std::vector<RunId> leaving;
  {
    MutexLock lock(mu_);
    leaving = detach_empty(target_held_bytes, options_.reserve_bytes);
  }
  released += give_back(leaving);
  released += retry_stuck();
  MutexLock lock(mu_);
  recycler_->restart();
  count_trim(released, reason);
  return released;
}

void Pool::Impl::count_trim(std::uint64_t released, TrimReason reason) {
  ++counted_.trims_by_reason[static_cast<std::size_t>(reason)];
  counted_.trimmed_bytes_by_reason[static_cast<std::size_t>(reason)] += released;
  emit({.kind = SlowPathEventKind::trim, .bytes = released, .trim_reason = reason});
}

std::uint64_t Pool::Impl::trim_idle(std::uint64_t end_ns) {
  const auto due = [&] {
    MutexLock lock(mu_);
    return idle_pages_.due(pool_time(), options_.runtime.trim);
  };
  std::uint64_t released = 0;
  while (driver_.now_ns() < end_ns) {
    const std::uint64_t pages = std::min(due(), kTrimPages);
    const std::uint64_t bytes = pages > 0 ? give_back_pages(pages, TrimReason::idle) : 0;
    if (bytes == 0) break;
    MutexLock lock(mu_);
    idle_pages_.note_released(bytes / kPageBytes);
    released += bytes;
  }
  return released;
}

std::uint64_t Pool::Impl::missing_for_others() const {
  const std::uint64_t keep = options_.runtime.trim.keep_device_free_bytes;
  return keep - std::min(keep, counted_.device_free_bytes);
}

std::uint64_t Pool::Impl::trim_for_others(std::uint64_t end_ns) {
  const auto owed = [&] {
    MutexLock lock(mu_);
    return owes_others_ ? internal::divide_up(missing_for_others(), kPageBytes) : 0;
  };
  std::uint64_t released = 0;
  while (driver_.now_ns() < end_ns) {
    const std::uint64_t pages = std::min(owed(), kTrimPages);
    const std::uint64_t bytes = pages > 0 ? give_back_pages(pages, TrimReason::pressure) : 0;
    released += bytes;
    if (bytes > 0) continue;
    // Until the device's memory is read again: who has nothing to give need not look for it.
    MutexLock lock(mu_);
    owes_others_ = false;
    break;
  }
  return released;
}

std::uint64_t Pool::Impl::give_back_pages(std::uint64_t pages, TrimReason reason) {
  std::vector<RunId> leaving;
  {
    MutexLock lock(mu_);
    const std::uint64_t bytes = pages * kPageBytes;
    leaving = detach_empty(held_bytes() - std::min(held_bytes(), bytes), options_.reserve_bytes);
  }
  const std::uint64_t released = give_back(leaving);
  if (released == 0) return 0;
  MutexLock lock(mu_);
  recycler_->restart();
  count_trim(released, reason);
  return released;
}

std::vector<RunId> Pool::Impl::detach_empty(std::uint64_t target_held_bytes,
                                            std::uint64_t reserve) {
  internal::RunTable& runs = tiers_.runs();
  struct Empty {
    internal::Mapping mapping;
    RunId run;
  };
  // Only memory that nobody may still be using: free runs without tickets, whole mappings.
  std::vector<Empty> empty;
  for (RunId id = 1; id < runs.id_end(); ++id) {
    const internal::Run& run = runs[id];
    if (run.kind != internal::RunKind::free) continue;
    std::uint64_t page = internal::divide_up(run.start, kUnitsPerPage);
    while ((page + 1) * kUnitsPerPage <= run.end()) {
      const internal::Mapping& mapping = arena_->mapping_of(page);
      // One that is mapped elsewhere as well would not be gone.
      if (mapping.pages.first == page && mapping.pages.end() * kUnitsPerPage <= run.end() &&
          mapping.aliases == 0 && runs.are_idle(id, mapping.pages)) {
        empty.push_back({mapping, id});
      }
      page = mapping.pages.end();
    }
  }
  // From the end of the arena, so that what stays is packed at its start. The front of a run that
  // is cut keeps the run's id, so that the ids hold while going down.
  std::sort(empty.begin(), empty.end(), [](const Empty& a, const Empty& b) {
    return a.mapping.pages.first > b.mapping.pages.first;
  });
  std::vector<RunId> leaving;
  std::uint64_t held = held_bytes();
  // The reserve is the arena's alone: fallbacks go back when they are freed, stuck memory as soon
  // as the driver takes it.
  std::uint64_t arena = arena_->held_bytes() - arena_->stuck_bytes();
  for (const auto& [mapping, run] : empty) {
    if (held <= target_held_bytes) break;
    if (arena < reserve + mapping.bytes) continue;
    const auto units = static_cast<std::uint32_t>(mapping.pages.count * kUnitsPerPage);
    leaving.push_back(
        runs.take_at(run, mapping.pages.first * kUnitsPerPage, units, internal::RunKind::leaving));
    leaving_bytes_ += units * internal::kUnitBytes;
    held -= mapping.bytes;
    arena -= mapping.bytes;
  }
  return leaving;
}

void Pool::Impl::attach(const std::vector<RunId>& leaving) {
  for (const RunId id : leaving) {
    leaving_bytes_ -= tiers_.runs()[id].units * internal::kUnitBytes;
    tiers_.runs().put(id, TicketSet());
  }
}

std::uint64_t Pool::Impl::give_back(const std::vector<RunId>& leaving) {
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
    counted_.released_bytes_by_reason[static_cast<std::size_t>(ReleaseReason::trim)] +=
        mapping.bytes;
  }
  return released;
}

std::uint64_t Pool::Impl::retry_stuck() {
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
    if (still_stuck.empty()) {
      released += mapping.bytes;
      counted_.released_bytes_by_reason[static_cast<std::size_t>(ReleaseReason::rollback)] +=
          mapping.bytes;
    }
  }
  return released;
}

}  // namespace gpupool
