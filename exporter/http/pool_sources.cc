#include "exporter/http/pool_sources.h"

#include <string>

#include "exporter/http/stats_json.h"
#include "exporter/metrics/samples.h"

namespace gpupool::internal {
namespace {

/// Calls `use` with a snapshot of now.
template <class Use>
auto with_snapshot(const Pool& pool, const JobIdentity& job, bool with_details, Use use) {
  const StatsV1 stats = pool.stats();
  return use(Snapshot{.stats = stats,
                      .device = pool.device(),
                      .pool = pool.name(),
                      .tags = pool.tag_names(),
                      .are_tags_shown = with_details,
                      .job = job});
}

std::string last_failure_json(const Pool& pool, bool with_details) {
  FailureReport report = pool.last_failure();
  if (!with_details) hide_details(report);
  return report.json() + "\n";
}

}  // namespace

void hide_details(FailureReport& report) {
  report.tag.clear();
  report.live_by_tag.clear();
}

Sources pool_sources(const Pool& pool, const JobIdentity& job, bool with_details) {
  const auto collect = [&pool, &job, with_details] {
    return with_snapshot(pool, job, with_details,
                         [](const Snapshot& snapshot) { return collect_families(snapshot); });
  };
  const auto stats = [&pool, &job, with_details] {
    return with_snapshot(pool, job, with_details, stats_json);
  };
  return {.collect = collect, .stats_json = stats, .last_failure_json = [&pool, with_details] {
            return last_failure_json(pool, with_details);
          }};
}

}  // namespace gpupool::internal
