// A pool on the simulated device, served: what a service gets from Exporter and PoolCollector.
#include "gpupool/exporter/exporter.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpupool/exporter/collector.h"
#include "gpupool/exporter/event_log.h"
#include "gpupool/simulated_backend.h"
#include "tests/exporter/gunzip.h"
#include "tests/exporter/http_client.h"
#include "tests/exporter/metrics_page.h"
#include "tests/exporter/openmetrics_parser.h"
#include "tests/exporter/promtool.h"
#include "tests/support/kept.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

using testing_support::check_metrics;
using testing_support::fetch;
using testing_support::parse_page;

constexpr const char* kLabels = "{device=\"0\",pool=\"default\"}";

// One device, pool and exporter for all cases, never stopped, as that takes up to 2 s.
struct Service {
  SimulatedBackend backend{{.capacity_bytes = 8 * kGiB}};
  EventLog events;
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Exporter> exporter;
  RawStream stream = nullptr;

  Service() {
    PoolOptions options;
    options.on_misuse = OnMisuse::report;
    options.observer = &events;
    auto created = Pool::create(backend, std::move(options));
    if (!created.ok()) return;
    pool = std::move(created).value();
    stream = backend.create_stream();
    auto started =
        Exporter::start(*pool, {.port = 0, .events = &events}, std::chrono::milliseconds(5));
    if (started.ok()) exporter = std::move(started).value();
  }
};

Service& service() {
  static auto* const instance = new Service();
  return *instance;
}

class ExporterTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(service().exporter, nullptr); }
  static Pool& pool() { return *service().pool; }
  static std::uint16_t port() { return service().exporter->port(); }
  static std::map<std::string, double> scrape() {
    return parse_page(fetch(port(), "/metrics").body);
  }
};

TEST_F(ExporterTest, UrlIsThatOfTheBoundPort) {
  EXPECT_NE(port(), 0);
  EXPECT_EQ(service().exporter->url(), "http://127.0.0.1:" + std::to_string(port()) + "/");
}

TEST_F(ExporterTest, EveryEndpointAnswersGetAndHead) {
  for (const char* path :
       {"/", "/page.css", "/page.js", "/icon.svg", "/metrics", "/api/v1/stats", "/api/v1/snapshot",
        "/api/v1/history", "/api/v1/history?since=17&resolution=15s", "/api/v1/events",
        "/api/v1/events?since=2", "/api/v1/last_failure", "/api/v1/would_fit?bytes=4096",
        "/-/healthy", "/-/ready"}) {
    EXPECT_EQ(fetch(port(), path).status, 200) << path;
    const auto head = fetch(port(), path, "HEAD");
    EXPECT_EQ(head.status, 200) << path;
    EXPECT_EQ(head.body, "") << path;
  }
  for (const char* path : {"/metricsx", "/metrics%00", "/%6detrics", "/metrics/../metrics"}) {
    EXPECT_EQ(fetch(port(), path).status, 404) << path;
  }
  EXPECT_EQ(fetch(port(), "/metrics", "POST").status, 405);
}

TEST_F(ExporterTest, EveryJsonAnswerNamesItsSchemaAndTheVersion) {
  for (const char* what :
       {"pools", "stats", "snapshot", "history", "events", "last_failure", "would_fit"}) {
    const std::string name = what;
    const std::string query = name == "would_fit" ? "?bytes=4096" : "";
    const auto reply = fetch(port(), "/api/v1/" + name + query);
    EXPECT_TRUE(reply.body.starts_with(R"({"schema":"gpupool.)" + name + R"(","version":1,)"))
        << reply.body.substr(0, 80);
  }
}

TEST_F(ExporterTest, SeveralHostsAreABadRequestWhateverTheyName) {
  for (const char* hosts :
       {"Host: localhost\r\nHost: localhost\r\n", "Host: localhost\r\nhost: evil.example\r\n"}) {
    for (const char* path : {"/metrics", "/", "/-/healthy"}) {
      EXPECT_EQ(fetch(port(), path, "GET", hosts).status, 400) << hosts << path;
    }
  }
}

TEST_F(ExporterTest, ThePageOfARealPoolPassesPromtool) {
  const auto reply = fetch(port(), "/metrics");
  EXPECT_EQ(reply.headers.at("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(check_metrics(reply.body), "");
}

TEST_F(ExporterTest, TheSamePageAsOpenMetricsPassesTheStrictReader) {
  const std::string header =
      "Host: localhost\r\nAccept: text/plain;q=0.5\r\nAccept: application/openmetrics-text\r\n";
  const auto reply = fetch(port(), "/metrics", "GET", header);
  EXPECT_EQ(reply.headers.at("Content-Type"),
            "application/openmetrics-text; version=1.0.0; charset=utf-8");
  const auto page = testing_support::parse_openmetrics(reply.body);
  EXPECT_EQ(page.verdict(), "");
  for (const auto& [series, value] : scrape()) {
    if (series.find("_bucket{") != std::string::npos) continue;  // their bounds are spelt otherwise
    EXPECT_TRUE(page.samples.contains(series)) << series;
  }
  const auto packed = fetch(port(), "/metrics", "GET", header + "Accept-Encoding: gzip\r\n");
  EXPECT_EQ(packed.headers.at("Content-Encoding"), "gzip");
  EXPECT_LT(packed.body.size() * 4, reply.body.size());
  EXPECT_EQ(testing_support::parse_openmetrics(testing_support::gunzip(packed.body)).verdict(), "");
}

TEST_F(ExporterTest, MetricsSayWhatThePoolDid) {
  const auto before = scrape();
  const auto total = [](const std::map<std::string, double>& samples, const std::string& name) {
    return samples.at(name + kLabels);
  };
  std::vector<void*> blocks;
  blocks.reserve(10);
  for (int i = 0; i < 10; ++i) {
    blocks.push_back(pool().allocate(3 * kMiB, service().stream).value());
  }
  const auto during = scrape();
  EXPECT_EQ(total(during, "gpupool_requested_bytes") - total(before, "gpupool_requested_bytes"),
            30.0 * kMiB);
  EXPECT_EQ(total(during, "gpupool_active_allocations"), 10);
  EXPECT_GE(total(during, "gpupool_reserved_bytes"), 30.0 * kMiB);
  for (void* block : blocks) EXPECT_TRUE(pool().deallocate(block, service().stream));
  const auto after = scrape();
  EXPECT_EQ(total(after, "gpupool_requested_bytes"), total(before, "gpupool_requested_bytes"));
  EXPECT_EQ(total(after, "gpupool_frees_total") - total(before, "gpupool_frees_total"), 10);
  EXPECT_EQ(total(after, "gpupool_allocation_requests_total") -
                total(before, "gpupool_allocation_requests_total"),
            10);
  double misses = 0;
  for (const auto& [name, value] : after) {
    if (name.starts_with("gpupool_allocation_misses_total")) misses += value;
  }
  EXPECT_EQ(total(after, "gpupool_allocation_requests_total"),
            total(after, "gpupool_allocation_hits_total") + misses);
  EXPECT_EQ(total(after, "gpupool_reserved_bytes"),
            total(after, "gpupool_requested_bytes") + total(after, "gpupool_waste_bytes") +
                total(after, "gpupool_cached_bytes") + total(after, "gpupool_pending_free_bytes") +
                total(after, "gpupool_free_bytes"));
  EXPECT_EQ(total(after, "gpupool_reserved_bytes"),
            static_cast<double>(service().backend.held_bytes()));
}

TEST_F(ExporterTest, FailuresAndMisusesAreCountedByKind) {
  const auto before = scrape();
  EXPECT_FALSE(pool().allocate(std::size_t{1} << 63, service().stream).ok());
  int on_stack = 0;
  EXPECT_FALSE(pool().deallocate(&on_stack, service().stream));
  const auto after = scrape();
  const std::string failed =
      "gpupool_out_of_memory_total{device=\"0\",pool=\"default\",cause=\"size\"}";
  EXPECT_EQ(after.at(failed) - before.at(failed), 1);
  const std::string misuse =
      "gpupool_misuses_total{device=\"0\",pool=\"default\",kind=\"foreign_pointer\"}";
  EXPECT_EQ(after.at(misuse) - before.at(misuse), 1);
}

TEST_F(ExporterTest, TheApiHasThePastAndTheEvents) {
  EXPECT_FALSE(pool().allocate(std::size_t{1} << 40, service().stream).ok());
  const std::string events = fetch(port(), "/api/v1/events").body;
  EXPECT_NE(events.find("\"kind\":\"failure\",\"bytes\":1099511627776,"), std::string::npos)
      << events;
  EXPECT_NE(events.find("\"failure\":{"), std::string::npos);
  const std::string history = fetch(port(), "/api/v1/history").body;
  EXPECT_NE(history.find("\"schema\":\"gpupool.history\""), std::string::npos);
  EXPECT_EQ(history.find("\"time_ms\":[]"), std::string::npos) << "the first row is there at once";
  EXPECT_EQ(fetch(port(), "/api/v1/history?resolution=2s").status, 400);
  EXPECT_EQ(fetch(port(), "/api/v1/history?sinse=2").status, 400);
  EXPECT_EQ(fetch(port(), "/api/v1/events?since=-2").status, 400);
  const auto snapshot = fetch(port(), "/api/v1/snapshot");
  const auto again =
      fetch(port(), "/api/v1/snapshot", "GET",
            "Host: localhost\r\nIf-None-Match: " + snapshot.headers.at("ETag") + "\r\n");
  EXPECT_TRUE(again.status == 304 || again.headers.at("ETag") != snapshot.headers.at("ETag"));
  EXPECT_TRUE(again.status != 304 || again.body.empty());
}

TEST_F(ExporterTest, MaintenanceRunsByItself) {
  const auto steps = [] {
    return scrape().at(std::string("gpupool_maintain_steps_total") + kLabels);
  };
  const double before = steps();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (steps() < before + 3 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_GE(steps(), before + 3);
}

TEST_F(ExporterTest, TheNumberOfSeriesStaysWithinItsBound) {
  const std::size_t series = scrape().size();
  std::printf("  %zu series\n", series);
  EXPECT_NEAR(static_cast<double>(series), 240, 10)
      << "as exporter/README.md and configs/prometheus/prometheus.yml have it";
}

TEST_F(ExporterTest, AServicesOwnRegistryTakesTheCollector) {
  const PoolCollector collector(pool());
  const auto families = collector.Collect();
  EXPECT_EQ(check_metrics(prometheus::TextSerializer().Serialize(families)), "");
}

TEST_F(ExporterTest, AForkedChildExitsAtOnceAndLeavesTheServerAlone) {
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(10);
    service().exporter->stop();  // must do nothing
    // As many services have it: destroyed by exit().
    static const std::unique_ptr<Exporter> owner = std::move(service().exporter);
    std::exit(42);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1500));
  EXPECT_EQ(fetch(port(), "/-/ready").status, 200);
}

TEST_F(ExporterTest, BeyondLoopbackNoPageHasTagsUnlessAskedFor) {
  Result<Tag> tag = pool().find_tag("weights");
  ASSERT_TRUE(tag.ok());
  const auto block = pool().allocate({.bytes = kMiB, .tag = tag.value()}, service().stream).value();
  EXPECT_FALSE(pool().allocate({.bytes = 64 * kGiB, .tag = tag.value()}, service().stream).ok());
  for (const bool are_shown : {false, true}) {
    auto started = Exporter::start(
        pool(), {.bind = "0.0.0.0", .port = 0, .public_page = true, .public_details = are_shown});
    ASSERT_TRUE(started.ok());
    // Quicker than stopping it.
    const Exporter& exporter = testing_support::keep(std::move(started).value());
    for (const char* path : {"/metrics", "/api/v1/stats", "/api/v1/last_failure"}) {
      const auto reply = fetch(exporter.port(), path);
      EXPECT_EQ(reply.status, 200) << path;
      EXPECT_EQ(reply.body.find("weights") != std::string::npos, are_shown) << path << reply.body;
    }
    const auto failure = fetch(exporter.port(), "/api/v1/last_failure").body;
    EXPECT_EQ(failure.find("\"0x") != std::string::npos, are_shown)
        << failure;  // a stream's handle
    const auto page = parse_page(fetch(exporter.port(), "/metrics").body);
    const std::string series = "gpupool_tag_requested_bytes{device=\"0\",pool=\"default\",tag=\"";
    EXPECT_EQ(page.at(series + (are_shown ? "weights" : "hidden") + "\"}"), 1.0 * kMiB);
  }
  EXPECT_TRUE(pool().deallocate(block, service().stream));
}

TEST_F(ExporterTest, AWrongPasswordFileKeepsTheExporterFromStartingAndNothingElse) {
  const auto exporter =
      Exporter::start(pool(), {.port = 0, .auth = {.user = "u", .password_file = "/nowhere"}});
  ASSERT_FALSE(exporter.ok());
  EXPECT_EQ(exporter.error().message,
            "exporter.auth.password_file: /nowhere: No such file or directory");
}

TEST_F(ExporterTest, ATakenPortIsAnErrorAndThePoolWorksOn) {
  const auto second = Exporter::start(pool(), {.port = port(), .port_count = 1});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("127.0.0.1:" + std::to_string(port())), std::string::npos);
  EXPECT_NE(second.error().message.find("Address already in use"), std::string::npos);
  void* const block = pool().allocate(kMiB, service().stream).value();
  EXPECT_NE(block, nullptr);
  EXPECT_TRUE(pool().deallocate(block, service().stream));
}

TEST_F(ExporterTest, SwitchedOffItOnlyMaintains) {
  const auto before = pool().stats().maintain_steps;
  auto quiet = Exporter::start(pool(), {.enabled = false}, std::chrono::milliseconds(1));
  ASSERT_TRUE(quiet.ok());
  EXPECT_EQ(quiet.value()->port(), 0);
  EXPECT_EQ(quiet.value()->url(), "");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto start = std::chrono::steady_clock::now();
  quiet.value()->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(500));
  EXPECT_GT(pool().stats().maintain_steps, before + 10);
}

TEST_F(ExporterTest, StopEndsServingAndIsQuick) {
  auto other = Exporter::start(pool(), {.port = 0});
  ASSERT_TRUE(other.ok());
  const std::uint16_t other_port = other.value()->port();
  EXPECT_EQ(fetch(other_port, "/-/healthy").status, 200);
  const auto start = std::chrono::steady_clock::now();
  other.value()->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
  EXPECT_EQ(fetch(other_port, "/-/healthy").status, 0);
  other.value()->stop();  // again: nothing
}

}  // namespace
}  // namespace gpupool
