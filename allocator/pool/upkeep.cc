// What keeps a pool in shape besides allocating: streams coming and going, caches given back,
// completed work noticed. Memory that returns to the driver: trimming.cc.
#include <algorithm>

#include "base/check.h"
#include "pool/own_allocation.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::MutexLock;

namespace {}  // namespace

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
  private_pools_.withdraw(*stream);
  end_caches(index, record);
  // Blocks that this stream also uses are freed later: their tickets are taken while it lives.
  for (auto& [pointer, uses] : extra_uses_) {
    for (ExtraUse& use : uses) {
      if (!use.at_free || use.ticket.stream != index) continue;
      use = {streams_.ticket(index), false};
    }
  }
  const auto last = streams_.release(stream);
  // What was kept for it.
  if (streams_.keeps_apart()) tiers_.refresh();
  return last;
}

bool Pool::Impl::note_dependency(StreamRef source, StreamRef destination) {
  // Within a capture nothing is ordered but its graph.
  if (place(source.state(), std::nullopt, {}).is_capturing) return false;
  if (place(destination.state(), std::nullopt, {}).is_capturing) return false;
  MutexLock events(events_mu_);
  std::optional<internal::EpochEnd> end;
  bool is_all = true;
  {
    MutexLock lock(mu_);
    if (!streams_.is_known(source.state()) || !streams_.is_known(destination.state())) return false;
    const StreamIndex index = source.state()->index();
    flush_caches(index);
    end = streams_.begin_close(index);
    is_all = end.has_value() || !streams_.needs_event(index);
    note_order(index, destination.state()->index());
  }
  // Its completion is then known as soon as may be; what the driver refuses is tried later.
  if (end.has_value()) record(*end);
  return is_all;
}

// Caches.

std::uint64_t Pool::Impl::drain_caches() {
  const std::uint64_t moved = drain_patiently();
  MutexLock lock(mu_);
  pause_to_complete_work(Patience::full);
  tiers_.runs().restart_use();
  for (const auto& depot : depots_) depot->demand().start(options_.cache_large_bytes);
  restart_aging();
  return moved;
}

// Maintenance.

MaintainReport Pool::Impl::maintain(std::chrono::nanoseconds budget) {
  MaintainReport report;
  bool is_device_reading_old = false;
  bool has_driver_work = false;
  std::uint64_t keep = 0;
  {
    MutexLock lock(mu_);
    const std::uint64_t now = pool_time();
    keep = options_.runtime.trim.keep_device_free_bytes;
    ++counted_.maintain_steps;
    tick_.set(tick_at(now));
    age_caches(now);
    // Where another thread is at it, that is as good.
    report.completed_epochs = pause_to_complete_work(Patience::none).value_or(0);
    const std::uint64_t live = fold_peaks();
    peak_window_.roll(now, {live, held_bytes()});
    rearm_all();
    idle_pages_.note(now, tiers_.runs().take_fewest_empty_pages(), options_.runtime.trim);
    is_device_reading_old = now - counted_.device_read_time_ns >= internal::kDeviceReadNs;
    has_driver_work = owes_others_ || fallbacks_.pending_bytes() > 0 || arena_->stuck_bytes() > 0 ||
                      arena_->stale_pages() > 0 || ahead_.has_value() || idle_pages_due() > 0 ||
                      forecast_.wanted_units(now) > 0 || missing_reserve_pages(keep) > 0 ||
                      private_pools_.released_count() > 0;
  }
  // Where another thread is in the driver, the next step reads; this one waits for nobody.
  if (is_device_reading_old && growth_mu_.try_lock()) {
    refresh_device_memory();
    growth_mu_.unlock();
    MutexLock lock(mu_);
    owes_others_ = missing_for_others() > 0;
    has_driver_work = has_driver_work || owes_others_;
  }
  if (!has_driver_work) return report;
  // All before is short; what may take as long as the driver likes is left for a next step.
  report.more_to_do = budget.count() <= 0;
  if (report.more_to_do) return report;
  const std::uint64_t end = driver_.now_ns() + static_cast<std::uint64_t>(budget.count());
  finish_releases(false);
  unmap_stale(static_cast<std::uint64_t>(budget.count()));
  if (driver_.now_ns() >= end || !growth_mu_.try_lock()) {
    report.more_to_do = true;
    return report;
  }
  const std::uint64_t start = driver_.now_ns();
  report.released_bytes += free_complete_fallbacks() + retry_stuck();
  report.released_bytes += trim_for_others(end) + trim_idle(end);
  back_ahead(end);
  refill_reserve(end, keep);
  report.more_to_do = driver_.now_ns() >= end;
  if (const std::uint64_t now_ns = driver_.now_ns(); now_ns > start) {
    MutexLock lock(mu_);
    growth_busy_until_ns_ = now_ns;
  }
  growth_mu_.unlock();
  return report;
}

std::uint64_t Pool::Impl::free_complete_fallbacks() {
  const internal::Driver::Releasing releasing(driver_, ReleaseReason::fallback);
  std::uint64_t released = 0;
  for (;;) {
    internal::Fallback fallback;
    {
      MutexLock lock(mu_);
      if (!fallbacks_.take_complete(streams_, fallback)) return released;
    }
    const auto gone = internal::give_back_own(driver_, fallback);
    MutexLock lock(mu_);
    if (!gone.ok()) {
      fallbacks_.put_back(fallback);
      return released;  // tried again at the next step
    }
    released += fallback.bytes;
    counted_.device_free_bytes += fallback.bytes;
  }
}

Result<void, Status> Pool::Impl::reconfigure(const RuntimeOptions& options) {
  PoolOptions changed;
  changed.backing = options_.backing;
  changed.peers = options_.peers;
  changed.runtime = options;
  if (auto fault = find_fault(changed); !fault.ok()) return fault;
  MutexLock lock(mu_);
  if (options.trim.idle_after_ns != options_.runtime.trim.idle_after_ns) idle_pages_.restart();
  options_.runtime = options;
  streams_.keep_apart(options.policy == CrossStreamPolicy::never);
  tiers_.refresh();
  tiers_.runs().track_pages(tracks_pages());
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
      guards_.request_in(tiers_.runs().largest_ready_units() * internal::kUnitBytes);
}

}  // namespace gpupool
