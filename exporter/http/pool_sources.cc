#include "exporter/http/pool_sources.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exporter/http/events_json.h"
#include "exporter/http/history_json.h"
#include "exporter/http/json_writer.h"
#include "exporter/http/settings_hash.h"
#include "exporter/http/snapshot_cache.h"
#include "exporter/http/snapshot_json.h"
#include "exporter/http/stats_json.h"
#include "exporter/http/would_fit_json.h"
#include "exporter/metrics/samples.h"

namespace gpupool::internal {
namespace {

Snapshot snapshot_of(const Pool& pool, const StatsV1& stats, const JobIdentity& job,
                     bool with_details) {
  return {.stats = stats,
          .device = pool.device(),
          .pool = pool.name(),
          .tags = pool.tag_names(),
          .are_tags_shown = with_details,
          .job = job};
}

/// Calls `use` with a snapshot of now.
template <class Use>
auto with_snapshot(const Pool& pool, const JobIdentity& job, bool with_details, Use use) {
  const StatsV1 stats = pool.stats();
  return use(snapshot_of(pool, stats, job, with_details));
}

std::string last_failure_json(const Pool& pool, bool with_details) {
  FailureReport report = pool.last_failure();
  if (!with_details) hide_details(report);
  return last_failure_document(report);
}

}  // namespace

std::string last_failure_document(const FailureReport& report) {
  // The report's own text is the pool's, which knows of no schemas: an object that is never empty.
  return R"({"schema":"gpupool.last_failure","version":1,)" + report.json().substr(1) + "\n";
}

void hide_details(FailureReport& report) {
  report.tag.clear();
  report.live_by_tag.clear();
  // A stream's handle is an address of the process.
  report.stream_handle.reset();
  for (PendingOfStream& pending : report.pending_streams) pending.stream_handle.reset();
  for (MissRecord& miss : report.last_misses) miss.stream_handle.reset();
}

Sources pool_sources(const Pool& pool, const JobIdentity& job, bool with_details,
                     const History* history, const EventLog* events) {
  const StatsV1 stats = pool.stats();
  const std::uint64_t unix_offset_ns = stats.start_unix_ns - stats.start_time_ns;
  Sources sources;
  sources.collect = [&pool, &job, with_details] {
    return with_snapshot(pool, job, with_details,
                         [](const Snapshot& snapshot) { return collect_families(snapshot); });
  };
  sources.stats_json = [&pool, &job, with_details] {
    return with_snapshot(pool, job, with_details, [&pool](const Snapshot& snapshot) {
      return stats_json(snapshot, settings_hash(pool, snapshot.stats));
    });
  };
  sources.would_fit = [&pool](const Query& query) { return would_fit_document(pool, query); };
  sources.last_failure_json = [&pool, with_details] {
    return last_failure_json(pool, with_details);
  };
  const auto cache = std::make_shared<SnapshotCache>(
      [&pool, with_details](std::uint64_t sequence) {
        return snapshot_json(pool, sequence, with_details);
      },
      std::to_string(stats.start_unix_ns));
  sources.snapshot = [cache](bool is_gzip_accepted) { return cache->get(is_gzip_accepted); };
  if (history != nullptr) {
    sources.history = [history](const Query& query) { return history_document(*history, query); };
  }
  if (events != nullptr) {
    sources.events = [events, unix_offset_ns, with_details](const Query& query) {
      return events_document(*events, query, unix_offset_ns, with_details);
    };
  }
  return sources;
}

std::vector<prometheus::MetricFamily> collect_pools(const std::vector<Pool*>& pools,
                                                    const JobIdentity& job, bool with_details) {
  std::vector<StatsV1> stats;
  stats.reserve(pools.size());  // the snapshots refer to them
  std::vector<Snapshot> snapshots;
  for (const Pool* pool : pools) {
    snapshots.push_back(snapshot_of(*pool, stats.emplace_back(pool->stats()), job, with_details));
  }
  return collect_families(snapshots);
}

std::string pools_json(const std::vector<Pool*>& pools) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", "gpupool.pools");
  json.field("version", 1);
  json.begin_array("pools");
  for (const Pool* pool : pools) {
    json.begin_object();
    json.field("pool", pool->name());
    json.field("device", pool->device().ordinal);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take() + "\n";
}

}  // namespace gpupool::internal
