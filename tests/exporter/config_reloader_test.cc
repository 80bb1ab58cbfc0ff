// A configuration that comes while pools are in use: what changes, what is refused, and that a
// refusal changes nothing.
#include "gpupool/exporter/config_reloader.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "gpupool/simulated_backend.h"
#include "tests/exporter/temporary_folder.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

using testing_support::TemporaryFolder;
using Keys = std::vector<std::string>;

Config config_of(const std::string& yaml) {
  auto config = parse_config(yaml);
  if (config.ok()) return std::move(config).value();
  for (const ConfigError& error : config.error()) ADD_FAILURE() << error.text("test.yaml");
  return {};
}

class ConfigReloaderTest : public testing::Test {
 protected:
  /// `count` pools of `yaml`, each on a device of its own.
  void start(const std::string& yaml, std::size_t count = 1) {
    const Config config = config_of(yaml);
    for (std::size_t i = 0; i < count; ++i) {
      SimulatedDeviceOptions options{.capacity_bytes = 1024 * kMiB};
      options.ordinal = static_cast<int>(i);
      devices_.push_back(std::make_unique<SimulatedBackend>(options));
      auto pool = Pool::create(*devices_.back(), config.pool);
      ASSERT_TRUE(pool.ok()) << pool.error().message;
      owned_.push_back(std::move(pool).value());
      pools_.push_back(owned_.back().get());
    }
    reloader_ = std::make_unique<ConfigReloader>(config);
  }
  ConfigReloader::Outcome reload(const std::string& yaml) {
    return reloader_->reload(config_of(yaml), pools_);
  }
  Keys changed_by(const std::string& yaml) {
    const auto outcome = reload(yaml);
    if (outcome.ok()) return outcome.value().changed;
    for (const ConfigError& error : outcome.error()) ADD_FAILURE() << error.text("test.yaml");
    return {"refused"};
  }
  Keys refused_by(const std::string& yaml) {
    const auto outcome = reload(yaml);
    EXPECT_FALSE(outcome.ok());
    Keys keys;
    if (outcome.ok()) return keys;
    for (const ConfigError& error : outcome.error()) keys.push_back(error.key_path);
    return keys;
  }

  std::vector<std::unique_ptr<SimulatedBackend>> devices_;
  std::vector<std::unique_ptr<Pool>> owned_;
  std::vector<Pool*> pools_;
  std::unique_ptr<ConfigReloader> reloader_;
};

TEST_F(ConfigReloaderTest, WhatCanChangeIsInForceAtOnce) {
  start("pool: {capacity: 512MiB}", 2);
  EXPECT_EQ(changed_by("pool: {capacity: 256MiB, recycling: pressure, slack: 2%, policy: wait,"
                       " recycling_wait: 1%, trim: {idle_after: 60s, rate: 2MiB,"
                       " keep_device_free: 4MiB}, out_of_memory: {wait: 1s}}\n"
                       "alerts: {fragmentation_ratio: 0.7, required_block_bytes: 8MiB}\n"),
            (Keys{"pool.capacity", "pool.recycling", "pool.slack", "pool.recycling_wait",
                  "pool.trim.idle_after", "pool.trim.rate", "pool.trim.keep_device_free",
                  "pool.out_of_memory.wait", "pool.policy", "alerts.fragmentation_ratio",
                  "alerts.required_block_bytes"}));
  for (const Pool* pool : pools_) {
    const StatsV1 stats = pool->stats();
    EXPECT_EQ(stats.limit_bytes, 256 * kMiB);
    EXPECT_EQ(stats.threshold_fragmentation_ratio, 0.7);
    EXPECT_EQ(stats.threshold_required_block_bytes, 8 * kMiB);
    EXPECT_EQ(pool->runtime_options().recycling, Recycling::pressure);
    EXPECT_EQ(pool->runtime_options().trim.idle_bytes_per_second, 2 * kMiB);
    EXPECT_EQ(pool->runtime_options().policy, CrossStreamPolicy::wait);
  }
}

TEST_F(ConfigReloaderTest, EveryOtherKeyTakesARestartAndNothingChanges) {
  const std::string before = "pool: {capacity: 512MiB}";
  start(before);
  EXPECT_EQ(refused_by("pool: {capacity: 256MiB, name: other, backing: cudamalloc, reserve: 2MiB,"
                       " cache_small: 1MiB, cache_large: 1MiB, watched_sizes: [2MiB],"
                       " on_misuse: abort, verify_streams: true, contiguous: handle,"
                       " debug: {poison: true}}\n"
                       "exporter: {port: 9400, bind: \"::1\", job: {rank: 3}}\n"
                       "alerts: {fragmentation_ratio: 0.7}\n"
                       "tags: [a]\n"),
            (Keys{"pool.name", "pool.reserve", "pool.backing", "pool.on_misuse", "pool.cache_small",
                  "pool.cache_large", "pool.watched_sizes", "pool.verify_streams",
                  "pool.contiguous", "pool.debug.poison", "exporter.bind", "exporter.port",
                  "exporter.port_count", "exporter.on_port_taken", "exporter.job.rank", "tags"}));
  EXPECT_EQ(pools_[0]->stats().limit_bytes, 512 * kMiB);
  EXPECT_EQ(pools_[0]->stats().threshold_fragmentation_ratio, 0.5);
  // The old one is what the next is compared with.
  EXPECT_EQ(changed_by(before), Keys{});
  EXPECT_EQ(changed_by("pool: {capacity: 512MiB, slack: 1%}"), Keys{"pool.slack"});
}

TEST_F(ConfigReloaderTest, WhatOnePoolCannotHaveNoneHas) {
  start("pool: {capacity: 512MiB, slack: 1%}", 3);
  // The last one has addresses for four times its size and no more: what the first two take.
  auto small = Pool::create(*devices_[2], {.name = "small", .capacity = 4 * kMiB});
  ASSERT_TRUE(small.ok());
  pools_.back() = small.value().get();
  EXPECT_EQ(refused_by("pool: {capacity: 900MiB, slack: 2%}"), Keys{"pool.capacity"});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pools_[i]->stats().limit_bytes, (i == 2 ? 4 : 512) * kMiB) << i;
  }
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(pools_[i]->runtime_options().slack, 0.01) << i;
  EXPECT_FALSE(reloader_->state().is_successful);
  pools_.pop_back();
  EXPECT_EQ(changed_by("pool: {capacity: 900MiB, slack: 2%}"),
            (Keys{"pool.capacity", "pool.slack"}));
  owned_.pop_back();
}

TEST_F(ConfigReloaderTest, TheCapacityThatTheProgramHasSetStaysUnlessTheFileSaysAnother) {
  start("pool: {capacity: 512MiB}");
  ASSERT_TRUE(pools_[0]->set_capacity(100 * kMiB).ok());
  EXPECT_EQ(changed_by("pool: {capacity: 512MiB, slack: 1%}"), Keys{"pool.slack"});
  EXPECT_EQ(pools_[0]->stats().limit_bytes, 100 * kMiB);
  EXPECT_EQ(changed_by("pool: {capacity: 50%, slack: 1%}"), Keys{"pool.capacity"});
  EXPECT_EQ(pools_[0]->stats().limit_bytes, 512 * kMiB);
}

TEST_F(ConfigReloaderTest, AFileThatIsWrongChangesNothingAndIsSaid) {
  const TemporaryFolder folder;
  start("pool: {capacity: 512MiB}");
  const std::uint64_t started = reloader_->state().success_unix_ns;
  EXPECT_TRUE(reloader_->state().is_successful);
  EXPECT_NEAR(static_cast<double>(started) / 1e9, static_cast<double>(std::time(nullptr)), 5);

  folder.write("gpupool.yaml", "pool: {capacity: 512MiB, slack: 1%, slakc: 2%}");
  const auto wrong = reloader_->reload_file(folder.path("gpupool.yaml"), pools_);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().at(0).key_path, "pool.slakc");
  EXPECT_EQ(wrong.error().at(0).line, 1);
  EXPECT_FALSE(reloader_->state().is_successful);
  EXPECT_EQ(reloader_->state().success_unix_ns, started);
  EXPECT_EQ(pools_[0]->runtime_options().slack, 0.005);

  EXPECT_FALSE(reloader_->reload_file(folder.path("missing"), pools_).ok());
  folder.write("gpupool.yaml", "pool: {capacity: 512MiB, slack: 1%}");
  EXPECT_TRUE(reloader_->reload_file(folder.path("gpupool.yaml"), pools_).ok());
  EXPECT_TRUE(reloader_->state().is_successful);
  EXPECT_GT(reloader_->state().success_unix_ns, started);
  EXPECT_EQ(pools_[0]->runtime_options().slack, 0.01);
}

TEST_F(ConfigReloaderTest, CaseF4ReloadedAgainAndAgainTheMemoryIsFlat) {
  const TemporaryFolder folder;
  start("pool: {capacity: 512MiB}");
  const std::vector<std::string> files = {
      "pool: {capacity: 512MiB}\nalerts: {fragmentation_ratio: 0.7}\n",
      "pool:\n",
      "pool: [1, 2]\n",
      "pool: text\n",
      "alerts: {largest_fre_block_alert: 0.5}\n",
      "pool: {capacity: 256MiB, slack: 1%}\n",
      "pool: {capacity: 512MiB, name: other}\n"};
  for (std::size_t i = 0; i < files.size(); ++i) folder.write(std::to_string(i), files[i]);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const int rounds = 2'000;  // each takes many times as long
#else
  const int rounds = 100'000;
#endif
  const int warm = 200;
  std::size_t before = 0;
  int taken = 0;
  for (int i = 0; i < rounds; ++i) {
    if (i == warm) before = mallinfo2().uordblks;
    const std::size_t n = static_cast<std::size_t>(i) % files.size();
    taken += reloader_->reload_file(folder.path(std::to_string(n)), pools_).ok() ? 1 : 0;
  }
  EXPECT_EQ(taken, rounds / 7 * 2 + (rounds % 7 > 0 ? 1 : 0) + (rounds % 7 > 5 ? 1 : 0));
  EXPECT_LT(mallinfo2().uordblks, before + 1'024);
}

}  // namespace
}  // namespace gpupool
