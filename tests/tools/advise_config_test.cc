// What `gpupool advise` writes is read as the setting that it means.
#include <gtest/gtest.h>

#include <string>

#include "gpupool/exporter/config.h"
#include "tools/advise/yaml.h"

namespace gpupool::tools {
namespace {

/// Every setting that can be tried, and that this build's pool does not refuse.
std::vector<Setting> all_settings(ReplayTester& tester) {
  std::vector<Setting> all;
  for (const Setting& policy : with_each_policy(Setting())) {
    if (!tester.find_refusal(policy).empty()) continue;
    const std::vector<Setting> each = with_each_cache(policy);
    all.insert(all.end(), each.begin(), each.end());
  }
  return all;
}

Advice advice_of(const Setting& setting) {
  Advice advice;
  advice.trials.push_back({setting, {TraceCost()}});
  advice.chosen = 0;
  return advice;
}

class AdviseConfig : public ::testing::Test {
 protected:
  Config read_back(const Setting& setting) {
    const std::string yaml = to_yaml(advice_of(setting), traces_, options_);
    const auto config = parse_config(yaml);
    if (config.ok()) return config.value();
    for (const ConfigError& error : config.error()) {
      ADD_FAILURE() << error.text("advice") << "\n" << yaml;
    }
    return {};
  }

  std::vector<Trace> traces_ = {
      parse_trace("odd: [name, {.trace", "a 0 4096 0 1\nf 0 1\n").value()};
  AdviseOptions options_;
};

TEST_F(AdviseConfig, EverySettingComesBack) {
  ReplayTester tester(options_, [](const Setting&, const Trace&) {});
  const std::vector<Setting> settings = all_settings(tester);
  ASSERT_GE(settings.size(), kCacheLargeSizes.size());
  for (const Setting& setting : settings) {
    const PoolOptions pool = read_back(setting).pool;
    EXPECT_EQ(pool.runtime.recycling, setting.recycling);
    EXPECT_EQ(pool.runtime.slack, setting.slack_percent / 100) << "to the last bit";
    EXPECT_EQ(pool.runtime.alias_reuse, setting.alias_reuse);
    EXPECT_EQ(pool.cache_large_bytes, setting.cache_large_bytes);
    EXPECT_EQ(pool.backing, Backing::vmm);
    EXPECT_EQ(pool.capacity, CapacityLimit(1.0));
    EXPECT_EQ(pool.tags, PoolOptions().tags) << "and all else is the default";
    EXPECT_EQ(pool.cache_small_bytes, PoolOptions().cache_small_bytes);
  }
}

TEST_F(AdviseConfig, LimitAndBackingThatWereGivenComeBack) {
  options_.replay.capacity_bytes = (std::uint64_t{20} << 30) + 1;
  options_.replay.backing = Backing::cudamalloc;
  const PoolOptions pool = read_back({}).pool;
  EXPECT_EQ(pool.capacity, CapacityLimit((std::uint64_t{20} << 30) + 1));
  EXPECT_EQ(pool.backing, Backing::cudamalloc);
}

}  // namespace
}  // namespace gpupool::tools
