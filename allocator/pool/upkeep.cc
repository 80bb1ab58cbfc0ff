// What keeps a pool in shape besides allocating: streams coming and going, caches given back,
// completed work noticed, memory returned to the driver.
#include <algorithm>

#include "base/check.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::kPageBytes;
using internal::kUnitsPerPage;
using internal::MutexLock;
using internal::RunId;

namespace {

/// How old the device's free memory, as reported, may get.
constexpr std::uint64_t kDeviceReadNs = 100'000'000;

}  // namespace

Result<StreamRef> Pool::Impl::adopt_stream(RawStream raw) {
  internal::StreamState* state = find_or_adopt(raw, nullptr);
  if (state == nullptr) return Error::backend_failure;
  return StreamRef(state);
}

bool Pool::Impl::release_stream(StreamRef stream) {
  std::optional<MisuseReport> misuse;
  {
    // Whoever holds it may be recording for this stream, which must exist until that is done.
    MutexLock events(events_mu_);
    std::optional<internal::EpochEnd> last;
    {
      MutexLock lock(mu_);
      if (!streams_.is_known(stream.state())) {
        misuse = count_misuse({.kind = Misuse::unknown_stream, .pointer = stream.state()});
      } else {
        last = let_go(stream.state(), find_own_record());
      }
    }
    // Nobody can later: what the driver refused would stay pending until the pool ends.
    if (last.has_value() && !record(*last)) record(*last);
  }
  if (misuse.has_value()) report_misuse(*misuse);
  return !misuse.has_value();
}

std::optional<internal::EpochEnd> Pool::Impl::let_go(internal::StreamState* stream,
                                                     const internal::ThreadRecord* record) {
  const StreamIndex index = stream->index();
  end_caches(index, record);
  // Blocks that this stream also uses are freed later: their tickets are taken while it lives.
  for (auto& [pointer, uses] : extra_uses_) {
    for (ExtraUse& use : uses) {
      if (!use.at_free || use.ticket.stream != index) continue;
      use = {streams_.ticket(index), false};
    }
  }
  return streams_.release(stream);
}

bool Pool::Impl::note_dependency(StreamRef source, StreamRef destination) {
  // An event after what the source freed: its completion is then known as soon as may be.
  MutexLock events(events_mu_);
  StreamIndex index = 0;
  {
    MutexLock lock(mu_);
    if (!streams_.is_known(source.state()) || !streams_.is_known(destination.state())) return false;
    index = source.state()->index();
  }
  return close_epoch(index);
}

// Caches.

std::uint64_t Pool::Impl::drain_caches() {
  const std::uint64_t moved = drain_patiently();
  MutexLock lock(mu_);
  pause_to_complete_work(Patience::full);
  tiers_.runs().restart_use();
  restart_aging();
  return moved;
}

// Maintenance.

MaintainReport Pool::Impl::maintain(std::chrono::nanoseconds budget) {
  const std::uint64_t now = clock_.now_ns();
  MaintainReport report;
  bool is_device_reading_old = false;
  bool has_driver_work = false;
  {
    MutexLock lock(mu_);
    ++counted_.maintain_steps;
    tick_.set(tick_at(now));
    age_caches(now);
    // Where another thread is at it, that is as good.
    report.completed_epochs = pause_to_complete_work(Patience::none).value_or(0);
    const std::uint64_t live = fold_peaks();
    peak_window_.roll(now, {live, held_bytes()});
    rearm_all();
    is_device_reading_old = now - counted_.device_read_time_ns >= kDeviceReadNs;
    has_driver_work = fallbacks_.pending_bytes() > 0 || arena_->stuck_bytes() > 0;
  }
  // Where another thread is in the driver, the next step reads; this one waits for nobody.
  if (is_device_reading_old && growth_mu_.try_lock()) {
    refresh_device_memory();
    growth_mu_.unlock();
  }
  if (!has_driver_work) return report;
  // All before is short; what may take as long as the driver likes is left for a next step.
  report.more_to_do = budget.count() <= 0;
  if (report.more_to_do) return report;
  MutexLock growth(growth_mu_);
  report.released_bytes = free_complete_fallbacks();
  report.released_bytes += retry_stuck();
  return report;
}

std::uint64_t Pool::Impl::free_complete_fallbacks() {
  std::uint64_t released = 0;
  for (;;) {
    internal::Fallback fallback;
    {
      MutexLock lock(mu_);
      if (!fallbacks_.take_complete(streams_, fallback)) return released;
    }
    const auto gone = driver_.deallocate(fallback.allocation, fallback.bytes);
    MutexLock lock(mu_);
    if (!gone.ok()) {
      fallbacks_.put_back(fallback);
      return released;  // tried again at the next step
    }
    released += fallback.bytes;
    counted_.device_free_bytes += fallback.bytes;
    counted_.released_bytes_by_reason[static_cast<std::size_t>(ReleaseReason::fallback)] +=
        fallback.bytes;
  }
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

// Trimming.

std::uint64_t Pool::Impl::trim(std::uint64_t target_held_bytes, TrimReason reason) {
  drain_patiently();
  {
    MutexLock lock(mu_);
    pause_to_complete_work(Patience::full);
  }
  // After completed work was looked for, so that one call gives back all that can be.
  MutexLock growth(growth_mu_);
  std::uint64_t released = free_complete_fallbacks();
  std::vector<RunId> leaving;
  {
    MutexLock lock(mu_);
    leaving = detach_empty(target_held_bytes);
  }
  released += give_back(leaving);
  released += retry_stuck();
  MutexLock lock(mu_);
  count_trim(released, reason);
  return released;
}

void Pool::Impl::count_trim(std::uint64_t released, TrimReason reason) {
  ++counted_.trims_by_reason[static_cast<std::size_t>(reason)];
  counted_.trimmed_bytes_by_reason[static_cast<std::size_t>(reason)] += released;
  emit({.kind = SlowPathEventKind::trim, .bytes = released, .trim_reason = reason});
}

std::vector<RunId> Pool::Impl::detach_empty(std::uint64_t target_held_bytes) {
  internal::RunTable& runs = tiers_.runs();
  struct Empty {
    internal::Mapping mapping;
    RunId run;
  };
  // Only memory that nobody may still be using: free runs without tickets, whole mappings.
  std::vector<Empty> empty;
  for (RunId id = 1; id < runs.id_end(); ++id) {
    if (!runs.is_idle(id)) continue;
    const internal::Run& run = runs[id];
    std::uint64_t page = internal::divide_up(run.start, kUnitsPerPage);
    while ((page + 1) * kUnitsPerPage <= run.end()) {
      const internal::Mapping& mapping = arena_->mapping_of(page);
      if (mapping.pages.first == page && mapping.pages.end() * kUnitsPerPage <= run.end()) {
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
    if (arena < options_.reserve_bytes + mapping.bytes) continue;
    const auto units = static_cast<std::uint32_t>(mapping.pages.count * kUnitsPerPage);
    leaving.push_back(
        runs.take_at(run, mapping.pages.first * kUnitsPerPage, units, internal::RunKind::leaving));
    leaving_bytes_ += units * internal::kUnitBytes;
    held -= mapping.bytes;
    arena -= mapping.bytes;
  }
  return leaving;
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

Result<void, Status> Pool::Impl::reconfigure(const RuntimeOptions& options) {
  if (auto fault = find_fault(options); !fault.ok()) return fault;
  MutexLock lock(mu_);
  options_.runtime = options;
  ++counted_.reconfigurations;
  emit({.kind = SlowPathEventKind::reconfigured});
  return {};
}

void Pool::Impl::reset_peaks() {
  MutexLock lock(mu_);
  const std::uint64_t live = fold_peaks();
  counted_.peak_requested_bytes = live;
  // How far a shard may rise unseen is a part of the peak, which is another one now.
  rearm_all();
  counted_.peak_held_bytes = held_bytes();
  counted_.largest_free_block_at_peak_held_bytes =
      tiers_.runs().largest_ready_units() * internal::kUnitBytes;
}

}  // namespace gpupool
