// The metric table keeps its own rules, and what it makes of a snapshot is what Prometheus accepts.
#include "exporter/metrics/metric_table.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <locale>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "exporter/http/stats_json.h"
#include "exporter/metrics/openmetrics.h"
#include "exporter/metrics/samples.h"
#include "gpupool/options.h"
#include "tests/exporter/openmetrics_parser.h"
#include "tests/exporter/promtool.h"

namespace gpupool::internal {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using testing_support::check_metrics;
using testing_support::parse_openmetrics;

bool ends_with_any(std::string_view text, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return text.ends_with(end); });
}

TEST(MetricTableTest, NamesFollowTheConventions) {
  std::set<std::string_view> names;
  for (const MetricRow& row : metric_table()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(names.insert(row.name).second) << "twice";
    EXPECT_TRUE(row.name.starts_with("gpupool_"));
    EXPECT_TRUE(std::ranges::all_of(row.name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    }));
    EXPECT_EQ(row.name.find("__"), std::string_view::npos);
    const bool is_counter_name = row.name.ends_with("_total");
    switch (row.kind) {
      case MetricKind::counter: EXPECT_TRUE(is_counter_name); break;
      case MetricKind::gauge:
        EXPECT_FALSE(is_counter_name);
        EXPECT_FALSE(ends_with_any(row.name, {"_count", "_sum", "_bucket"}));
        break;
      case MetricKind::histogram:
        EXPECT_TRUE(ends_with_any(row.name, {"_seconds", "_bytes"}));
        break;
    }
    // A unit stands last, or last before _total.
    const std::string_view stem =
        is_counter_name ? row.name.substr(0, row.name.size() - 6) : row.name;
    for (const char* unit : {"_bytes", "_seconds", "_ratio", "_info"}) {
      const std::size_t at = stem.find(unit);
      EXPECT_TRUE(at == std::string_view::npos || stem.ends_with(unit)) << unit;
    }
    const std::string words = std::string(stem) + "_";
    for (const char* foreign : {"_ms_", "_ns_", "_us_", "_mib_", "_kb_", "_percent_", "_milli"}) {
      EXPECT_EQ(words.find(foreign), std::string::npos) << foreign;
    }
  }
}

TEST(MetricTableTest, NamesStayDifferentWithoutTheirSuffixes) {
  // OpenMetrics declares counters without _total and infos without _info.
  std::set<std::string_view> stems;
  for (const MetricRow& row : metric_table()) {
    std::string_view stem = row.name;
    for (const std::string_view suffix : {"_total", "_info"}) {
      if (stem.ends_with(suffix)) stem.remove_suffix(suffix.size());
    }
    EXPECT_TRUE(stems.insert(stem).second) << row.name;
  }
}

TEST(MetricTableTest, HelpIsOneSentenceInOneLine) {
  for (const MetricRow& row : metric_table()) {
    SCOPED_TRACE(row.name);
    EXPECT_GE(row.help.size(), 10u);
    EXPECT_EQ(row.help.find_first_of("\n\r\\"), std::string_view::npos);
    EXPECT_TRUE(row.help.ends_with('.'));
  }
}

TEST(MetricTableTest, LabelsComeFromClosedSets) {
  const std::set<std::string_view> allowed = {
      "device", "pool", "reason", "operation",   "tier",          "cause", "how",
      "kind",   "tag",  "alert",  "block_bytes", "request_bytes", "rung",  "outcome"};
  for (const MetricRow& row : metric_table()) {
    if (row.name.ends_with("_info")) continue;
    std::set<std::string_view> seen;
    for (const std::string_view label : row.labels.all()) {
      EXPECT_TRUE(allowed.contains(label)) << row.name << " " << label;
      EXPECT_TRUE(seen.insert(label).second) << row.name << " " << label;
    }
    // What is of a pool says which, so that two pools of a process do not collide.
    EXPECT_TRUE(seen.contains("device") || !seen.contains("pool")) << row.name;
  }
}

/// A snapshot that the tests may change before they read it.
struct Fixture {
  StatsV1 stats;
  DeviceInfo device{.ordinal = 3,
                    .name = "simulated",
                    .uuid = "SIM-1",
                    .pci_bus_id = "0000:1b:00.0",
                    .driver = "simulated",
                    .simulated = true};
  std::string pool = "default";
  std::vector<std::string> tags = {"weights", "gradients"};

  Fixture() {
    stats.limit_bytes = std::uint64_t{140} << 30;
    stats.watched_count = 1;
    stats.watched[0].bytes = std::uint64_t{1} << 30;
    stats.tag_count = tags.size();
  }
  Snapshot snapshot() const {
    return {.stats = stats, .device = device, .pool = pool, .tags = tags};
  }
  std::vector<MetricFamily> collect() const { return collect_families(snapshot()); }
};

const MetricFamily& find_family(const std::vector<MetricFamily>& families, std::string_view name) {
  const auto family = std::ranges::find(families, name, &MetricFamily::name);
  if (family == families.end()) std::abort();
  return *family;
}

/// Values by the last label, or under "" where the family has only device and pool.
std::map<std::string, double> values(const std::vector<MetricFamily>& families,
                                     std::string_view name) {
  std::map<std::string, double> result;
  for (const ClientMetric& metric : find_family(families, name).metric) {
    const bool is_plain = metric.label.empty() || metric.label.back().name == "pool" ||
                          metric.label.back().name == "device";
    result[is_plain ? "" : metric.label.back().value] = metric.gauge.value + metric.counter.value;
  }
  return result;
}

TEST(PoolFamiliesTest, AnUnusedPoolExposesEveryFamilyWithZeros) {
  const auto families = Fixture().collect();
  std::size_t series = 0;
  for (const MetricRow& row : metric_table()) {
    if (row.fill == nullptr) continue;  // the HTTP server adds these
    SCOPED_TRACE(row.name);
    const MetricFamily& family = find_family(families, row.name);
    ASSERT_FALSE(family.metric.empty());
    for (const ClientMetric& metric : family.metric) {
      ASSERT_EQ(metric.label.size(), row.labels.all().size());
      for (std::size_t i = 0; i < metric.label.size(); ++i) {
        EXPECT_EQ(metric.label[i].name, row.labels.all()[i]);
      }
      EXPECT_EQ(metric.counter.value, 0);
      series += row.kind == MetricKind::histogram ? metric.histogram.bucket.size() + 3 : 1;
    }
  }
  EXPECT_GE(series, 120u);
  EXPECT_LE(series, 240u);  // 35 of them are latencies by tier
  EXPECT_EQ(find_family(families, "gpupool_ladder_rungs_total").metric.size(),
            2 * kLadderRungCount);
  EXPECT_EQ(values(families, "gpupool_allocation_misses_total").size(), kMissReasonCount);
  EXPECT_EQ(values(families, "gpupool_out_of_memory_total").size(), kMemoryReasonCount);
  EXPECT_EQ(values(families, "gpupool_refused_requests_total").size(),
            kMissReasonCount - kMemoryReasonCount);
  EXPECT_EQ(values(families, "gpupool_fallbacks_total").size(), kFallbackReasonCount);
  EXPECT_EQ(values(families, "gpupool_driver_calls_total").size(), kDriverOperationCount);
}

TEST(PoolFamiliesTest, TheNumberOfSeriesDoesNotDependOnWhatThePoolDoes) {
  Fixture fixture;
  const auto count = [&] {
    std::size_t series = 0;
    for (const MetricFamily& family : fixture.collect()) series += family.metric.size();
    return series;
  };
  const std::size_t idle = count();
  fixture.stats.requests = fixture.stats.misses = 1'000'000;
  for (auto& runs : fixture.stats.free_runs_by_log2) runs = 5;
  for (auto& misuses : fixture.stats.misuses) misuses = 1;
  fixture.stats.held_bytes = fixture.stats.limit_bytes;
  EXPECT_EQ(count(), idle);
}

TEST(PoolFamiliesTest, ValuesAreWhatThePoolCounted) {
  Fixture fixture;
  StatsV1& stats = fixture.stats;
  stats.held_bytes = (std::uint64_t{1} << 53) - 1;
  stats.live_requested_bytes = 1000;
  stats.waste_bytes = 24;
  stats.tag_live_bytes[0] = 600;
  stats.tag_live_bytes[1] = 300;
  stats.misses_by_reason[static_cast<std::size_t>(MissReason::fragmented)] = 7;
  stats.failures_by_reason[static_cast<std::size_t>(MissReason::budget)] = 2;
  stats.failures_by_reason[static_cast<std::size_t>(MissReason::invalid)] = 5;
  stats.failures_by_reason[static_cast<std::size_t>(MissReason::driver)] = 6;
  stats.driver_ns = 1'500'000'000;
  stats.free_runs_by_log2[12] = 3;
  stats.free_buddies_by_log2[12] = 4;
  stats.watched[0].fits = true;
  stats.threshold_fragmentation_ratio = 0.5;
  stats.threshold_critical_fragmentation_ratio = 0.75;
  stats.threshold_fallback_ratio = 0.125;
  stats.threshold_required_block_bytes = 4096;
  stats.pages_mapped = 900;
  stats.pages_unmapped = 300;
  stats.pages_recycled = 250;
  stats.recycle_ns = 10'000'000;
  stats.driver_wait_ns = 7'000'000;
  stats.released_bytes_by_reason[static_cast<std::size_t>(ReleaseReason::trim)] = 600;
  stats.trims_by_reason[static_cast<std::size_t>(TrimReason::pressure)] = 3;
  stats.stale_pages = 17;
  stats.address_ranges = 2;
  stats.address_range_bytes = std::uint64_t{4} << 40;
  stats.address_range_used_bytes = std::uint64_t{3} << 40;
  stats.slack = 0.05;
  const auto families = fixture.collect();
  EXPECT_EQ(values(families, "gpupool_reserved_bytes")[""], 9007199254740991.0);
  EXPECT_EQ(values(families, "gpupool_allocated_bytes")[""], 1024);
  EXPECT_EQ(
      values(families, "gpupool_tag_requested_bytes"),
      (std::map<std::string, double>{{"weights", 600}, {"gradients", 300}, {"untagged", 100}}));
  EXPECT_EQ(values(families, "gpupool_allocation_misses_total")["fragmented"], 7);
  EXPECT_EQ(values(families, "gpupool_out_of_memory_total")["budget"], 2);
  // An argument that is not valid is no want of memory.
  EXPECT_EQ(values(families, "gpupool_out_of_memory_total").count("invalid"), 0u);
  EXPECT_EQ(values(families, "gpupool_refused_requests_total")["invalid"], 5);
  EXPECT_EQ(values(families, "gpupool_refused_requests_total")["driver"], 6);
  EXPECT_EQ(values(families, "gpupool_driver_seconds_total")[""], 1.5);
  EXPECT_EQ(values(families, "gpupool_free_blocks")["4096"], 7);
  EXPECT_EQ(values(families, "gpupool_free_blocks").size(), 26u);  // 4 KiB to 128 GiB
  EXPECT_EQ(values(families, "gpupool_watched_size_fits")["1073741824"], 1);
  EXPECT_EQ(values(families, "gpupool_alert_threshold"),
            (std::map<std::string, double>{{"GpupoolFragmentationHigh", 0.5},
                                           {"GpupoolFragmentationCritical", 0.75},
                                           {"GpupoolDriverFallbackRateHigh", 0.125},
                                           {"GpupoolLargestBlockBelowRequired", 4096}}));
  EXPECT_EQ(values(families, "gpupool_pages_mapped_total")[""], 900);
  EXPECT_EQ(values(families, "gpupool_pages_unmapped_total")[""], 300);
  EXPECT_EQ(values(families, "gpupool_pages_recycled_total")[""], 250);
  EXPECT_EQ(values(families, "gpupool_recycle_seconds_total")[""], 0.01);
  EXPECT_EQ(values(families, "gpupool_driver_wait_seconds_total")[""], 0.007);
  EXPECT_EQ(values(families, "gpupool_released_bytes_total")["trim"], 600);
  EXPECT_EQ(values(families, "gpupool_trims_total")["pressure"], 3);
  EXPECT_EQ(values(families, "gpupool_stale_pages")[""], 17);
  EXPECT_EQ(values(families, "gpupool_address_ranges")[""], 2);
  EXPECT_EQ(values(families, "gpupool_address_range_bytes")[""], 4398046511104.0);
  EXPECT_EQ(values(families, "gpupool_address_range_used_bytes")[""], 3298534883328.0);
  EXPECT_EQ(values(families, "gpupool_slack_ratio")[""], 0.05);
  const std::string text = prometheus::TextSerializer().Serialize(families);
  EXPECT_NE(text.find("gpupool_reserved_bytes{device=\"3\",pool=\"default\"} 9007199254740991\n"),
            std::string::npos);
}

TEST(PoolFamiliesTest, SettingsInForceAreLabelsOfOneSeries) {
  Fixture fixture;
  fixture.stats.recycling = static_cast<std::uint8_t>(Recycling::pressure);
  fixture.stats.alias_reuse = static_cast<std::uint8_t>(AliasReuse::same_stream);
  fixture.stats.policy = static_cast<std::uint8_t>(CrossStreamPolicy::when_done);
  fixture.stats.backing = static_cast<std::uint8_t>(Backing::cudamalloc);
  const std::string text = prometheus::TextSerializer().Serialize(fixture.collect());
  EXPECT_NE(text.find("gpupool_pool_info{device=\"3\",pool=\"default\",backing=\"cudamalloc\","
                      "recycling=\"pressure\",alias_reuse=\"same_stream\","
                      "policy=\"when_done\"} 1\n"),
            std::string::npos)
      << text;
}

TEST(PoolFamiliesTest, DriverCallsAreAllInTheJoinedHistogram) {
  Fixture fixture;
  std::uint64_t total = 0;
  for (std::size_t operation = 0; operation < kDriverOperationCount; ++operation) {
    DurationHistogram& histogram = fixture.stats.driver_duration[operation];
    for (std::size_t i = 0; i < kDurationBuckets; ++i) {
      histogram.count[i] = i + operation;
      total += i + operation;
    }
    histogram.sum_ns = 1'000'000'000;
  }
  const auto families = fixture.collect();
  const auto& family = find_family(families, "gpupool_driver_call_duration_seconds");
  ASSERT_EQ(family.metric.size(), 1u);
  const auto& joined = family.metric[0].histogram;
  EXPECT_EQ(joined.sample_count, total);
  EXPECT_DOUBLE_EQ(joined.sample_sum, 7.0);
  // Each bound is one of the pool's, and has below it what the pool has below it.
  for (const auto& bucket : joined.bucket) {
    std::uint64_t below = 0;
    double bound = 64e-9;
    for (std::size_t i = 0; i < kDurationBuckets; ++i, bound *= 2) {
      if (bound > bucket.upper_bound * 1.001) break;
      for (const auto& histogram : fixture.stats.driver_duration) below += histogram.count[i];
    }
    EXPECT_EQ(bucket.cumulative_count, below) << bucket.upper_bound;
  }
  EXPECT_NEAR(joined.bucket.front().upper_bound, 8.192e-6, 1e-12);
  EXPECT_NEAR(joined.bucket.back().upper_bound, 0.536870912, 1e-9);
}

TEST(PoolFamiliesTest, AllocationsAreTimedByTier) {
  Fixture fixture;
  for (std::size_t tier = 0; tier <= kTierCount; ++tier) {
    DurationHistogram& histogram = fixture.stats.allocation_duration[tier];
    for (std::size_t i = 0; i < kDurationBuckets; ++i) histogram.count[i] = tier + 1;
    histogram.sum_ns = 500'000'000 * (tier + 1);
  }
  const auto families = fixture.collect();
  const auto& family = find_family(families, "gpupool_allocation_duration_seconds");
  ASSERT_EQ(family.metric.size(), kTierCount + 1);
  const std::vector<std::string> tiers = {"cache", "size_class", "buddy", "run", "miss"};
  const std::uint64_t buckets_below[] = {2, 6, 10, 14};  // of the pool's, 64 ns * 2^i
  const double bounds[] = {128e-9, 2048e-9, 32768e-9, 524288e-9};
  for (std::size_t tier = 0; tier <= kTierCount; ++tier) {
    EXPECT_EQ(family.metric[tier].label.back().value, tiers[tier]);
    const auto& histogram = family.metric[tier].histogram;
    EXPECT_EQ(histogram.sample_count, kDurationBuckets * (tier + 1));
    EXPECT_DOUBLE_EQ(histogram.sample_sum, 0.5 * static_cast<double>(tier + 1));
    ASSERT_EQ(histogram.bucket.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(histogram.bucket[i].upper_bound, bounds[i], 1e-12);
      EXPECT_EQ(histogram.bucket[i].cumulative_count, buckets_below[i] * (tier + 1));
    }
  }
}

TEST(PoolFamiliesTest, SizesAreCountedInFactorsOfFour) {
  Fixture fixture;
  for (std::size_t i = 0; i < kSizeBuckets; ++i) fixture.stats.requests_by_size[i] = 1;
  fixture.stats.requested_bytes_total = 12345;
  const auto families = fixture.collect();
  const auto& histogram =
      find_family(families, "gpupool_allocation_size_bytes").metric[0].histogram;
  ASSERT_EQ(histogram.bucket.size(), kSizeBuckets - 1);
  EXPECT_EQ(histogram.bucket.front().upper_bound, 512);
  EXPECT_EQ(histogram.bucket.back().upper_bound, 512.0 * (1 << 24));
  EXPECT_EQ(histogram.bucket.back().cumulative_count, kSizeBuckets - 1);
  EXPECT_EQ(histogram.sample_count, kSizeBuckets);
  EXPECT_EQ(histogram.sample_sum, 12345);
}

TEST(PoolFamiliesTest, CaseD10OddNamesAndNumbersStayAValidPage) {
  Fixture fixture;
  fixture.pool = "a\"b\\c\nd\xff\xc3\xa4";
  fixture.tags = {"untagged", "\xed\xa0\x80"};
  fixture.stats.tag_live_bytes[0] = 5;
  fixture.stats.live_requested_bytes = 9;
  fixture.device.name = "ta\x80g";
  fixture.stats.fragmentation_ratio = std::numeric_limits<double>::quiet_NaN();
  fixture.stats.raw_fragmentation_ratio = -std::numeric_limits<double>::infinity();

  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale(), new Comma));
  fixture.stats.held_bytes = 1'234'567;
  fixture.stats.driver_ns = 1'500'000'000;
  const auto families = fixture.collect();
  const std::string text = prometheus::TextSerializer().Serialize(families);
  const std::string json = stats_json(fixture.snapshot());
  std::locale::global(before);

  EXPECT_NE(text.find("pool=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\xc3\xa4\"} 1234567\n"),
            std::string::npos);
  EXPECT_NE(text.find("} 1.5\n"), std::string::npos);
  EXPECT_EQ(text.find("Nan"), std::string::npos);
  EXPECT_EQ(text.find("-Inf"), std::string::npos);
  EXPECT_EQ(values(families, "gpupool_tag_requested_bytes")["untagged"], 9);
  EXPECT_EQ(check_metrics(text), "");
  EXPECT_EQ(parse_openmetrics(openmetrics_text(families)).verdict(), "");
  EXPECT_NE(json.find("\"held_bytes\":1234567,"), std::string::npos);
  EXPECT_NE(json.find("\"pool\":\"a\\\"b\\\\c\\u000ad\xef\xbf\xbd\xc3\xa4\""), std::string::npos);
  EXPECT_NE(json.find("\"fragmentation_ratio\":0,"), std::string::npos);
}

TEST(PoolFamiliesTest, PromtoolAcceptsThePage) {
  EXPECT_EQ(check_metrics(prometheus::TextSerializer().Serialize(Fixture().collect())), "");
}

TEST(PromtoolTest, FindsFaults) {  // the check can fail
  EXPECT_NE(check_metrics("# TYPE bad_total gauge\nbad_total 1\n"), "");
  EXPECT_NE(check_metrics("no_number x\n"), "");
}

TEST(StatsJsonTest, HasEveryFieldOfTheSnapshot) {
  std::ifstream header(std::string(GPUPOOL_SOURCE_DIR) + "/allocator/include/gpupool/stats.h");
  ASSERT_TRUE(header);
  const std::string json = stats_json(Fixture().snapshot());
  bool is_inside = false;
  int fields = 0;
  for (std::string line; std::getline(header, line);) {
    if (line.starts_with("struct StatsV1")) is_inside = true;
    if (line.starts_with("};")) is_inside = false;
    const std::size_t end = std::min(line.find(" = "), line.find("{}"));
    if (!is_inside || !line.starts_with("  ") || line.starts_with("  //") ||
        end == std::string::npos) {
      continue;
    }
    const std::size_t begin = line.rfind(' ', end - 1) + 1;
    const std::string name = line.substr(begin, end - begin);
    EXPECT_NE(json.find("\"" + name + "\":"), std::string::npos) << name;
    ++fields;
  }
  EXPECT_GE(fields, 90);
}

TEST(StatsJsonTest, NamesEnumsAndTags) {
  Fixture fixture;
  fixture.stats.policy = static_cast<std::uint8_t>(CrossStreamPolicy::when_done);
  fixture.stats.tag_live_bytes[0] = 11;
  const std::string json = stats_json(fixture.snapshot());
  EXPECT_NE(json.find("\"policy\":\"when_done\""), std::string::npos);
  EXPECT_NE(json.find("\"recycling\":\"off\""), std::string::npos);
  EXPECT_NE(json.find("\"alias_reuse\":\"wait\""), std::string::npos);
  EXPECT_NE(json.find("\"misses_by_reason\":{\"size\":0,\"budget\":0"), std::string::npos);
  EXPECT_NE(json.find("\"tag_live_bytes\":{\"weights\":11,\"gradients\":0}"), std::string::npos);
  EXPECT_NE(json.find("\"device\":{\"ordinal\":3,\"name\":\"simulated\""), std::string::npos);
}

}  // namespace
}  // namespace gpupool::internal
