// All that a pool knows, in one place: options, the tiers, the caches, the books, and the locks.
//
// A hit takes no lock: it is the thread's own cache that serves it (hit.cc). Below, five locks,
// taken in this order:
//   record_mu_  one thread at a time begins or ends a recording.
//   release_mu_ one thread at a time waits for the device, so that released private pools may end.
//               Nobody else waits for it but who would be refused memory otherwise.
//   growth_mu_  one thread at a time calls the driver's memory management (backing, giving back,
//               fallbacks), so that a plan made under mu_ holds until it is committed under mu_
//               again.
//   events_mu_  one thread at a time closes epochs and looks at their events. An event takes
//               0.4 us, but up to milliseconds while another thread is in cudaFree; so a request
//               that may be served otherwise does not wait for this lock (Patience).
//   mu_         guards every structure that threads share; what all requests need that no cache
//               serves. No driver call is made under it.
//
// Thread safety: as each member says. The pool's operations (pool_impl.h) are all that touches it.
#ifndef GPUPOOL_POOL_POOL_STATE_H_
#define GPUPOOL_POOL_POOL_STATE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "arena/arena.h"
#include "backend/driver.h"
#include "base/hot_slot.h"
#include "base/mutex.h"
#include "base/relaxed.h"
#include "cache/depot.h"
#include "cache/thread_caches.h"
#include "gpupool/pool.h"
#include "gpupool/process.h"
#include "pool/fallbacks.h"
#include "pool/few_streams.h"
#include "pool/growth_forecast.h"
#include "pool/growth_planner.h"
#include "pool/guards.h"
#include "pool/idle_pages.h"
#include "pool/ladder.h"
#include "pool/peak_window.h"
#include "pool/private_pools.h"
#include "pool/recycler.h"
#include "pool/shared_tiers.h"
#include "pool/wait_budget.h"
#include "record/recorder.h"
#include "stream/epoch_events.h"
#include "stream/stream_table.h"

namespace gpupool::internal {

/// A use of a block by another stream than the one that will free it.
struct ExtraUse {
  Ticket ticket;
  bool at_free = false;  // the ticket is taken when the block is freed
  bool is_home = false;  // of the pseudo-stream that the block was served to
};

/// Whose users were inside, stopped by the scheduler, when the rest was emptied. The memory of
/// caches is never given back: one that was closed since may be another thread's, and empty it is
/// as good.
struct PassedOver {
  std::vector<ThreadCache*> caches;
  std::vector<StreamIndex> depots;
  bool is_empty() const noexcept { return caches.empty() && depots.empty(); }
};

class PoolState {
 protected:
  /// Not started yet: there is no arena.
  PoolState(Backend& backend, PoolOptions options);

  /// The clock's time, as all that is kept from one moment to another has it: never before one that
  /// was given earlier. A time read without the lock may be, by the time the lock is had, and what
  /// is reckoned from one to the other would wrap.
  std::uint64_t pool_time() GPUPOOL_REQUIRES(mu_) {
    return latest_ns_ = std::max(latest_ns_, clock_.now_ns());
  }

  /// Whether the driver must not be called any more. Note [Fork and exit].
  bool is_closed() noexcept { return process_epoch() != process_epoch_ && is_closed_by_now(); }
  /// Whether no lock may be taken either, which may be held by a thread that there is not.
  bool is_forked() noexcept {
    return is_closed() && process_state_since(process_epoch_) == ProcessState::forked;
  }
  bool is_closed_by_now() noexcept;

  // What a hit reads, written seldom.
  const std::uint64_t serial_;
  DeviceAddress range_base_ = 0;  // of the arena's first range; with segments there is none
  std::uint64_t range_granules_ = 0;
  const AddressMap* addresses_ = nullptr;
  std::uint32_t tag_count_ = 0;
  Relaxed<std::uint32_t> tick_;

  PoolOptions options_;
  const Clock& clock_;
  const std::uint64_t start_time_ns_;
  std::uint64_t start_unix_ns_ = 0;
  Driver driver_;
  Guards guards_;
  const bool keeps_none_at_hand_;                // no cache, so that every call takes the long way
  const std::uint32_t process_epoch_;            // at the start
  std::atomic<bool> has_watched_exit_{false};    // since a thread first used the pool
  std::atomic<std::uint64_t> refused_calls_{0};  // in a forked child

  Mutex record_mu_;
  Mutex release_mu_ GPUPOOL_ACQUIRED_AFTER(record_mu_);
  mutable Mutex growth_mu_ GPUPOOL_ACQUIRED_AFTER(release_mu_);
  mutable Mutex events_mu_ GPUPOOL_ACQUIRED_AFTER(growth_mu_);
  mutable Mutex mu_ GPUPOOL_ACQUIRED_AFTER(events_mu_);
  std::uint64_t latest_ns_ GPUPOOL_GUARDED_BY(mu_) = 0;  // pool_time()
  StreamTable streams_ GPUPOOL_GUARDED_BY(mu_);
  EpochEvents events_ GPUPOOL_GUARDED_BY(events_mu_);
  std::vector<EpochEnd> closing_ GPUPOOL_GUARDED_BY(events_mu_);  // kept for its memory
  // Guarded by mu_, but for its directory, which a hit reads.
  SharedTiers tiers_;
  ThreadCaches caches_ GPUPOOL_GUARDED_BY(mu_);
  PrivatePools private_pools_;  // guarded by mu_, but for is_in_use()
  ThreadRecord* orphan_ GPUPOOL_GUARDED_BY(mu_) = nullptr;
  bool is_orphan_used_ GPUPOOL_GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<Depot>> depots_ GPUPOOL_GUARDED_BY(mu_);  // by stream
  std::vector<ThreadCache*> claimed_ GPUPOOL_GUARDED_BY(mu_);
  PassedOver passed_over_ GPUPOOL_GUARDED_BY(mu_);        // by the last drain_all()
  std::uint64_t run_caches_ GPUPOOL_GUARDED_BY(mu_) = 0;  // that may hold runs
  Relaxed<std::uint64_t> run_share_bytes_;                // of each; written under mu_
  Fallbacks fallbacks_ GPUPOOL_GUARDED_BY(mu_);
  std::unordered_map<const void*, std::vector<ExtraUse>> extra_uses_ GPUPOOL_GUARDED_BY(mu_);
  // Its structures are guarded by mu_; its driver calls run under growth_mu_ alone.
  std::unique_ptr<Arena> arena_;
  std::optional<GrowthPlanner> planner_;
  std::optional<Recycler> recycler_ GPUPOOL_GUARDED_BY(mu_);
  Relaxed<std::uint64_t> limit_bytes_;     // written under growth_mu_ and mu_
  std::uint64_t most_capacity_bytes_ = 0;  // that there are addresses and tables for
  // When the limit was last set; more than that, where it is less, nothing adds to.
  std::uint64_t held_when_limited_ GPUPOOL_GUARDED_BY(mu_) = 0;
  WaitBudget move_waits_ GPUPOOL_GUARDED_BY(mu_);
  // Streams other than its own that have used a large block which is freed now.
  FewStreams users_of_freed_ GPUPOOL_GUARDED_BY(mu_);
  IdlePages idle_pages_ GPUPOOL_GUARDED_BY(mu_);
  bool owes_others_ GPUPOOL_GUARDED_BY(mu_) = false;  // what was missing at the last reading
  GrowthForecast forecast_ GPUPOOL_GUARDED_BY(mu_);
  std::optional<PageSupply> ahead_ GPUPOOL_GUARDED_BY(mu_);  // mapped, not free yet
  std::uint64_t ahead_until_ns_ GPUPOOL_GUARDED_BY(mu_) = 0;
  std::uint64_t growth_busy_until_ns_ GPUPOOL_GUARDED_BY(mu_) = 0;  // by maintenance

  // Of all depots; of runs what they may have. Changed without mu_.
  alignas(64) std::atomic<std::uint64_t> depot_run_quota_{0};
  std::atomic<std::uint64_t> depot_small_bytes_{0};

  // Books. The fields of `counted_` that are not named in report.cc are its own; the rest of
  // StatsV1 is filled when it is asked for.
  alignas(64) StatsV1 counted_ GPUPOOL_GUARDED_BY(mu_);
  FailureReport last_failure_ GPUPOOL_GUARDED_BY(mu_);
  MissHistory misses_ GPUPOOL_GUARDED_BY(mu_);
  int last_resorts_ GPUPOOL_GUARDED_BY(mu_) = 0;  // requests that are about to fail
  // Requests that were counted as served, whose block went back before the caller had it.
  std::uint64_t failed_when_served_ GPUPOOL_GUARDED_BY(mu_) = 0;
  PeakWindow peak_window_ GPUPOOL_GUARDED_BY(mu_);
  std::unique_ptr<Recorder> recorder_ GPUPOOL_GUARDED_BY(mu_);  // while there is one
  std::uint64_t shared_requests_ GPUPOOL_GUARDED_BY(mu_) = 0;
  std::uint64_t leaving_bytes_ GPUPOOL_GUARDED_BY(mu_) = 0;  // empty, on their way to the driver
  std::uint64_t next_aging_ns_ GPUPOOL_GUARDED_BY(mu_) = 0;
  std::uint64_t aging_start_ns_ GPUPOOL_GUARDED_BY(mu_) = 0;
  std::uint32_t first_tick_ GPUPOOL_GUARDED_BY(mu_) = 0;  // at that time
  bool is_started_ = false;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_POOL_STATE_H_
