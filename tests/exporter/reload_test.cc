// A running exporter whose configuration is exchanged: on demand and by SIGHUP, where that is asked
// for.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exporter/hang_up_signal.h"
#include "gpupool/exporter/exporter.h"
#include "gpupool/simulated_backend.h"
#include "tests/exporter/http_client.h"
#include "tests/exporter/metrics_page.h"
#include "tests/exporter/temporary_folder.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

using testing_support::fetch;
using testing_support::parse_page;
using testing_support::TemporaryFolder;

constexpr const char* kSuccessful = "gpupool_config_last_reload_successful";
constexpr const char* kTime = "gpupool_config_last_reload_success_timestamp_seconds";
const std::string kSlack = "gpupool_slack_ratio{device=\"0\",pool=\"default\"}";

struct sigaction disposition() {
  struct sigaction now {};
  sigaction(SIGHUP, nullptr, &now);
  return now;
}

int hang_ups = 0;
void count_hang_up(int) { ++hang_ups; }

class ReloadTest : public testing::Test {
 protected:
  /// With the configuration `yaml`, from a file.
  void start(const std::string& yaml, std::chrono::milliseconds period) {
    folder_.write("gpupool.yaml", yaml);
    auto config = load_config_file(path());
    ASSERT_TRUE(config.ok());
    config_ = std::move(config).value();
    EXPECT_EQ(config_.path, path());
    config_.exporter.port = 0;
    config_.exporter.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      log_.push_back(line);
    };
    auto pool = Pool::create(device_, config_.pool);
    ASSERT_TRUE(pool.ok());
    pool_ = std::move(pool).value();
    auto started = Exporter::start(*pool_, config_.exporter, period);
    ASSERT_TRUE(started.ok());
    exporter_ = std::move(started).value();
    config_.exporter.port = kDefaultPort;  // as the file has it
  }
  std::string path() const { return folder_.path("gpupool.yaml"); }
  std::map<std::string, double> scrape() {
    return parse_page(fetch(exporter_->port(), "/metrics").body);
  }
  /// What is logged next, after what was there at the last call.
  std::string next_line() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (std::chrono::steady_clock::now() < deadline) {
      {
        const std::lock_guard lock(mutex_);
        if (log_.size() > seen_) return log_[seen_++];
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return "nothing";
  }

  const TemporaryFolder folder_;
  SimulatedBackend device_{{.capacity_bytes = 1024 * kMiB}};
  Config config_;
  std::mutex mutex_;
  std::vector<std::string> log_;
  std::size_t seen_ = 0;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Exporter> exporter_;
};

TEST_F(ReloadTest, OnDemandAndShownInTwoSeries) {
  start("pool: {slack: 1%}", std::chrono::milliseconds(0));
  auto samples = scrape();
  EXPECT_EQ(samples.at(kSuccessful), 1) << "what it was started with counts as taken";
  EXPECT_NEAR(samples.at(kTime), static_cast<double>(std::time(nullptr)), 5);
  EXPECT_EQ(samples.at(kSlack), 0.01);
  const auto early = exporter_->reload_file(path());
  ASSERT_FALSE(early.ok());
  EXPECT_NE(early.error().at(0).message.find("enable_reload"), std::string::npos);

  exporter_->enable_reload(config_);
  const double first = scrape().at(kTime);
  folder_.write("gpupool.yaml", "pool: {slack: 2%}");
  const auto taken = exporter_->reload_file(path());
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(taken.value().changed, std::vector<std::string>{"pool.slack"});
  samples = scrape();
  EXPECT_EQ(samples.at(kSlack), 0.02);
  EXPECT_EQ(samples.at(kSuccessful), 1);
  const double second = samples.at(kTime);
  EXPECT_GE(second, first);

  folder_.write("gpupool.yaml", "pool: {slack: 3%, name: other}");
  EXPECT_FALSE(exporter_->reload_file(path()).ok());
  samples = scrape();
  EXPECT_EQ(samples.at(kSuccessful), 0);
  EXPECT_EQ(samples.at(kTime), second);
  EXPECT_EQ(samples.at(kSlack), 0.02);

  Config next = config_;
  next.pool.runtime.slack = 0.04;
  ASSERT_TRUE(exporter_->reload(next).ok());
  samples = scrape();
  EXPECT_EQ(samples.at(kSuccessful), 1);
  EXPECT_EQ(samples.at(kSlack), 0.04);
  // Stopping takes up to 2 s, which nothing here is about: it goes on without a pool.
  exporter_->remove(*pool_);
  static auto* const kept = new std::unique_ptr<Exporter>();
  *kept = std::move(exporter_);
}

TEST_F(ReloadTest, ASighupReadsTheFileAgainAndIsOursOnlyMeanwhile) {
  struct sigaction mine {};
  mine.sa_handler = count_hang_up;
  struct sigaction before {};
  sigaction(SIGHUP, &mine, &before);
  start("pool: {slack: 1%}\nexporter: {reload_on_sighup: true}", std::chrono::milliseconds(1));
  EXPECT_EQ(disposition().sa_handler, count_hang_up) << "nothing could be read again yet";
  exporter_->enable_reload(config_);
  EXPECT_NE(disposition().sa_handler, count_hang_up);
  EXPECT_NE(disposition().sa_flags & SA_RESTART, 0);

  folder_.write("gpupool.yaml", "pool: {slack: 2%}\nexporter: {reload_on_sighup: true}");
  raise(SIGHUP);
  EXPECT_EQ(next_line(), "configuration read again from " + path() + ", changed: pool.slack");
  EXPECT_EQ(pool_->runtime_options().slack, 0.02);
  raise(SIGHUP);
  EXPECT_EQ(next_line(), "configuration read again from " + path() + ": nothing has changed");
  folder_.write("gpupool.yaml", "pool: {slakc: 3%}");
  raise(SIGHUP);
  const std::string refused = next_line();
  EXPECT_TRUE(refused.starts_with("configuration not taken, the one before stays: " + path() +
                                  ":1: pool.slakc: unknown key"))
      << refused;
  EXPECT_EQ(scrape().at(kSuccessful), 0);

  exporter_->stop();
  EXPECT_EQ(disposition().sa_handler, count_hang_up);
  EXPECT_EQ(hang_ups, 0);
  raise(SIGHUP);
  EXPECT_EQ(hang_ups, 1);
  sigaction(SIGHUP, &before, nullptr);
}

TEST_F(ReloadTest, ASighupIsWaitedForAlsoWhereNobodyMaintains) {
  struct sigaction before = disposition();
  start("pool: {slack: 1%}\nexporter: {reload_on_sighup: true}", std::chrono::milliseconds(0));
  exporter_->enable_reload(config_);
  folder_.write("gpupool.yaml", "pool: {slack: 2%}\nexporter: {reload_on_sighup: true}");
  raise(SIGHUP);
  EXPECT_EQ(next_line(), "configuration read again from " + path() + ", changed: pool.slack");
  EXPECT_EQ(pool_->stats().maintain_steps, 0u);
  // Another handler that came later is not taken away.
  struct sigaction mine {};
  mine.sa_handler = count_hang_up;
  sigaction(SIGHUP, &mine, nullptr);
  exporter_.reset();
  EXPECT_EQ(disposition().sa_handler, count_hang_up);
  sigaction(SIGHUP, &before, nullptr);
}

TEST_F(ReloadTest, UnlessItIsAskedForTheDispositionIsLeftAsItIs) {
  for (void (*handler)(int) : {SIG_DFL, SIG_IGN, &count_hang_up}) {
    struct sigaction mine {};
    mine.sa_handler = handler;
    struct sigaction before {};
    sigaction(SIGHUP, &mine, &before);
    {
      const TemporaryFolder folder;
      SimulatedBackend device({.capacity_bytes = 64 * kMiB});
      const auto pool = Pool::create(device, {});
      ASSERT_TRUE(pool.ok());
      // Without a port, which takes no time to stop.
      auto exporter = Exporter::start(*pool.value(), {.enabled = false});
      ASSERT_TRUE(exporter.ok());
      Config config;
      config.path = folder.path("gpupool.yaml");
      exporter.value()->enable_reload(config);
      EXPECT_EQ(disposition().sa_handler, handler);
      // Asked for, and nothing to read.
      auto other = Exporter::start(*pool.value(), {.enabled = false, .reload_on_sighup = true});
      ASSERT_TRUE(other.ok());
      other.value()->enable_reload({});
      EXPECT_EQ(disposition().sa_handler, handler);
    }
    EXPECT_EQ(disposition().sa_handler, handler);
    sigaction(SIGHUP, &before, nullptr);
  }
}

TEST(HangUpSignalTest, TheSignalIsOursUntilTheLastOfSeveralEnds) {
  const auto before = disposition().sa_handler;
  {
    auto first = std::make_unique<internal::HangUpSignal>();
    internal::HangUpSignal second;
    first.reset();
    EXPECT_NE(disposition().sa_handler, before);
    ASSERT_EQ(raise(SIGHUP), 0);
    EXPECT_TRUE(second.take());
    EXPECT_FALSE(second.take());
  }
  EXPECT_EQ(disposition().sa_handler, before);
}

}  // namespace
}  // namespace gpupool
