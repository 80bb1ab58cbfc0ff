// OpenMetrics pages are what the specification wants, and the reader that says so finds faults.
#include "exporter/metrics/openmetrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <locale>
#include <string>
#include <vector>

#include "exporter/metrics/page_families.h"
#include "exporter/metrics/samples.h"
#include "tests/exporter/openmetrics_parser.h"

namespace gpupool::internal {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using testing_support::OpenMetricsPage;
using testing_support::parse_openmetrics;

MetricFamily family_of(MetricType type, std::string name, std::vector<double> values) {
  MetricFamily family;
  family.name = std::move(name);
  family.type = type;
  family.help = "A test.";
  for (std::size_t i = 0; i < values.size(); ++i) {
    ClientMetric& metric = family.metric.emplace_back();
    metric.label.push_back({"device", std::to_string(i)});
    metric.counter.value = metric.gauge.value = values[i];
  }
  return family;
}

TEST(OpenMetricsTest, ACounterIsDeclaredWithoutTotalAndSampledWithIt) {
  EXPECT_EQ(openmetrics_text({family_of(MetricType::Counter, "gpupool_frees_total", {7, 8})}),
            "# TYPE gpupool_frees counter\n"
            "# HELP gpupool_frees A test.\n"
            "gpupool_frees_total{device=\"0\"} 7\n"
            "gpupool_frees_total{device=\"1\"} 8\n"
            "# EOF\n");
}

TEST(OpenMetricsTest, TheUnitIsTheSuffixAndAnInfoIsOne) {
  const std::string text =
      openmetrics_text({family_of(MetricType::Gauge, "gpupool_free_bytes", {0.5}),
                        family_of(MetricType::Counter, "gpupool_wait_seconds_total", {1.5}),
                        family_of(MetricType::Gauge, "gpupool_build_info", {1})});
  EXPECT_EQ(text,
            "# TYPE gpupool_free_bytes gauge\n"
            "# UNIT gpupool_free_bytes bytes\n"
            "# HELP gpupool_free_bytes A test.\n"
            "gpupool_free_bytes{device=\"0\"} 0.5\n"
            "# TYPE gpupool_wait_seconds counter\n"
            "# UNIT gpupool_wait_seconds seconds\n"
            "# HELP gpupool_wait_seconds A test.\n"
            "gpupool_wait_seconds_total{device=\"0\"} 1.5\n"
            "# TYPE gpupool_build info\n"
            "# HELP gpupool_build A test.\n"
            "gpupool_build_info{device=\"0\"} 1\n"
            "# EOF\n");
  EXPECT_EQ(parse_openmetrics(text).verdict(), "");
}

TEST(OpenMetricsTest, BoundsHaveTheirCanonicalForm) {
  EXPECT_EQ(canonical_number(0), "0.0");
  EXPECT_EQ(canonical_number(1), "1.0");
  EXPECT_EQ(canonical_number(512), "512.0");
  EXPECT_EQ(canonical_number(100000), "100000.0");
  EXPECT_EQ(canonical_number(1e6), "1e+06");
  EXPECT_EQ(canonical_number(2097152), "2.097152e+06");
  EXPECT_EQ(canonical_number(8589934592), "8.589934592e+09");
  EXPECT_EQ(canonical_number(0.001), "0.001");
  EXPECT_EQ(canonical_number(0.0001), "0.0001");
  EXPECT_EQ(canonical_number(1e-5), "1e-05");
  EXPECT_EQ(canonical_number(8.192e-6), "8.192e-06");
  EXPECT_EQ(canonical_number(-2.5), "-2.5");
  EXPECT_EQ(canonical_number(1e-10), "1e-10");
  EXPECT_EQ(canonical_number(std::numeric_limits<double>::infinity()), "+Inf");
}

TEST(OpenMetricsTest, AHistogramEndsWithInfinityCountAndSum) {
  MetricFamily family = family_of(MetricType::Histogram, "gpupool_size_bytes", {0});
  family.metric[0].histogram = {
      .sample_count = 5, .sample_sum = 1234.5, .bucket = {{2, 512}, {4, 2097152}}};
  const std::string text = openmetrics_text({family});
  EXPECT_NE(text.find("gpupool_size_bytes_bucket{device=\"0\",le=\"512.0\"} 2\n"
                      "gpupool_size_bytes_bucket{device=\"0\",le=\"2.097152e+06\"} 4\n"
                      "gpupool_size_bytes_bucket{device=\"0\",le=\"+Inf\"} 5\n"
                      "gpupool_size_bytes_count{device=\"0\"} 5\n"
                      "gpupool_size_bytes_sum{device=\"0\"} 1234.5\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(parse_openmetrics(text).verdict(), "");
}

TEST(OpenMetricsTest, NumbersAreExactAndSpecialOnesSpeltAsTheyMustBe) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::string text = openmetrics_text(
      {family_of(MetricType::Gauge, "gpupool_x",
                 {9007199254740991.0, 0.1 + 0.2, std::nan(""), kInfinity, -kInfinity, -3})});
  for (const char* value :
       {"9007199254740991", "0.30000000000000004", "NaN", "+Inf", "-Inf", "-3"}) {
    EXPECT_NE(text.find(std::string("} ") + value + "\n"), std::string::npos) << value << text;
  }
  EXPECT_EQ(parse_openmetrics(text).verdict(), "");
}

TEST(OpenMetricsTest, CaseD10LabelsAndHelpAreEscapedWhateverTheLocale) {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  MetricFamily family = family_of(MetricType::Gauge, "gpupool_x", {1234567.5});
  family.help = "a \"b\" \\ c\nd";
  family.metric[0].label[0].value = "a\"b\\c\nd";
  const std::locale before = std::locale::global(std::locale(std::locale(), new Comma));
  const std::string text = openmetrics_text({family});
  std::locale::global(before);
  EXPECT_NE(text.find("# HELP gpupool_x a \\\"b\\\" \\\\ c\\nd\n"), std::string::npos) << text;
  EXPECT_NE(text.find("gpupool_x{device=\"a\\\"b\\\\c\\nd\"} 1234567.5\n"), std::string::npos);
  EXPECT_EQ(parse_openmetrics(text).verdict(), "");
}

TEST(OpenMetricsParserTest, FindsFaults) {
  const auto complaint = [](const std::string& text) { return parse_openmetrics(text).verdict(); };
  EXPECT_EQ(complaint("# TYPE a gauge\na 1\n# EOF\n"), "");
  for (const char* text : {
           "# TYPE a gauge\na 1\n",                       // no end
           "# TYPE a gauge\na 1\n# EOF",                  // no last line feed
           "# EOF\na 1\n# EOF\n",                         // goes on
           "# TYPE a_total counter\na_total 1\n# EOF\n",  // declared with _total
           "# TYPE a counter\na 1\n# EOF\n",              // sampled without it
           "# TYPE a counter\na_total -1\n# EOF\n",       // below 0
           "# TYPE a_bytes gauge\n# UNIT a_bytes seconds\na_bytes 1\n# EOF\n",  // other unit
           "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# HELP a x\n# EOF\n",     // at two places
           "# TYPE a gauge\na 1\na 1\n# EOF\n",                                 // twice
           "# TYPE a gauge\na{b=\"\\x\"} 1\n# EOF\n",                           // bad escape
           "# TYPE a gauge\na{b=\"1\",b=\"2\"} 1\n# EOF\n",                     // label twice
           "# TYPE a gauge\n\na 1\n# EOF\n",                                    // empty line
           "# TYPE a gauge\na 1,5\n# EOF\n",                                    // comma
           "# TYPE a gauge\na Nan\n# EOF\n",                                    // spelling
           "# TYPE a info\na_info 2\n# EOF\n",                                  // not 1
           "# TYPE a gauge\na{b=\"\xff\"} 1\n# EOF\n",                          // no UTF-8
           "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_bucket{le=\"+Inf\"} 1\na_count 1\na_sum 1\n"
           "# EOF\n",  // not canonical
           "# TYPE a histogram\na_bucket{le=\"1.0\"} 1\na_count 1\na_sum 1\n# EOF\n",  // no +Inf
           "# TYPE a histogram\na_bucket{le=\"1.0\"} 2\na_bucket{le=\"+Inf\"} 1\na_count 1\na_sum "
           "1\n"
           "# EOF\n",  // not cumulative
       }) {
    EXPECT_NE(complaint(text), "") << text;
  }
}

// Several sources on one page.

TEST(PageFamiliesTest, FamiliesOfOneNameBecomeOne) {
  DroppedSeries dropped;
  MetricFamily other = family_of(MetricType::Gauge, "gpupool_a", {5});
  other.metric[0].label[0].value = "7";
  const auto page = page_families({family_of(MetricType::Gauge, "gpupool_a", {1, 2}),
                                   family_of(MetricType::Gauge, "gpupool_b", {3}), other},
                                  100, dropped);
  ASSERT_EQ(page.size(), 2u);
  EXPECT_EQ(page[0].metric.size(), 3u);
  EXPECT_EQ(page[0].metric[2].gauge.value, 5);
  EXPECT_EQ(dropped.duplicate, 0u);
  EXPECT_EQ(parse_openmetrics(openmetrics_text(page)).verdict(), "");
}

TEST(PageFamiliesTest, WhatStandsTwiceIsLeftOutAndCounted) {
  DroppedSeries dropped;
  const auto page = page_families({family_of(MetricType::Gauge, "gpupool_a", {1}),
                                   family_of(MetricType::Gauge, "gpupool_a", {2, 3}),
                                   family_of(MetricType::Counter, "gpupool_a", {4})},
                                  100, dropped);
  ASSERT_EQ(page.size(), 1u);
  ASSERT_EQ(page[0].metric.size(), 2u);
  EXPECT_EQ(page[0].metric[0].gauge.value, 1);  // the first one's
  EXPECT_EQ(dropped.duplicate, 2u);             // one of the same labels, one of another type
}

TEST(PageFamiliesTest, BeyondTheLimitWholeFamiliesAreLeftOutAndCounted) {
  DroppedSeries dropped;
  MetricFamily histogram = family_of(MetricType::Histogram, "gpupool_h", {0});
  histogram.metric[0].histogram.bucket = {{1, 1}, {2, 2}};
  const auto page = page_families({family_of(MetricType::Gauge, "gpupool_a", {1, 2}), histogram,
                                   family_of(MetricType::Gauge, "gpupool_b", {1, 2})},
                                  6, dropped);
  ASSERT_EQ(page.size(), 2u);
  EXPECT_EQ(page[1].name, "gpupool_b");
  EXPECT_EQ(dropped.over_limit, 5u);  // two buckets, +Inf, sum, count
}

}  // namespace
}  // namespace gpupool::internal
