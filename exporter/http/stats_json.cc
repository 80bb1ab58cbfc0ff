#include "exporter/http/stats_json.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "exporter/http/json_writer.h"
#include "gpupool/options.h"
#include "gpupool/stats.h"

namespace gpupool::internal {
namespace {

struct Number {
  std::string_view name;
  std::uint64_t StatsV1::*field;
};

constexpr Number kNumbers[] = {
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

struct Ratio {
  std::string_view name;
  double StatsV1::*field;
};

constexpr Ratio kRatios[] = {
    {"fragmentation_ratio", &StatsV1::fragmentation_ratio},
    {"raw_fragmentation_ratio", &StatsV1::raw_fragmentation_ratio},
    {"slack", &StatsV1::slack},
    {"recycling_wait", &StatsV1::recycling_wait},
    {"threshold_fragmentation_ratio", &StatsV1::threshold_fragmentation_ratio},
};

template <class Enum, std::size_t Count>
void write_by(JsonWriter& json, std::string_view name,
              const std::array<std::uint64_t, Count>& counts) {
  json.begin_object(name);
  for (std::size_t i = 0; i < Count; ++i) json.field(to_string(static_cast<Enum>(i)), counts[i]);
  json.end_object();
}

void write_list(JsonWriter& json, std::string_view name, std::span<const std::uint64_t> counts) {
  json.begin_array(name);
  for (const std::uint64_t count : counts) json.item(count);
  json.end_array();
}

void write_duration(JsonWriter& json, std::string_view name, const DurationHistogram& histogram) {
  json.begin_object(name);
  write_list(json, "count", histogram.count);
  json.field("sum_ns", histogram.sum_ns);
  json.end_object();
}

void write_durations(JsonWriter& json, const StatsV1& stats) {
  json.begin_object("driver_duration");
  for (std::size_t i = 0; i < kDriverOperationCount; ++i) {
    write_duration(json, to_string(static_cast<DriverOperation>(i)), stats.driver_duration[i]);
  }
  json.end_object();
  json.begin_object("allocation_duration");
  for (std::size_t i = 0; i < kTierCount; ++i) {
    write_duration(json, to_string(static_cast<Tier>(i)), stats.allocation_duration[i]);
  }
  write_duration(json, "miss", stats.allocation_duration[kTierCount]);
  json.end_object();
}

void write_watched(JsonWriter& json, const StatsV1& stats) {
  json.begin_array("watched");
  const auto count = std::min<std::size_t>(stats.watched_count, kMaxWatchedSizes);
  for (std::size_t i = 0; i < count; ++i) {
    json.begin_object();
    json.field("bytes", stats.watched[i].bytes);
    json.field("fits", stats.watched[i].fits);
    json.field("unusable_free_bytes", stats.watched[i].unusable_free_bytes);
    json.end_object();
  }
  json.end_array();
}

void write_tags(JsonWriter& json, const Snapshot& snapshot) {
  json.begin_object("tag_live_bytes");
  const std::size_t count = std::min(snapshot.tags.size(), kMaxTags);
  for (std::size_t i = 0; i < count; ++i) {
    json.field(snapshot.tags[i], snapshot.stats.tag_live_bytes[i]);
  }
  json.end_object();
}

void write_stats(JsonWriter& json, const Snapshot& snapshot) {
  const StatsV1& stats = snapshot.stats;
  json.field("size", stats.size);
  json.field("version", stats.version);
  for (const Number& number : kNumbers) json.field(number.name, stats.*number.field);
  for (const Ratio& ratio : kRatios) json.field(ratio.name, stats.*ratio.field);
  write_by<MissReason>(json, "misses_by_reason", stats.misses_by_reason);
  write_by<MissReason>(json, "failures_by_reason", stats.failures_by_reason);
  write_by<FallbackReason>(json, "fallbacks_by_reason", stats.fallbacks_by_reason);
  write_by<Tier>(json, "hits_by_tier", stats.hits_by_tier);
  write_by<DriverOperation>(json, "driver_calls_by_operation", stats.driver_calls_by_operation);
  write_by<DriverOperation>(json, "driver_failures_by_operation",
                            stats.driver_failures_by_operation);
  write_by<ReleaseReason>(json, "released_bytes_by_reason", stats.released_bytes_by_reason);
  write_by<TrimReason>(json, "trims_by_reason", stats.trims_by_reason);
  write_by<TrimReason>(json, "trimmed_bytes_by_reason", stats.trimmed_bytes_by_reason);
  write_by<CrossStreamReuse>(json, "cross_stream_reuse", stats.cross_stream_reuse);
  write_by<Misuse>(json, "misuses", stats.misuses);
  write_by<LadderRung>(json, "ladder_tries", stats.ladder_tries);
  write_by<LadderRung>(json, "ladder_successes", stats.ladder_successes);
  write_list(json, "requests_by_size", stats.requests_by_size);
  write_list(json, "free_runs_by_log2", stats.free_runs_by_log2);
  write_list(json, "free_run_bytes_by_log2", stats.free_run_bytes_by_log2);
  write_list(json, "free_buddies_by_log2", stats.free_buddies_by_log2);
  write_durations(json, stats);
  write_watched(json, stats);
  write_tags(json, snapshot);
  json.field("recycling", to_string(static_cast<Recycling>(stats.recycling)));
  json.field("alias_reuse", to_string(static_cast<AliasReuse>(stats.alias_reuse)));
  json.field("policy", to_string(static_cast<CrossStreamPolicy>(stats.policy)));
  json.field("backing", to_string(static_cast<Backing>(stats.backing)));
  json.field("has_asymmetric_claims", stats.has_asymmetric_claims != 0);
}

void write_device(JsonWriter& json, const DeviceInfo& device) {
  json.begin_object("device");
  json.field("ordinal", device.ordinal);
  json.field("name", device.name);
  json.field("uuid", device.uuid);
  json.field("pci_bus_id", device.pci_bus_id);
  json.field("driver", device.driver);
  json.field("simulated", device.simulated);
  json.end_object();
}

}  // namespace

std::string stats_json(const Snapshot& snapshot) {
  JsonWriter json;
  json.begin_object();
  json.field("pool", snapshot.pool);
  write_device(json, snapshot.device);
  json.begin_object("stats");
  write_stats(json, snapshot);
  json.end_object();
  json.end_object();
  return json.take() + "\n";
}

}  // namespace gpupool::internal
