// The page as its users know it: every family, label, bound and help, in the order in which it
// stands. What changes here changes dashboards and rules, and belongs into the changelog.
//
// GPUPOOL_UPDATE_GOLDEN=1 in the environment writes the files anew, next to this one.
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/metrics/openmetrics.h"
#include "exporter/metrics/samples.h"
#include "gpupool/stats_names.h"
#include "tests/exporter/openmetrics_parser.h"
#include "tests/exporter/promtool.h"

namespace gpupool::internal {
namespace {

/// Every number another one, so that none stands in another's place; histograms have some.
StatsV1 numbered_stats() {
  StatsV1 stats;
  std::uint64_t next = 1000;
  for (const StatsNumber& number : kStatsNumbers) stats.*number.field = ++next;
  for (const StatsRatio& ratio : kStatsRatios) {
    stats.*ratio.field = static_cast<double>(++next) / 8192;
  }
  const auto number_all = [&next](auto& counts) {
    for (auto& count : counts) count = ++next;
  };
  number_all(stats.misses_by_reason);
  number_all(stats.failures_by_reason);
  number_all(stats.fallbacks_by_reason);
  number_all(stats.hits_by_tier);
  number_all(stats.requests_by_size);
  number_all(stats.driver_calls_by_operation);
  number_all(stats.driver_failures_by_operation);
  number_all(stats.released_bytes_by_reason);
  number_all(stats.trims_by_reason);
  number_all(stats.trimmed_bytes_by_reason);
  number_all(stats.cross_stream_reuse);
  number_all(stats.misuses);
  number_all(stats.tag_live_bytes);
  number_all(stats.free_runs_by_log2);
  number_all(stats.free_buddies_by_log2);
  number_all(stats.ladder_successes);
  for (std::size_t i = 0; i < kLadderRungCount; ++i) {
    stats.ladder_tries[i] = stats.ladder_successes[i] + ++next;
  }
  for (DurationHistogram& histogram : stats.driver_duration) {
    number_all(histogram.count);
    histogram.sum_ns = ++next;
  }
  for (DurationHistogram& histogram : stats.allocation_duration) {
    number_all(histogram.count);
    histogram.sum_ns = ++next;
  }
  stats.live_requested_bytes = 1'000'000;  // more than the tags have
  stats.limit_bytes = std::uint64_t{1} << 30;
  stats.start_unix_ns = 1'700'000'000'000'000'000;
  stats.watched_count = 1;
  stats.watched[0] = {.bytes = std::uint64_t{1} << 30, .fits = true, .unusable_free_bytes = ++next};
  stats.recycling = stats.policy = stats.backing = stats.alias_reuse = 1;
  return stats;
}

std::vector<prometheus::MetricFamily> families() {
  const StatsV1 stats = numbered_stats();
  const DeviceInfo device{.ordinal = 2,
                          .name = "golden",
                          .uuid = "GPU-1",
                          .pci_bus_id = "0000:1b:00.0",
                          .driver = "none",
                          .simulated = true};
  const std::string pool = "golden";
  const std::vector<std::string> tags = {"weights", "gradients"};
  return collect_families({.stats = stats, .device = device, .pool = pool, .tags = tags});
}

/// Without what differs from process to process and from version to version.
std::string steady(const std::string& page) {
  std::string text = page;
  for (const std::string_view name : {"\ngpupool_build_info{", "\ngpupool_process_info{"}) {
    const std::size_t at = text.find(name) + name.size();
    text.erase(at, text.find('}', at) - at);
  }
  return text;
}

void compare(const std::string& page, const std::string& name) {
  const std::string path = std::string(GPUPOOL_SOURCE_DIR) + "/tests/exporter/" + name;
  if (std::getenv("GPUPOOL_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << page;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(page, golden.str()) << "GPUPOOL_UPDATE_GOLDEN=1 writes " << path << " anew";
}

TEST(GoldenPageTest, TextIsTheOneThatUsersKnow) {
  const std::string page = prometheus::TextSerializer().Serialize(families());
  EXPECT_EQ(testing_support::check_metrics(page), "");
  compare(steady(page), "golden_page.txt");
}

TEST(GoldenPageTest, OpenMetricsIsTheOneThatUsersKnow) {
  const std::string page = openmetrics_text(families());
  EXPECT_EQ(testing_support::parse_openmetrics(page).verdict(), "");
  compare(steady(page), "golden_page.openmetrics.txt");
}

}  // namespace
}  // namespace gpupool::internal
