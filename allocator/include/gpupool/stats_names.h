// Every number of a snapshot under its name, which is the one that the exporter's JSON, gpupool.h
// and gpupool.torch have: fields of StatsV1 that are counts, those that are ratios, and those that
// count by an enum.
//
// Thread safety: constants. Cost: of stats_by_enum() a few dozen words.
#ifndef GPUPOOL_STATS_NAMES_H_
#define GPUPOOL_STATS_NAMES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "gpupool/options.h"
#include "gpupool/stats.h"

namespace gpupool {

struct StatsNumber {
  std::string_view name;
  std::uint64_t StatsV1::*field;
};

inline constexpr StatsNumber kStatsNumbers[] = {
    {"time_ns", &StatsV1::time_ns},
    {"start_time_ns", &StatsV1::start_time_ns},
    {"start_unix_ns", &StatsV1::start_unix_ns},
    {"requests", &StatsV1::requests},
    {"hits", &StatsV1::hits},
    {"misses", &StatsV1::misses},
    {"failures", &StatsV1::failures},
    {"fallbacks", &StatsV1::fallbacks},
    {"frees", &StatsV1::frees},
    {"requested_bytes_total", &StatsV1::requested_bytes_total},
    {"driver_calls", &StatsV1::driver_calls},
    {"driver_failures", &StatsV1::driver_failures},
    {"driver_ns", &StatsV1::driver_ns},
    {"driver_wait_ns", &StatsV1::driver_wait_ns},
    {"held_bytes", &StatsV1::held_bytes},
    {"live_requested_bytes", &StatsV1::live_requested_bytes},
    {"waste_bytes", &StatsV1::waste_bytes},
    {"cached_bytes", &StatsV1::cached_bytes},
    {"pending_bytes", &StatsV1::pending_bytes},
    {"free_bytes", &StatsV1::free_bytes},
    {"fallback_bytes", &StatsV1::fallback_bytes},
    {"mapped_free_bytes", &StatsV1::mapped_free_bytes},
    {"pinned_bytes", &StatsV1::pinned_bytes},
    {"unpinned_pending_bytes", &StatsV1::unpinned_pending_bytes},
    {"metadata_bytes", &StatsV1::metadata_bytes},
    {"limit_bytes", &StatsV1::limit_bytes},
    {"limit_in_force_bytes", &StatsV1::limit_in_force_bytes},
    {"reserve_bytes", &StatsV1::reserve_bytes},
    {"device_total_bytes", &StatsV1::device_total_bytes},
    {"device_free_bytes", &StatsV1::device_free_bytes},
    {"device_read_time_ns", &StatsV1::device_read_time_ns},
    {"address_range_bytes", &StatsV1::address_range_bytes},
    {"address_range_used_bytes", &StatsV1::address_range_used_bytes},
    {"largest_free_block_bytes", &StatsV1::largest_free_block_bytes},
    {"largest_satisfiable_bytes", &StatsV1::largest_satisfiable_bytes},
    {"watched_count", &StatsV1::watched_count},
    {"peak_requested_bytes", &StatsV1::peak_requested_bytes},
    {"peak_held_bytes", &StatsV1::peak_held_bytes},
    {"largest_free_block_at_peak_held_bytes", &StatsV1::largest_free_block_at_peak_held_bytes},
    {"window_peak_requested_bytes", &StatsV1::window_peak_requested_bytes},
    {"window_peak_held_bytes", &StatsV1::window_peak_held_bytes},
    {"live_blocks", &StatsV1::live_blocks},
    {"runs", &StatsV1::runs},
    {"chunks", &StatsV1::chunks},
    {"slabs", &StatsV1::slabs},
    {"segments", &StatsV1::segments},
    {"streams", &StatsV1::streams},
    {"thread_caches", &StatsV1::thread_caches},
    {"pages_mapped", &StatsV1::pages_mapped},
    {"pages_unmapped", &StatsV1::pages_unmapped},
    {"pages_recycled", &StatsV1::pages_recycled},
    {"recycle_ns", &StatsV1::recycle_ns},
    {"stale_pages", &StatsV1::stale_pages},
    {"address_ranges", &StatsV1::address_ranges},
    {"splits", &StatsV1::splits},
    {"merges", &StatsV1::merges},
    {"retries", &StatsV1::retries},
    {"maintain_steps", &StatsV1::maintain_steps},
    {"epochs_closed", &StatsV1::epochs_closed},
    {"events_recorded", &StatsV1::events_recorded},
    {"stream_waits", &StatsV1::stream_waits},
    {"stream_mismatches", &StatsV1::stream_mismatches},
    {"tag_count", &StatsV1::tag_count},
    {"threshold_required_block_bytes", &StatsV1::threshold_required_block_bytes},
    {"reconfigurations", &StatsV1::reconfigurations},
    {"out_of_memory_wait_ns", &StatsV1::out_of_memory_wait_ns},
    {"wait_option_ns", &StatsV1::wait_option_ns},
    {"guard_fills", &StatsV1::guard_fills},
    {"guard_postponed", &StatsV1::guard_postponed},
    {"recycling_forgone", &StatsV1::recycling_forgone},
    {"closed_calls", &StatsV1::closed_calls},
};

struct StatsRatio {
  std::string_view name;
  double StatsV1::*field;
};

inline constexpr StatsRatio kStatsRatios[] = {
    {"fragmentation_ratio", &StatsV1::fragmentation_ratio},
    {"raw_fragmentation_ratio", &StatsV1::raw_fragmentation_ratio},
    {"slack", &StatsV1::slack},
    {"recycling_wait", &StatsV1::recycling_wait},
    {"threshold_fragmentation_ratio", &StatsV1::threshold_fragmentation_ratio},
    {"threshold_critical_fragmentation_ratio", &StatsV1::threshold_critical_fragmentation_ratio},
    {"threshold_fallback_ratio", &StatsV1::threshold_fallback_ratio},
};

/// Counts by an enum; `label` names the enumerator of an index.
struct StatsCounts {
  std::string_view name;
  std::span<const std::uint64_t> counts;  // of the snapshot, which must outlive it
  const char* (*label)(std::size_t index);
};

template <class Enum>
const char* stats_label(std::size_t index) {
  return to_string(static_cast<Enum>(index));
}

inline std::array<StatsCounts, 13> stats_by_enum(const StatsV1& stats) {
  return {{
      {"misses_by_reason", stats.misses_by_reason, stats_label<MissReason>},
      {"failures_by_reason", stats.failures_by_reason, stats_label<MissReason>},
      {"fallbacks_by_reason", stats.fallbacks_by_reason, stats_label<FallbackReason>},
      {"hits_by_tier", stats.hits_by_tier, stats_label<Tier>},
      {"driver_calls_by_operation", stats.driver_calls_by_operation, stats_label<DriverOperation>},
      {"driver_failures_by_operation", stats.driver_failures_by_operation,
       stats_label<DriverOperation>},
      {"released_bytes_by_reason", stats.released_bytes_by_reason, stats_label<ReleaseReason>},
      {"trims_by_reason", stats.trims_by_reason, stats_label<TrimReason>},
      {"trimmed_bytes_by_reason", stats.trimmed_bytes_by_reason, stats_label<TrimReason>},
      {"cross_stream_reuse", stats.cross_stream_reuse, stats_label<CrossStreamReuse>},
      {"misuses", stats.misuses, stats_label<Misuse>},
      {"ladder_tries", stats.ladder_tries, stats_label<LadderRung>},
      {"ladder_successes", stats.ladder_successes, stats_label<LadderRung>},
  }};
}

}  // namespace gpupool

#endif  // GPUPOOL_STATS_NAMES_H_
