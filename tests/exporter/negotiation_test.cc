// Which format and encoding a client gets.
#include "exporter/http/negotiation.h"

#include <gtest/gtest.h>

#include <string>

#include "exporter/http/compression.h"
#include "tests/exporter/gunzip.h"

namespace gpupool::internal {
namespace {

using testing_support::gunzip;

constexpr auto kText = MetricsFormat::text;
constexpr auto kOpen = MetricsFormat::openmetrics;
constexpr auto kOlder = MetricsFormat::openmetrics_v0_0_1;

TEST(NegotiationTest, WhatScrapersSend) {
  EXPECT_EQ(choose_metrics_format(""), kText);
  EXPECT_EQ(choose_metrics_format("*/*"), kText);  // curl
  // Prometheus 2.42, and 2.49 with scrape_protocols of text alone.
  EXPECT_EQ(choose_metrics_format("application/openmetrics-text;version=1.0.0,application/"
                                  "openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;"
                                  "q=0.5,*/*;q=0.1"),
            kOpen);
  EXPECT_EQ(choose_metrics_format("text/plain;version=0.0.4;q=0.3,*/*;q=0.2"), kText);
  // Prometheus 3: names escapings and a text format that we do not have.
  EXPECT_EQ(
      choose_metrics_format(
          "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/"
          "openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;"
          "q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"),
      kOpen);
  EXPECT_EQ(
      choose_metrics_format("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
      kText);  // a browser
}

TEST(NegotiationTest, WeightsAreHonoured) {
  EXPECT_EQ(choose_metrics_format("application/openmetrics-text;q=0.4, text/plain;q=0.5"), kText);
  EXPECT_EQ(choose_metrics_format("application/openmetrics-text;q=0.5, text/plain;q=0.4"), kOpen);
  EXPECT_EQ(choose_metrics_format("text/plain, application/openmetrics-text"), kOpen);
  EXPECT_EQ(choose_metrics_format("application/openmetrics-text;q=0, */*"), kText);
  EXPECT_EQ(choose_metrics_format("application/openmetrics-text;q=0"), kText);
  EXPECT_EQ(choose_metrics_format("application/openmetrics-text ; Q=\"0.001\""), kOpen);
  for (const char* weight : {"2", "-1", "x", "", "0,5", "1e3", "nan", "0.5x"}) {
    EXPECT_EQ(choose_metrics_format(std::string("application/openmetrics-text;q=") + weight +
                                    ", text/plain;q=0.1"),
              kText)
        << weight;
  }
}

TEST(NegotiationTest, TheMostPreciseRangeCounts) {
  EXPECT_EQ(choose_metrics_format("text/*;q=0.2, application/*;q=0.9"), kOpen);
  EXPECT_EQ(choose_metrics_format("text/*, text/plain;q=0.1, application/openmetrics-text;q=0.5"),
            kOpen);
  EXPECT_EQ(choose_metrics_format("APPLICATION/OpenMetrics-Text; version=\"1.0.0\""), kOpen);
  EXPECT_EQ(choose_metrics_format("application/openmetrics-text; version=0.0.1"), kOlder);
  EXPECT_EQ(choose_metrics_format("application/openmetrics-text; version=2.0.0"), kText);
  EXPECT_EQ(choose_metrics_format("application/openmetrics-text; a=\"x,y;q=0\""), kOpen);
}

TEST(NegotiationTest, ContentTypesHaveTheVersion) {
  EXPECT_STREQ(content_type_of(kText), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_STREQ(content_type_of(kOpen),
               "application/openmetrics-text; version=1.0.0; charset=utf-8");
  EXPECT_STREQ(content_type_of(kOlder),
               "application/openmetrics-text; version=0.0.1; charset=utf-8");
}

TEST(NegotiationTest, GzipWithItsWeight) {
  for (const char* yes :
       {"gzip", "GZIP", "deflate, gzip;q=0.5", "*", "x-gzip", "gzip;q=0.001", "br, *;q=0.1",
        "identity, gzip", "*;q=0, gzip", "identity;q=0.5, gzip", "identity;q=0, gzip;q=0.1"}) {
    EXPECT_TRUE(is_gzip_accepted(yes)) << yes;
  }
  for (const char* no : {"", "gzip;q=0", "gzip; q=0.000", "identity", "*;q=0", "deflate, br",
                         "gzip;q=0, *", "gzipped", "gzip;q=x", "identity;q=1, gzip;q=0",
                         "gzip;q=0.5, identity;q=1", "identity, *;q=0.5"}) {
    EXPECT_FALSE(is_gzip_accepted(no)) << no;
  }
}

TEST(CompressionTest, WhatIsPackedComesBackWhole) {
  for (const std::size_t size : {0u, 1u, 5'000u, 300'000u, 3'000'000u}) {
    std::string body;
    body.reserve(size);
    for (std::size_t i = 0; i < size; ++i) body += static_cast<char>('a' + i * i % 23);
    const auto packed = gzip(body);
    ASSERT_TRUE(packed.has_value());
    EXPECT_EQ(gunzip(*packed), body) << size;
    if (size >= 5'000u) {
      EXPECT_LT(packed->size(), size / 2);
    }
  }
}

}  // namespace
}  // namespace gpupool::internal
