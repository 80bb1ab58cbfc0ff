#include "exporter/http/stats_json.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "exporter/discovery/process_id.h"
#include "exporter/http/json_writer.h"
#include "exporter/metrics/identity.h"
#include "gpupool/options.h"
#include "gpupool/stats.h"
#include "gpupool/stats_names.h"

namespace gpupool::internal {
namespace {

// The fields are those of StatsV1, which has a version of its own.
constexpr std::string_view kStatsSchema = "gpupool.stats";
constexpr int kStatsVersion = 1;

void write_counts(JsonWriter& json, const StatsCounts& by) {
  json.begin_object(by.name);
  for (std::size_t i = 0; i < by.counts.size(); ++i) json.field(by.label(i), by.counts[i]);
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
  const std::size_t count = snapshot.are_tags_shown ? std::min(snapshot.tags.size(), kMaxTags) : 0;
  for (std::size_t i = 0; i < count; ++i) {
    json.field(snapshot.tags[i], snapshot.stats.tag_live_bytes[i]);
  }
  json.end_object();
}

void write_stats(JsonWriter& json, const Snapshot& snapshot) {
  const StatsV1& stats = snapshot.stats;
  json.field("size", stats.size);
  json.field("version", stats.version);
  for (const StatsNumber& number : kStatsNumbers) json.field(number.name, stats.*number.field);
  for (const StatsRatio& ratio : kStatsRatios) json.field(ratio.name, stats.*ratio.field);
  for (const StatsCounts& by : stats_by_enum(stats)) write_counts(json, by);
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

void write_process(JsonWriter& json, const JobIdentity& job, std::string_view settings_hash) {
  const auto number = [&json](std::string_view name, const std::optional<std::uint32_t>& value) {
    if (value.has_value()) json.field(name, *value);
  };
  json.begin_object("process");
  json.field("host", host_name());
  json.field("pid", getpid());
  json.field("job_id", job.job_id);
  number("rank", job.rank);
  number("local_rank", job.local_rank);
  number("world_size", job.world_size);
  number("group_rank", job.group_rank);
  json.field("library", library_version());
  json.field("cuda", cuda_version());
  if (!settings_hash.empty()) json.field("settings_hash", settings_hash);
  json.end_object();
}

}  // namespace

std::string stats_json(const Snapshot& snapshot, std::string_view settings_hash) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", kStatsSchema);
  json.field("version", kStatsVersion);
  json.field("pool", snapshot.pool);
  write_process(json, snapshot.job, settings_hash);
  write_device(json, snapshot.device);
  json.begin_object("stats");
  write_stats(json, snapshot);
  json.end_object();
  json.end_object();
  return json.take() + "\n";
}

}  // namespace gpupool::internal
