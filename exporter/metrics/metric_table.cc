#include "exporter/metrics/metric_table.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>

#include "exporter/metrics/identity.h"
#include "exporter/metrics/samples.h"
#include "gpupool/options.h"

namespace gpupool::internal {
namespace {

// Ways to read a row. `Field` is a member of StatsV1.

template <auto Field>
void number(const Snapshot& snapshot, Samples& out) {
  out.add(snapshot.stats.*Field);
}

constexpr double kNanosecondsPerSecond = 1e9;

template <auto Field>
void seconds(const Snapshot& snapshot, Samples& out) {
  out.add(static_cast<double>(snapshot.stats.*Field) / kNanosecondsPerSecond);
}

/// One sample for each value of `Enum`, which numbers the array.
template <auto Field, class Enum>
void each(const Snapshot& snapshot, Samples& out) {
  const auto& counts = snapshot.stats.*Field;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    out.add(counts[i], {to_string(static_cast<Enum>(i))});
  }
}

/// Of the counts by MissReason those from `first` to before `end`.
template <auto Field, std::size_t first, std::size_t end>
void reasons(const Snapshot& snapshot, Samples& out) {
  for (std::size_t i = first; i < end; ++i) {
    out.add((snapshot.stats.*Field)[i], {to_string(static_cast<MissReason>(i))});
  }
}

void build_info(const Snapshot&, Samples& out) {
  out.add(1.0, {library_version(), cuda_version()});
}

void process_info(const Snapshot& snapshot, Samples& out) {
  const JobIdentity& job = snapshot.job;
  out.add(1.0, {std::to_string(getpid()), label_text(job.rank), label_text(job.local_rank),
                label_text(job.world_size), job.job_id});
}

void device_info(const Snapshot& snapshot, Samples& out) {
  out.add(1.0, {snapshot.device.uuid, snapshot.device.pci_bus_id, snapshot.device.name});
}

void pool_info(const Snapshot& snapshot, Samples& out) {
  const StatsV1& stats = snapshot.stats;
  out.add(1.0, {to_string(static_cast<Backing>(stats.backing)),
                to_string(static_cast<Recycling>(stats.recycling)),
                to_string(static_cast<AliasReuse>(stats.alias_reuse)),
                to_string(static_cast<CrossStreamPolicy>(stats.policy))});
}

/// Unix time of a reading of the pool's clock.
double unix_seconds(const StatsV1& stats, std::uint64_t time_ns) {
  const std::uint64_t age_ns = time_ns - std::min(time_ns, stats.start_time_ns);
  return static_cast<double>(stats.start_unix_ns + age_ns) / kNanosecondsPerSecond;
}

void device_read_time(const Snapshot& snapshot, Samples& out) {
  out.add(unix_seconds(snapshot.stats, snapshot.stats.device_read_time_ns));
}

void allocated(const Snapshot& snapshot, Samples& out) {
  out.add(snapshot.stats.live_requested_bytes + snapshot.stats.waste_bytes);
}

constexpr std::size_t kSmallestLog2 = 12;  // free pieces are units of 4 KiB

/// The sizes shown depend on the limit alone, so that the number of series never changes.
void free_blocks(const Snapshot& snapshot, Samples& out) {
  const StatsV1& stats = snapshot.stats;
  const auto limit_log2 = static_cast<std::size_t>(std::bit_width(stats.limit_bytes | 1)) - 1;
  const std::size_t last = std::clamp(limit_log2, kSmallestLog2, kSizeLog2Count - 1);
  for (std::size_t i = kSmallestLog2; i <= last; ++i) {
    out.add(stats.free_runs_by_log2[i] + stats.free_buddies_by_log2[i],
            {std::to_string(std::uint64_t{1} << i)});
  }
}

template <auto Field>
void each_watched(const Snapshot& snapshot, Samples& out) {
  const auto count = std::min<std::size_t>(snapshot.stats.watched_count, kMaxWatchedSizes);
  for (std::size_t i = 0; i < count; ++i) {
    const WatchedSize& watched = snapshot.stats.watched[i];
    out.add(static_cast<double>(watched.*Field), {std::to_string(watched.bytes)});
  }
}

constexpr std::string_view kUntaggedName = "untagged";

void tag_bytes(const Snapshot& snapshot, Samples& out) {
  if (!snapshot.are_tags_shown) return out.add(snapshot.stats.live_requested_bytes, {"hidden"});
  std::uint64_t tagged = 0;
  const std::size_t count = std::min(snapshot.tags.size(), kMaxTags);
  for (std::size_t i = 0; i < count; ++i) {
    // Counted with what has no tag, so that no series is there twice.
    if (snapshot.tags[i] == kUntaggedName) continue;
    tagged += snapshot.stats.tag_live_bytes[i];
    out.add(snapshot.stats.tag_live_bytes[i], {snapshot.tags[i]});
  }
  // Not below 0 where the counters of another thread moved between two of these reads.
  const std::uint64_t live = snapshot.stats.live_requested_bytes;
  out.add(live - std::min(live, tagged), {kUntaggedName});
}

/// Of each rung how many requests it served last, and for how many it was tried without that.
void ladder(const Snapshot& snapshot, Samples& out) {
  for (std::size_t i = 0; i < kLadderRungCount; ++i) {
    const char* const rung = to_string(static_cast<LadderRung>(i));
    const std::uint64_t served = snapshot.stats.ladder_successes[i];
    out.add(served, {rung, "served"});
    out.add(snapshot.stats.ladder_tries[i] - served, {rung, "not_served"});
  }
}

void alert_thresholds(const Snapshot& snapshot, Samples& out) {
  out.add(snapshot.stats.threshold_fragmentation_ratio, {"GpupoolFragmentationHigh"});
  out.add(snapshot.stats.threshold_critical_fragmentation_ratio, {"GpupoolFragmentationCritical"});
  out.add(snapshot.stats.threshold_required_block_bytes, {"GpupoolLargestBlockBelowRequired"});
  out.add(snapshot.stats.threshold_fallback_ratio, {"GpupoolDriverFallbackRateHigh"});
}

// The pool's 28 duration buckets (64 ns * 2^i) joined to fewer: the bounds are bounds of the
// pool's, so that joining loses nothing but resolution.
template <std::size_t Bounds>
struct JoinedDurations {
  std::array<double, Bounds> bounds{};
  std::array<std::uint64_t, Bounds + 1> counts{};
  std::uint64_t sum_ns = 0;

  /// The first bound is the pool's bucket `first`, each further one `step` later.
  JoinedDurations(std::size_t first, std::size_t step) : first_(first), step_(step) {
    for (std::size_t i = 0; i < Bounds; ++i) {
      bounds[i] =
          static_cast<double>(std::uint64_t{64} << (first + i * step)) / kNanosecondsPerSecond;
    }
  }
  void add(const DurationHistogram& histogram) {
    sum_ns += histogram.sum_ns;
    for (std::size_t i = 0; i < kDurationBuckets; ++i) {
      const std::size_t above = i > first_ ? i - first_ : 0;
      counts[std::min((above + step_ - 1) / step_, Bounds)] += histogram.count[i];
    }
  }
  double sum_seconds() const { return static_cast<double>(sum_ns) / kNanosecondsPerSecond; }

 private:
  std::size_t first_;
  std::size_t step_;
};

/// Nine bounds, about 8 us to 0.5 s.
void driver_call_durations(const Snapshot& snapshot, Samples& out) {
  JoinedDurations<9> joined(7, 2);
  for (const DurationHistogram& operation : snapshot.stats.driver_duration) joined.add(operation);
  out.add_histogram(joined.bounds, joined.counts, joined.sum_seconds());
}

/// Four bounds, 128 ns to 0.5 ms: what a cache, a lock, a search and the driver take.
void allocation_durations(const Snapshot& snapshot, Samples& out) {
  for (std::size_t i = 0; i <= kTierCount; ++i) {
    JoinedDurations<4> joined(1, 4);
    joined.add(snapshot.stats.allocation_duration[i]);
    const char* const tier = i < kTierCount ? to_string(static_cast<Tier>(i)) : "miss";
    out.add_histogram(joined.bounds, joined.counts, joined.sum_seconds(), {tier});
  }
}

void allocation_sizes(const Snapshot& snapshot, Samples& out) {
  std::array<double, kSizeBuckets - 1> bounds{};
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    bounds[i] = static_cast<double>(std::uint64_t{512} << (2 * i));
  }
  out.add_histogram(bounds, snapshot.stats.requests_by_size,
                    static_cast<double>(snapshot.stats.requested_bytes_total));
}

constexpr auto kGauge = MetricKind::gauge;
constexpr auto kCounter = MetricKind::counter;
constexpr auto kHistogram = MetricKind::histogram;
constexpr LabelNames kNone{};
constexpr LabelNames kDevice{"device"};
constexpr LabelNames kPool{"device", "pool"};
constexpr LabelNames kReason{"device", "pool", "reason"};
constexpr LabelNames kOperation{"device", "pool", "operation"};
constexpr LabelNames kRequestBytes{"device", "pool", "request_bytes"};

// clang-format off: one family in two or three lines, so that the table can be read as one.
using S = StatsV1;
constexpr MetricRow kTable[] = {
    // Who and where.
    {"gpupool_build_info",
     kGauge,
     {"version", "cuda"},
     "Version of the library and of the CUDA toolkit it was built with; always 1.",
     build_info},
    {"gpupool_process_info",
     kGauge,
     {"pid", "rank", "local_rank", "world_size", "job_id"},
     "Place of this process in a distributed job, empty where unknown; always 1.",
     process_info},
    {"gpupool_device_info",
     kGauge,
     {"device", "uuid", "pci_bus_id", "name"},
     "Identity of the device; always 1. The uuid is the one that DCGM shows.",
     device_info},
    {"gpupool_pool_info",
     kGauge,
     {"device", "pool", "backing", "recycling", "alias_reuse", "policy"},
     "Settings of the pool that are in force now; always 1.",
     pool_info},
    {"gpupool_start_time_seconds", kGauge, kPool, "Unix time at which the pool was created.",
     seconds<&S::start_unix_ns>},

    // The device and the limits.
    {"gpupool_device_memory_total_bytes", kGauge, kDevice,
     "Memory of the device as the driver reports it.", number<&S::device_total_bytes>},
    {"gpupool_device_memory_free_bytes", kGauge, kDevice,
     "Memory of the device that no process holds, as maintenance last read it from the driver.",
     number<&S::device_free_bytes>},
    {"gpupool_device_memory_read_timestamp_seconds", kGauge, kDevice,
     "Unix time at which that was read: an old one means that the driver does not answer.",
     device_read_time},
    {"gpupool_limit_bytes", kGauge, kPool, "Most that the pool may hold, as configured.",
     number<&S::limit_bytes>},
    {"gpupool_limit_in_force_bytes", kGauge, kPool,
     "Most that the pool can hold now: the limit, or what it holds plus what the device has free.",
     number<&S::limit_in_force_bytes>},

    // Bytes: reserved = requested + waste + cached + pending free + free.
    {"gpupool_reserved_bytes", kGauge, kPool, "Memory held from the driver.",
     number<&S::held_bytes>},
    {"gpupool_allocated_bytes", kGauge, kPool, "Memory in live blocks: requested bytes and waste.",
     allocated},
    {"gpupool_requested_bytes", kGauge, kPool,
     "Memory that callers asked for and have not given back.", number<&S::live_requested_bytes>},
    {"gpupool_waste_bytes", kGauge, kPool, "Memory lost to rounding and slab tails.",
     number<&S::waste_bytes>},
    {"gpupool_cached_bytes", kGauge, kPool,
     "Freed memory in the caches in front of the shared tiers.", number<&S::cached_bytes>},
    {"gpupool_pending_free_bytes", kGauge, kPool,
     "Freed memory that waits for work of a stream to complete, or that private pools keep for "
     "graphs.",
     number<&S::pending_bytes>},
    {"gpupool_free_bytes", kGauge, kPool, "Memory held and free for any stream.",
     number<&S::free_bytes>},
    {"gpupool_pinned_bytes", kGauge, kPool,
     "Held by private pools, for graph captures, live or free: nobody else's until they are "
     "released.",
     number<&S::pinned_bytes>},
    {"gpupool_unpinned_pending_bytes", kGauge, kPool,
     "Of the pending free memory, what waits for work of a stream alone: no private pool keeps it.",
     number<&S::unpinned_pending_bytes>},
    {"gpupool_fallback_bytes", kGauge, kPool,
     "Memory in driver allocations outside the arena; part of reserved.",
     number<&S::fallback_bytes>},

    // Fragmentation.
    {"gpupool_largest_free_block_bytes", kGauge, kPool,
     "Largest request that would be served now without the driver.",
     number<&S::largest_free_block_bytes>},
    {"gpupool_largest_satisfiable_bytes", kGauge, kPool,
     "Largest request that could be served up to the limit in force, growth included.",
     number<&S::largest_satisfiable_bytes>},
    {"gpupool_required_block_bytes", kGauge, kPool,
     "Largest request that the job declared it will make; 0 where none was declared.",
     number<&S::threshold_required_block_bytes>},
    {"gpupool_fragmentation_ratio", kGauge, kPool,
     "Share of the available memory that one request could not get, from 0 (none) to 1.",
     number<&S::fragmentation_ratio>},
    {"gpupool_raw_fragmentation_ratio", kGauge, kPool,
     "Share of the mapped free memory outside the largest free block, from 0 (none) to 1.",
     number<&S::raw_fragmentation_ratio>},
    {"gpupool_free_blocks",
     kGauge,
     {"device", "pool", "block_bytes"},
     "Free blocks of at least block_bytes and less than twice that.",
     free_blocks},
    {"gpupool_unusable_free_bytes", kGauge, kRequestBytes,
     "Free memory in pieces too small for a request of a watched size: shorter runs, and what is"
     " free in chunks; up to 128 KiB without slots of its class and each chunk's largest free block"
     " where that has room for it or its slab.",
     each_watched<&WatchedSize::unusable_free_bytes>},
    {"gpupool_watched_size_fits", kGauge, kRequestBytes,
     "1 where a request of a watched size would be served now, 0 where it would fail.",
     each_watched<&WatchedSize::fits>},

    // Objects and peaks.
    {"gpupool_segments", kGauge, kPool, "Physical handles or driver segments held.",
     number<&S::segments>},
    {"gpupool_active_allocations", kGauge, kPool, "Live blocks.", number<&S::live_blocks>},
    {"gpupool_requested_peak_bytes", kGauge, kPool, "Highest requested bytes since the start.",
     number<&S::peak_requested_bytes>},
    {"gpupool_reserved_peak_bytes", kGauge, kPool, "Highest reserved bytes since the start.",
     number<&S::peak_held_bytes>},
    {"gpupool_requested_window_peak_bytes", kGauge, kPool,
     "Highest requested bytes of the last 60 seconds.", number<&S::window_peak_requested_bytes>},
    {"gpupool_reserved_window_peak_bytes", kGauge, kPool,
     "Highest reserved bytes of the last 60 seconds.", number<&S::window_peak_held_bytes>},

    // Requests: requests = hits + misses.
    {"gpupool_allocation_requests_total", kCounter, kPool,
     "Allocation requests of more than 0 bytes.", number<&S::requests>},
    {"gpupool_allocation_hits_total", kCounter, kPool,
     "Requests served without a driver call and without waiting.", number<&S::hits>},
    {"gpupool_allocation_misses_total", kCounter, kReason,
     "Requests that needed the driver, waited or failed, by the first reason that applies.",
     each<&S::misses_by_reason, MissReason>},
    {"gpupool_tier_hits_total",
     kCounter,
     {"device", "pool", "tier"},
     "Hits by the tier that served them.",
     each<&S::hits_by_tier, Tier>},
    {"gpupool_fallbacks_total", kCounter, kReason,
     "Requests served by a driver allocation outside the arena.",
     each<&S::fallbacks_by_reason, FallbackReason>},
    {"gpupool_out_of_memory_total",
     kCounter,
     {"device", "pool", "cause"},
     "Requests that failed for want of memory.",
     reasons<&S::failures_by_reason, 0, kMemoryReasonCount>},
    {"gpupool_refused_requests_total", kCounter, kReason,
     "Requests that failed for another reason than memory: not valid, or a call of the driver"
     " failed.",
     reasons<&S::failures_by_reason, kMemoryReasonCount, kMissReasonCount>},
    {"gpupool_ladder_rungs_total",
     kCounter,
     {"device", "pool", "rung", "outcome"},
     "Rungs tried for requests that were not served at once, each once a request: served where it "
     "was"
     " the last that gave a request what it needed, not_served else.",
     ladder},
    {"gpupool_out_of_memory_wait_seconds_total", kCounter, kPool,
     "Time that requests waited for pending work before they were served or failed.",
     seconds<&S::out_of_memory_wait_ns>},
    {"gpupool_frees_total", kCounter, kPool, "Blocks given back.", number<&S::frees>},
    {"gpupool_allocation_bytes_total", kCounter, kPool, "Bytes of all requests that were served.",
     number<&S::requested_bytes_total>},
    {"gpupool_allocation_size_bytes", kHistogram, kPool,
     "Sizes of requests; the sum is of those that were served.", allocation_sizes},
    {"gpupool_allocation_duration_seconds",
     kHistogram,
     {"device", "pool", "tier"},
     "Duration of requests by the tier that served them, of hits one in 1024; miss: all that were "
     "no hit.",
     allocation_durations},
    {"gpupool_block_splits_total", kCounter, kPool, "Free runs that were split for a request.",
     number<&S::splits>},
    {"gpupool_block_merges_total", kCounter, kPool, "Runs that were joined with a free neighbour.",
     number<&S::merges>},

    // The driver.
    {"gpupool_driver_calls_total", kCounter, kOperation,
     "Calls to the driver that take, move or give back memory.",
     each<&S::driver_calls_by_operation, DriverOperation>},
    {"gpupool_driver_call_failures_total", kCounter, kOperation, "Driver calls that failed.",
     each<&S::driver_failures_by_operation, DriverOperation>},
    {"gpupool_driver_call_duration_seconds", kHistogram, kPool,
     "Duration of driver calls, all operations.", driver_call_durations},
    {"gpupool_driver_seconds_total", kCounter, kPool, "Time in driver calls, any thread.",
     seconds<&S::driver_ns>},
    {"gpupool_driver_wait_seconds_total", kCounter, kPool,
     "Time that allocating threads waited for the driver.", seconds<&S::driver_wait_ns>},

    // Pages that move, and the addresses that it takes.
    {"gpupool_pages_mapped_total", kCounter, kPool, "Pages of 2 MiB got from the driver.",
     number<&S::pages_mapped>},
    {"gpupool_pages_unmapped_total", kCounter, kPool, "Pages of 2 MiB given back to the driver.",
     number<&S::pages_unmapped>},
    {"gpupool_pages_recycled_total", kCounter, kPool,
     "Empty pages of 2 MiB moved to where a request needed them.", number<&S::pages_recycled>},
    {"gpupool_recycle_seconds_total", kCounter, kPool,
     "Time in driver calls that moved pages, any thread.", seconds<&S::recycle_ns>},
    {"gpupool_slack_ratio", kGauge, kPool,
     "Pages that may be held beyond the most ever occupied, as a share of those, under eager.",
     number<&S::slack>},
    {"gpupool_recycling_wait_ratio", kGauge, kPool,
     "Share of the time that requests may wait for pages to move, under eager.",
     number<&S::recycling_wait>},
    {"gpupool_recycling_forgone_total", kCounter, kPool,
     "Times the pool grew under eager while that share was used up: new pages, if need be.",
     number<&S::recycling_forgone>},
    {"gpupool_stale_pages", kGauge, kPool,
     "Pages of 2 MiB of addresses that moved pages have left and that are still mapped.",
     number<&S::stale_pages>},
    {"gpupool_address_ranges", kGauge, kPool,
     "Ranges of addresses reserved, at most 4; 0 where the memory is of driver segments.",
     number<&S::address_ranges>},
    {"gpupool_address_range_bytes", kGauge, kPool, "Addresses reserved, in all ranges.",
     number<&S::address_range_bytes>},
    {"gpupool_address_range_used_bytes", kGauge, kPool,
     "Addresses up to the highest one that was ever mapped, through all ranges.",
     number<&S::address_range_used_bytes>},

    // Memory that goes back.
    {"gpupool_trims_total", kCounter, kReason,
     "Trims that gave anything back, by why they were made.",
     each<&S::trims_by_reason, TrimReason>},
    {"gpupool_trimmed_bytes_total", kCounter, kReason,
     "Bytes that the driver took back of empty memory, by why the trim was made.",
     each<&S::trimmed_bytes_by_reason, TrimReason>},
    {"gpupool_released_bytes_total", kCounter, kReason,
     "Bytes that the driver took back, all of them: by trims, of a growth that failed, of freed"
     " fallbacks, and at another try.",
     each<&S::released_bytes_by_reason, ReleaseReason>},
    {"gpupool_allocation_retries_total", kCounter, kPool,
     "Rounds of emptying caches and searching again.", number<&S::retries>},

    // Streams.
    {"gpupool_cross_stream_reuse_total",
     kCounter,
     {"device", "pool", "how"},
     "Runs and chunks that one stream freed and another got; by completed work, once for what "
     "became complete together.",
     each<&S::cross_stream_reuse, CrossStreamReuse>},
    {"gpupool_stream_waits_total", kCounter, kPool,
     "Waits that the pool gave one stream for another, under the policy wait.",
     number<&S::stream_waits>},
    {"gpupool_stream_mismatches_total", kCounter, kPool,
     "Streams that were not what they were announced to be: destroyed, or captured.",
     number<&S::stream_mismatches>},
    {"gpupool_epochs_closed_total", kCounter, kPool,
     "Epochs of streams that were closed with an event.", number<&S::epochs_closed>},
    {"gpupool_events_recorded_total", kCounter, kPool, "Events recorded on streams.",
     number<&S::events_recorded>},

    // The rest.
    {"gpupool_misuses_total",
     kCounter,
     {"device", "pool", "kind"},
     "Calls refused or corrected because the program was wrong.",
     each<&S::misuses, Misuse>},
    {"gpupool_tag_requested_bytes",
     kGauge,
     {"device", "pool", "tag"},
     "Live requested bytes by purpose.",
     tag_bytes},
    {"gpupool_alert_threshold",
     kGauge,
     {"device", "pool", "alert"},
     "Value at which an alert is meant to fire, in the unit of what it compares.",
     alert_thresholds},
    {"gpupool_guard_fills_total", kCounter, kPool,
     "Blocks that were filled on the device, for pool.debug.scrub or poison.",
     number<&S::guard_fills>},
    {"gpupool_guard_postponed_total", kCounter, kPool,
     "Frees at which scrub could not be done; from the first on blocks are zeroed when handed out,"
     " too.",
     number<&S::guard_postponed>},
    {"gpupool_maintain_steps_total", kCounter, kPool, "Steps of upkeep.",
     number<&S::maintain_steps>},
    {kReloadSuccessful, kGauge, kNone,
     "1 where the configuration was taken when it was last loaded, 0 where it was refused and the "
     "one"
     " before stays.",
     nullptr},
    {kReloadTime, kGauge, kNone, "Unix time at which a configuration was last taken.", nullptr},
    {kCollectDuration, kGauge, kNone, "Time that it took to collect this page.", nullptr},
    {kCollectErrors, kCounter, kNone, "Collections that failed.", nullptr},
    {kSeriesDropped,
     kCounter,
     {"reason"},
     "Series left out of pages: another source or pool had them (duplicate), or there were 2000, or"
     " eight pools (limit).",
     nullptr},
    {kTextfileEnd, kGauge, kNone,
     "Unix time from which a textfile says nothing of the present: the end of the process, or four "
     "periods after it was last written. In textfiles only.",
     nullptr},
};
// clang-format on

}  // namespace

std::span<const MetricRow> metric_table() { return kTable; }

const MetricRow& metric_row(std::string_view name) {
  const auto* row = std::ranges::find(kTable, name, &MetricRow::name);
  if (row == std::end(kTable)) std::abort();
  return *row;
}

}  // namespace gpupool::internal
