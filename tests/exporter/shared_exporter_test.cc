// Several pools of a process behind one exporter, which come and go while it is asked.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpupool/exporter/exporter.h"
#include "gpupool/simulated_backend.h"
#include "tests/exporter/http_client.h"
#include "tests/exporter/metrics_page.h"
#include "tests/exporter/promtool.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

using testing_support::check_metrics;
using testing_support::fetch;
using testing_support::parse_page;

class SharedExporterTest : public testing::Test {
 protected:
  /// Stopping takes up to 2 s, which nothing here is about: it goes on without pools.
  void TearDown() override {
    if (exporter_ == nullptr) return;
    for (const auto& pool : pools_) exporter_->remove(*pool);
    static auto* const kept = new std::vector<std::unique_ptr<Exporter>>();
    kept->push_back(std::move(exporter_));
  }

  std::unique_ptr<Pool> new_pool(int device, const std::string& name) {
    auto& backend = devices_[device];
    if (backend == nullptr) {
      SimulatedDeviceOptions options{.capacity_bytes = 1024 * kMiB};
      options.ordinal = device;
      backend = std::make_unique<SimulatedBackend>(options);
    }
    auto pool = Pool::create(*backend, {.name = name, .capacity = 16 * kMiB});
    EXPECT_TRUE(pool.ok());
    return std::move(pool).value();
  }
  /// One that lives as long as the test.
  Pool& make_pool(int device, const std::string& name) {
    return *pools_.emplace_back(new_pool(device, name));
  }
  void start(Pool& first, std::chrono::milliseconds period = std::chrono::milliseconds(0)) {
    auto started = Exporter::start(first, {.port = 0}, period);
    ASSERT_TRUE(started.ok()) << started.error().message;
    exporter_ = std::move(started).value();
  }
  testing_support::Reply get(const std::string& path) { return fetch(exporter_->port(), path); }
  std::string page() { return get("/metrics").body; }
  static std::size_t count(const std::string& text, const std::string& part) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
    return n;
  }

  std::map<int, std::unique_ptr<SimulatedBackend>> devices_;
  std::vector<std::unique_ptr<Pool>> pools_;
  std::unique_ptr<Exporter> exporter_;
};

TEST_F(SharedExporterTest, EachFamilyIsThereOnceWithTheSamplesOfAllPools) {
  Pool& a = make_pool(0, "a");
  Pool& b = make_pool(0, "b");
  Pool& c = make_pool(1, "a");
  start(a);
  ASSERT_TRUE(exporter_->add(b).ok());
  ASSERT_TRUE(exporter_->add(c).ok());
  ASSERT_TRUE(exporter_->add(b).ok()) << "it is there already";
  void* const block = b.allocate(3 * kMiB, devices_[0]->create_stream()).value();

  const std::string text = page();
  EXPECT_EQ(check_metrics(text), "");
  for (const char* family : {"gpupool_reserved_bytes", "gpupool_build_info", "gpupool_device_info",
                             "gpupool_allocation_misses_total"}) {
    EXPECT_EQ(count(text, std::string("# TYPE ") + family + " "), 1u) << family;
    EXPECT_EQ(count(text, std::string("# HELP ") + family + " "), 1u) << family;
  }
  EXPECT_EQ(count(text, "\ngpupool_build_info{"), 1u) << "the process is one";
  EXPECT_EQ(count(text, "\ngpupool_process_info{"), 1u);
  EXPECT_EQ(count(text, "\ngpupool_device_info{"), 2u) << "two pools share a device";
  EXPECT_EQ(count(text, "\ngpupool_device_memory_total_bytes{"), 2u);
  EXPECT_EQ(count(text, "\ngpupool_reserved_bytes{"), 3u);
  const auto samples = parse_page(text);
  EXPECT_EQ(samples.at("gpupool_requested_bytes{device=\"0\",pool=\"a\"}"), 0);
  EXPECT_EQ(samples.at("gpupool_requested_bytes{device=\"0\",pool=\"b\"}"), 3.0 * kMiB);
  EXPECT_EQ(samples.at("gpupool_requested_bytes{device=\"1\",pool=\"a\"}"), 0);
  EXPECT_EQ(samples.at("gpupool_series_dropped_total{reason=\"duplicate\"}"), 0);
  EXPECT_EQ(samples.at("gpupool_series_dropped_total{reason=\"limit\"}"), 0);
  EXPECT_TRUE(b.deallocate(block, nullptr));
}

TEST_F(SharedExporterTest, TheApiIsAskedAboutOneOfThem) {
  Pool& a = make_pool(0, "a");
  Pool& b = make_pool(0, "b");
  Pool& c = make_pool(1, "a");
  start(a);
  const std::string alone = get("/api/v1/stats").body;
  ASSERT_TRUE(exporter_->add(b).ok());
  ASSERT_TRUE(exporter_->add(c).ok());
  EXPECT_EQ(get("/api/v1/pools").body,
            R"({"schema":"gpupool.pools","version":1,)"
            "\"pools\":[{\"pool\":\"a\",\"device\":0},{\"pool\":\"b\",\"device\":0},"
            "{\"pool\":\"a\",\"device\":1}]}\n");
  using PoolAndDevice = std::pair<std::string, int>;
  const auto pool_in = [](const std::string& body) {
    const auto stats = nlohmann::json::parse(body);
    return PoolAndDevice(stats["pool"], stats["device"]["ordinal"]);
  };
  const auto pool_of = [&](const std::string& query) {
    return pool_in(get("/api/v1/stats" + query).body);
  };
  const PoolAndDevice of_a("a", 0);
  const PoolAndDevice of_b("b", 0);
  const PoolAndDevice of_c("a", 1);
  EXPECT_EQ(pool_in(alone), of_a);
  EXPECT_EQ(pool_of(""), of_a) << "the first, as where it is alone";
  EXPECT_EQ(pool_of("?pool=a"), of_a);
  EXPECT_EQ(pool_of("?pool=b"), of_b);
  EXPECT_EQ(pool_of("?device=1"), of_c);
  EXPECT_EQ(pool_of("?pool=a&device=1"), of_c);
  EXPECT_EQ(get("/api/v1/stats?pool=b&device=1").status, 404);
  EXPECT_EQ(get("/api/v1/stats?pool=c").status, 404);
  EXPECT_EQ(get("/api/v1/stats?device=x").status, 400);
  EXPECT_EQ(get("/api/v1/stats?pool=a&pool=b").status, 400);
  EXPECT_EQ(get("/api/v1/last_failure?pool=b").body,
            R"({"schema":"gpupool.last_failure","version":1,"happened":false})"
            "\n");
  EXPECT_EQ(get("/metrics?pool=a").status, 400) << "/metrics has them all";
}

TEST_F(SharedExporterTest, ATwinAndANinthAreRefusedAndTheirSeriesCounted) {
  std::vector<Pool*> pools;
  for (int i = 0; i < 9; ++i) pools.push_back(&make_pool(0, "p" + std::to_string(i)));
  start(*pools[0]);
  const auto series_of_one =
      static_cast<double>(count(page(), "pool=\"p0\"") + count(page(), "{device=\"0\"}") + 3);
  Pool& twin = make_pool(0, "p0");
  const auto duplicate = exporter_->add(twin);
  ASSERT_FALSE(duplicate.ok());
  EXPECT_NE(duplicate.error().message.find("pool p0 of device 0"), std::string::npos);
  for (std::size_t i = 1; i < 8; ++i) ASSERT_TRUE(exporter_->add(*pools[i]).ok()) << i;
  const auto ninth = exporter_->add(*pools[8]);
  ASSERT_FALSE(ninth.ok());
  EXPECT_NE(ninth.error().message.find("up to 8"), std::string::npos) << ninth.error().message;

  const std::string text = page();
  EXPECT_EQ(check_metrics(text), "");
  EXPECT_EQ(text.find("pool=\"p8\""), std::string::npos);
  const auto samples = parse_page(text);
  const double dropped = samples.at("gpupool_series_dropped_total{reason=\"duplicate\"}");
  EXPECT_NEAR(dropped, series_of_one, 10);
  EXPECT_GT(dropped, 100);
  EXPECT_EQ(samples.at("gpupool_series_dropped_total{reason=\"limit\"}"), dropped);
  // One that goes makes room.
  exporter_->remove(*pools[3]);
  ASSERT_TRUE(exporter_->add(*pools[8]).ok());
  EXPECT_NE(page().find("pool=\"p8\""), std::string::npos);
}

TEST_F(SharedExporterTest, WithoutAnyPoolThereIsStillAPage) {
  Pool& pool = make_pool(0, "default");
  start(pool);
  exporter_->remove(pool);
  exporter_->remove(pool);
  EXPECT_EQ(check_metrics(page()), "");
  EXPECT_EQ(get("/api/v1/stats").status, 404);
  EXPECT_EQ(get("/api/v1/pools").body, R"({"schema":"gpupool.pools","version":1,)"
                                       "\"pools\":[]}\n");
  ASSERT_TRUE(exporter_->add(pool).ok());
  EXPECT_EQ(get("/api/v1/stats").status, 200);
}

TEST_F(SharedExporterTest, AllAreMaintainedUntilTheyAreRemoved) {
  Pool& a = make_pool(0, "a");
  Pool& b = make_pool(0, "b");
  start(a, std::chrono::milliseconds(1));
  ASSERT_TRUE(exporter_->add(b).ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while ((a.stats().maintain_steps < 3 || b.stats().maintain_steps < 3) &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_GE(b.stats().maintain_steps, 3u);
  exporter_->remove(b);
  const std::uint64_t steps = b.stats().maintain_steps;
  const std::uint64_t others = a.stats().maintain_steps;
  while (a.stats().maintain_steps < others + 5 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(b.stats().maintain_steps, steps);
}

TEST_F(SharedExporterTest, PoolsComeAndGoWhileItIsAsked) {
  Pool& stays = make_pool(0, "stays");
  start(stays, std::chrono::milliseconds(1));
  std::atomic<bool> is_over{false};
  std::atomic<int> pages{0};
  std::vector<std::thread> askers;
  for (const char* path : {"/metrics", "/metrics", "/api/v1/stats?device=1", "/api/v1/pools"}) {
    askers.emplace_back([&, path] {
      while (!is_over) {
        const auto reply = get(path);
        EXPECT_TRUE(reply.status == 200 || reply.status == 404) << reply.status;
        ++pages;
      }
    });
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int rounds = 0;
  while ((rounds < 100 || pages < 100) && std::chrono::steady_clock::now() < deadline) {
    const auto comes = new_pool(1, "comes");
    ASSERT_TRUE(exporter_->add(*comes).ok());
    if (rounds % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(500));
    exporter_->remove(*comes);
    ++rounds;
    // It is destroyed here: whoever read it has finished.
  }
  is_over = true;
  for (std::thread& asker : askers) asker.join();
  EXPECT_GE(rounds, 100);
  EXPECT_EQ(check_metrics(page()), "");
}

TEST_F(SharedExporterTest, AFunctionIsCalledAtTheThresholdsByTheThreadThatMaintains) {
  Pool& pool = make_pool(0, "default");
  RuntimeOptions options = pool.runtime_options();
  options.thresholds.required_block_bytes = 32 * kMiB;  // more than there is
  ASSERT_TRUE(pool.reconfigure(options).ok());
  start(pool, std::chrono::milliseconds(1));
  std::atomic<int> reached{0};
  std::atomic<int> over{0};
  const auto watched = exporter_->watch(
      pool, {.required_hold_ns = 0, .period_ns = 0}, [&](const ThresholdEvent& event) {
        EXPECT_EQ(event.condition, WatchedCondition::largest_below_required);
        ++(event.is_reached ? reached : over);
        pool.trim(0);
      });
  ASSERT_TRUE(watched.ok());
  const auto wait_for = [](const std::atomic<int>& count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (count == 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  wait_for(reached);
  EXPECT_EQ(reached, 1);
  options.thresholds.required_block_bytes = kMiB;
  ASSERT_TRUE(pool.reconfigure(options).ok());
  wait_for(over);
  EXPECT_EQ(reached, 1);
  EXPECT_EQ(over, 1);
  Pool& other = make_pool(0, "other");
  EXPECT_FALSE(exporter_->watch(other, {}, nullptr).ok()) << "it is not shown";
}

}  // namespace
}  // namespace gpupool
