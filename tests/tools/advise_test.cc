// `gpupool advise`: the search on a device whose costs are made up, and on the samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/units.h"
#include "tools/advise/advisor.h"
#include "tools/advise/report.h"

namespace gpupool::tools {
namespace {

constexpr std::uint64_t kRequested = 1'000'000;

/// Held is `ratio` times kRequested; waiting is a share of one second.
struct Figures {
  double ratio = 1;
  double wait_share = 0;
  std::uint64_t failed = 0;
  std::uint64_t failed_bytes = 0;
};

/// Costs as a function says; remembers what was asked.
class MadeUpTester final : public SettingTester {
 public:
  using Model = std::function<Figures(const Setting&, const Trace&)>;
  explicit MadeUpTester(Model model) : model_(std::move(model)) {}

  std::string find_refusal(const Setting& setting) override {
    return refuses(setting) ? std::string(to_string(setting.recycling)) + " is refused" : "";
  }

  Result<TraceCost, ReplayFailure> measure(const Setting& setting, const Trace& trace) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    asked.emplace_back(setting, trace.name);
    if (fails(setting)) return ReplayFailure{ExitCode::usage, "no such device"};
    const Figures figures = model_(setting, trace);
    TraceCost cost;
    cost.failed = figures.failed;
    cost.failed_bytes = figures.failed_bytes;
    cost.peak_requested_bytes = kRequested;
    cost.peak_held_bytes = static_cast<std::uint64_t>(figures.ratio * kRequested);
    cost.warm.wait_seconds = figures.wait_share;
    cost.cold.wait_seconds = 2 * figures.wait_share;
    return cost;
  }

  Result<std::optional<std::uint64_t>, ReplayFailure> find_need(const Setting& setting,
                                                                const Trace& trace) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++needs_asked;
    return needs(setting, trace);
  }

  /// What a setting needs of a device.
  std::function<std::optional<std::uint64_t>(const Setting&, const Trace&)> needs =
      [](const Setting&, const Trace&) { return std::optional<std::uint64_t>(); };
  int needs_asked = 0;
  std::function<bool(const Setting&)> refuses = [](const Setting&) { return false; };
  std::function<bool(const Setting&)> fails = refuses;
  std::vector<std::pair<Setting, std::string>> asked;

 private:
  Model model_;
  std::mutex mutex_;
};

double cache_mib(const Setting& setting) {
  return static_cast<double>(setting.cache_large_bytes) / static_cast<double>(kMiB);
}

/// Tighter slack holds less and waits longer; large caches hold more.
Figures usual(const Setting& setting, const Trace&) {
  Figures figures;
  if (setting.recycling == Recycling::eager) {
    figures.ratio = 1.0 + setting.slack_percent / 100;
    figures.wait_share = 0.01 / (1 + 10 * setting.slack_percent);
  } else {
    figures.ratio = 1.15;
  }
  if (setting.alias_reuse == AliasReuse::same_stream) figures.wait_share /= 4;
  figures.ratio += cache_mib(setting) / 1e4;
  return figures;
}

std::vector<Trace> named(const std::vector<std::string>& names) {
  std::vector<Trace> traces;
  traces.reserve(names.size());
  for (const std::string& name : names) {
    traces.push_back(parse_trace(name + ".trace", "a 0 4096 0 500000\nf 0 500000\n").value());
  }
  return traces;
}

Trace sample() { return load_trace(GPUPOOL_TEST_DATA "/fsdp_streams-s1.trace.gz").value(); }

class AdviseTest : public ::testing::Test {
 protected:
  Advice advise_on(SettingTester& tester) {
    auto advice = advise(traces_, options_, tester);
    EXPECT_TRUE(advice.ok());
    return std::move(advice).value();
  }
  Advice advise_on(const MadeUpTester::Model& model) {
    MadeUpTester tester(model);
    return advise_on(tester);
  }
  const Trial& chosen(const Advice& advice) { return advice.trials.at(advice.chosen.value()); }

  std::vector<Trace> traces_ = named({"one"});
  AdviseOptions options_;
};

/// What the header promises, looked up by going through all that was tried.
void expect_least_memory_within_budget(const Advice& advice, const AdviseOptions& options) {
  ASSERT_TRUE(advice.chosen.has_value());
  const Trial& chosen = advice.trials[*advice.chosen];
  for (const TraceCost& cost : chosen.traces) {
    EXPECT_EQ(cost.failed, 0u);
    EXPECT_LE(100 * cost.warm.wait_seconds / cost.seconds, options.budget_percent);
  }
  for (const Trial& trial : advice.trials) {
    double ratio = 0;
    double wait_share = 0;
    std::uint64_t failed = 0;
    for (const TraceCost& cost : trial.traces) {
      ratio = std::max(ratio, cost.held_ratio());
      wait_share = std::max(wait_share, cost.warm.wait_seconds / cost.seconds);
      failed += cost.failed;
    }
    if (failed != 0 || wait_share * 100 > options.budget_percent) continue;
    if (trial.setting.alias_reuse == AliasReuse::same_stream && !options.allows_same_stream) {
      continue;
    }
    EXPECT_LE(chosen.worst_ratio(), ratio) << policy_text(trial.setting);
  }
}

TEST_F(AdviseTest, TheLeastMemoryWithinTheBudget) {
  const Advice advice = advise_on(usual);
  expect_least_memory_within_budget(advice, options_);
  // 0.01 / (1 + 10 x 0.5) of the time is 0.17 %, without slack it would be 1 %.
  const Setting expected{Recycling::eager, 0.5, AliasReuse::wait, 0};
  EXPECT_EQ(chosen(advice).setting, expected);
  EXPECT_TRUE(std::is_sorted(
      advice.trials.begin(), advice.trials.end(),
      [](const Trial& a, const Trial& b) { return a.worst_ratio() < b.worst_ratio(); }));
  EXPECT_EQ(advice.trials.at(advice.defaults).setting, Setting());
}

TEST_F(AdviseTest, ALargerBudgetNeverNeedsMoreMemory) {
  double last = 10;
  for (const double budget : {0.0, 0.02, 0.1, 0.3, 2.0}) {
    options_.budget_percent = budget;
    const Advice advice = advise_on(usual);
    expect_least_memory_within_budget(advice, options_);
    EXPECT_LE(chosen(advice).worst_ratio(), last) << budget;
    last = chosen(advice).worst_ratio();
  }
  EXPECT_DOUBLE_EQ(last, 1.0);
}

TEST_F(AdviseTest, WithoutABudgetNobodyWaits) {
  options_.budget_percent = 0;
  const Trial& trial = chosen(advise_on(usual));
  EXPECT_EQ(trial.setting.recycling, Recycling::off);
  EXPECT_EQ(trial.warm_wait_share(), 0);
}

TEST_F(AdviseTest, WhereNoneKeepsToTheBudgetTheOneThatWaitsLeast) {
  const Advice advice = advise_on([](const Setting& setting, const Trace& trace) {
    Figures figures = usual(setting, trace);
    figures.wait_share += 0.5;
    return figures;
  });
  EXPECT_EQ(chosen(advice).setting.recycling, Recycling::off);
  EXPECT_EQ(chosen(advice).setting.cache_large_bytes, 0u) << "and the least memory among those";
  EXPECT_FALSE(is_within_budget(chosen(advice), options_));
}

TEST_F(AdviseTest, EqualCostsMeanTheDefaults) {
  const Advice advice = advise_on([](const Setting&, const Trace&) { return Figures{1.1, 0, 0}; });
  EXPECT_EQ(chosen(advice).setting, Setting());
  EXPECT_EQ(*advice.chosen, advice.defaults);
}

TEST_F(AdviseTest, WhatFailsRequestsIsNeverAdvised) {
  const auto model = [](const Setting& setting, const Trace& trace) {
    Figures figures = usual(setting, trace);
    if (setting.recycling != Recycling::pressure) figures.failed = 3;
    return figures;
  };
  EXPECT_EQ(chosen(advise_on(model)).setting.recycling, Recycling::pressure);
  const Advice none = advise_on([&](const Setting& setting, const Trace& trace) {
    Figures figures = usual(setting, trace);
    figures.failed = 7;
    return figures;
  });
  EXPECT_FALSE(none.chosen.has_value());
  EXPECT_FALSE(none.with_same_stream.has_value());
}

TEST_F(AdviseTest, WhereNoneServesAllTheBytesNotServedDecideAndTheNeedIsSearched) {
  traces_ = named({"one", "two"});
  // off refuses a few large requests, and so has room for all small ones.
  MadeUpTester tester([](const Setting& setting, const Trace&) {
    if (setting.recycling == Recycling::off) return Figures{0.9, 0, 3, 900};
    if (setting.recycling == Recycling::pressure) {
      return Figures{1, 0, 200, setting.alias_reuse == AliasReuse::wait ? 400u : 390u};
    }
    return Figures{0.95, 0, 100, 500};
  });
  tester.needs = [](const Setting& setting, const Trace& trace) -> std::optional<std::uint64_t> {
    if (setting.recycling == Recycling::off) return std::nullopt;
    const std::uint64_t more = trace.name == "two" ? 100 : 0;
    return (setting.recycling == Recycling::pressure ? 2000 : 3000) + more;
  };
  const Advice advice = advise_on(tester);
  EXPECT_FALSE(advice.chosen.has_value());
  EXPECT_EQ(advice.trials.front().setting.recycling, Recycling::pressure);
  const auto shown =
      std::count_if(advice.trials.begin(), advice.trials.end(),
                    [&](const Trial& trial) { return is_allowed(trial.setting, options_); });
  EXPECT_EQ(shown, 12) << "of what may be advised all neighbours, as elsewhere";
  EXPECT_EQ(advice.trials.back().setting.recycling, Recycling::off);
  EXPECT_EQ(advice.trials.back().failed(), 6u);
  EXPECT_EQ(advice.trials.back().failed_bytes(), 1800u);

  EXPECT_EQ(tester.needs_asked, 6);
  ASSERT_EQ(advice.needs.size(), 3u);
  EXPECT_EQ(advice.needs[0].setting.recycling, Recycling::off);
  EXPECT_EQ(advice.needs[0].capacity_bytes, std::nullopt);
  EXPECT_EQ(advice.needs[1].capacity_bytes, 2100u) << "of the trace that needs most";
  EXPECT_EQ(advice.needs[2].setting, Setting());
  EXPECT_EQ(advice.needs[2].capacity_bytes, 3100u);
  EXPECT_EQ(find_least(advice.needs)->setting.recycling, Recycling::pressure);
  EXPECT_EQ(find_least({{advice.needs[1].setting, 5}, {Setting(), 5}})->setting, Setting());
  EXPECT_EQ(find_least({advice.needs[0]}), std::nullopt);

  MadeUpTester served(usual);
  EXPECT_TRUE(advise_on(served).needs.empty());
  EXPECT_EQ(served.needs_asked, 0) << "only where nothing is advised";
}

TEST_F(AdviseTest, TheNeedIsWhatReplayFindsAndServesAll) {
  traces_ = {sample()};
  options_.replay.capacity_bytes = std::uint64_t{1} << 30;
  ReplayTester tester(options_, [](const Setting&, const Trace&) {});
  Setting setting;
  setting.recycling = Recycling::pressure;
  EXPECT_GT(tester.measure(setting, traces_[0]).value().failed_bytes, 0u);
  const std::uint64_t need = tester.find_need(setting, traces_[0]).value().value();
  options_.replay.capacity_bytes = need;
  ReplayTester roomy(options_, [](const Setting&, const Trace&) {});
  const TraceCost cost = roomy.measure(setting, traces_[0]).value();
  EXPECT_EQ(cost.failed, 0u);
  EXPECT_EQ(cost.failed_bytes, 0u);
  options_.replay.capacity_bytes = need - (2 * kMiB);
  ReplayTester tight(options_, [](const Setting&, const Trace&) {});
  EXPECT_GT(tight.measure(setting, traces_[0]).value().failed, 0u);
}

TEST_F(AdviseTest, HowManySettingsThereAre) {
  // The figures of the README and of advisor.h.
  EXPECT_EQ(advise_on([](const Setting&, const Trace&) { return Figures{}; }).trials.size(), 19u);
  EXPECT_EQ(with_each_policy({}).size() * kCacheLargeSizes.size(), 75u);
  // Another size of the caches is best: each policy again, with that.
  const Advice other = advise_on([](const Setting& setting, const Trace&) {
    Setting usual_cache = setting;
    usual_cache.cache_large_bytes = Setting().cache_large_bytes;
    return Figures{(usual_cache == Setting() ? 1 : 2) + cache_mib(setting) / 1000, 0, 0};
  });
  EXPECT_EQ(other.trials.size(), 33u);
}

TEST_F(AdviseTest, SameStreamIsTriedAndNamedButOnlyAdvisedWhereAllowed) {
  const Advice advice = advise_on(usual);
  EXPECT_EQ(chosen(advice).setting.alias_reuse, AliasReuse::wait);
  ASSERT_TRUE(advice.with_same_stream.has_value());
  // A quarter of 1 % keeps to the budget.
  const Setting& bolder = advice.trials[*advice.with_same_stream].setting;
  EXPECT_EQ(bolder.alias_reuse, AliasReuse::same_stream);
  EXPECT_EQ(bolder.slack_percent, 0);

  options_.allows_same_stream = true;
  const Advice allowed = advise_on(usual);
  expect_least_memory_within_budget(allowed, options_);
  const Setting expected{Recycling::eager, 0, AliasReuse::same_stream, 0};
  EXPECT_EQ(chosen(allowed).setting, expected);
  EXPECT_FALSE(allowed.with_same_stream.has_value());
}

TEST_F(AdviseTest, TheChoiceHoldsForEveryTrace) {
  traces_ = named({"calm", "busy", "other"});
  const auto model = [](const Setting& setting, const Trace& trace) {
    Figures figures = usual(setting, trace);
    if (trace.name == "busy") figures.wait_share *= 5;
    return figures;
  };
  const Advice advice = advise_on(model);
  expect_least_memory_within_budget(advice, options_);
  EXPECT_EQ(chosen(advice).setting.slack_percent, 2) << "5 x 0.01 / 21 is 0.24 %";
  EXPECT_EQ(chosen(advice).traces.size(), 3u);
}

TEST_F(AdviseTest, EachTraceIsAlsoJudgedAlone) {
  traces_ = named({"calm", "busy"});
  const auto model = [](const Setting& setting, const Trace& trace) {
    Figures figures = usual(setting, trace);
    if (trace.name == "busy") figures.wait_share *= 5;
    return figures;
  };
  const Advice advice = advise_on(model);
  const auto slack = [&](std::optional<std::size_t> index) {
    return advice.trials.at(index.value()).setting.slack_percent;
  };
  EXPECT_EQ(slack(choose(advice.trials, options_, 0)), 0.5);
  EXPECT_EQ(slack(choose(advice.trials, options_, 1)), 2);
  EXPECT_EQ(choose(advice.trials, options_), advice.chosen);
}

TEST_F(AdviseTest, TheWorstTraceDecides) {
  traces_ = named({"grows", "shrinks"});
  const auto model = [](const Setting& setting, const Trace& trace) {
    const double mib = cache_mib(setting);
    return Figures{trace.name == "grows" ? 1.2 + mib / 1000 : 1.3 - mib / 1000, 0, 0};
  };
  EXPECT_EQ(chosen(advise_on(model)).setting.cache_large_bytes, 32 * kMiB);
}

TEST_F(AdviseTest, EachSettingIsPlayedOnceAndAllNeighboursOfTheChosenAre) {
  traces_ = named({"one", "two"});
  MadeUpTester tester(usual);
  const Advice advice = advise_on(tester);
  EXPECT_EQ(tester.asked.size(), 2 * advice.trials.size());
  for (std::size_t i = 0; i < tester.asked.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(tester.asked[i] == tester.asked[j]);
  }
  std::vector<Setting> neighbours = with_each_policy(chosen(advice).setting);
  const std::vector<Setting> caches = with_each_cache(chosen(advice).setting);
  neighbours.insert(neighbours.end(), caches.begin(), caches.end());
  for (const Setting& setting : neighbours) {
    EXPECT_TRUE(std::any_of(advice.trials.begin(), advice.trials.end(), [&](const Trial& trial) {
      return trial.setting == setting;
    })) << policy_text(setting);
  }
}

TEST_F(AdviseTest, ASecondTurnFindsWhatTheFirstMade) {
  // No slack is only affordable with a small cache, which is only found with some slack.
  const auto model = [](const Setting& setting, const Trace& trace) {
    Figures figures = usual(setting, trace);
    if (setting.cache_large_bytes <= 2 * kMiB) figures.wait_share /= 100;
    return figures;
  };
  EXPECT_EQ(chosen(advise_on(model)).setting.slack_percent, 0);
}

TEST_F(AdviseTest, WhatAPoolCannotHaveIsNamedOnceAndNotPlayed) {
  MadeUpTester tester(usual);
  tester.refuses = [](const Setting& setting) { return setting.recycling == Recycling::pressure; };
  const Advice advice = advise_on(tester);
  EXPECT_EQ(advice.unavailable, (std::vector<std::string>{"pressure is refused"}));
  EXPECT_FALSE(tester.asked.empty());
  for (const auto& [setting, trace] : tester.asked) {
    EXPECT_NE(setting.recycling, Recycling::pressure);
  }
  const std::string text = to_text(advice, traces_, options_, Terminal());
  EXPECT_NE(text.find("Not tried: pressure is refused."), std::string::npos);
}

TEST_F(AdviseTest, WhatCannotBePlayedIsAnError) {
  MadeUpTester tester(usual);
  tester.fails = [](const Setting& setting) { return setting.slack_percent == 5; };
  const auto advice = advise(traces_, options_, tester);
  ASSERT_FALSE(advice.ok());
  EXPECT_EQ(advice.error().message, "no such device");
}

/// With settings that this build's pool has; the figures are those of a replay of its own.
TEST_F(AdviseTest, ItsNumbersAreThoseOfAReplay) {
  traces_ = {sample()};
  options_.replay.passes = 3;
  ReplayTester tester(options_, [](const Setting&, const Trace&) {});
  const Advice advice = advise_on(tester);
  expect_least_memory_within_budget(advice, options_);
  for (const Trial& trial : advice.trials) {
    ReplayOptions options;
    options.device = DeviceChoice::simulated;
    options.passes = 3;
    options.runtime.recycling = trial.setting.recycling;
    options.runtime.slack = trial.setting.slack_percent / 100;
    options.runtime.alias_reuse = trial.setting.alias_reuse;
    options.cache_large_bytes = trial.setting.cache_large_bytes;
    Replayer replayer(options);
    const auto passes = replayer.play(traces_[0], [](const Trace&, std::uint64_t) {}).value();
    const TraceCost& cost = trial.traces[0];
    std::uint64_t held = 0;
    for (const PassResult& pass : passes) held = std::max(held, pass.peak_held_bytes);
    EXPECT_EQ(cost.peak_held_bytes, held);
    EXPECT_EQ(cost.peak_requested_bytes, passes[0].peak_requested_bytes);
    EXPECT_EQ(cost.cold.wait_seconds, passes[0].driver_wait_seconds);
    EXPECT_EQ(cost.cold.driver_calls, passes[0].driver_calls);
    EXPECT_EQ(cost.warm.wait_seconds,
              std::max(passes[1].driver_wait_seconds, passes[2].driver_wait_seconds));
    EXPECT_EQ(cost.seconds, 1.67);
  }
}

TEST_F(AdviseTest, TheSameInputGivesTheSameOutput) {
  traces_ = {sample()};
  ReplayTester tester(options_, [](const Setting&, const Trace&) {});
  const std::string first = to_json(advise_on(tester), traces_, options_);
  const std::string second = to_json(advise_on(tester), traces_, options_);
  EXPECT_EQ(first, second);
}

TEST_F(AdviseTest, TheSmallestCapacityIsFoundOnRequest) {
  traces_ = {sample()};
  options_.searches_capacity = true;
  ReplayTester tester(options_, [](const Setting&, const Trace&) {});
  const auto cost = tester.measure(Setting(), traces_[0]);
  ASSERT_TRUE(cost.ok());
  ASSERT_TRUE(cost.value().smallest_capacity_bytes.has_value());
  EXPECT_GE(*cost.value().smallest_capacity_bytes, cost.value().peak_requested_bytes);
  EXPECT_LE(*cost.value().smallest_capacity_bytes, cost.value().peak_held_bytes);
}

TEST_F(AdviseTest, TracesWithoutTimeRunAtTheAssumedRate) {
  const std::vector<Trace> traces = {
      parse_trace("t.csv", "id,lower,upper,size\n0,0,2,3000\n1,1,3,5000\n").value(),
      parse_trace("instant.trace", "a 0 4096 0 0\nf 0 0\n").value()};
  options_.operations_per_second = 100;
  ReplayTester tester(options_, [](const Setting&, const Trace&) {});
  EXPECT_DOUBLE_EQ(tester.measure(Setting(), traces[0]).value().seconds, 0.04);
  EXPECT_DOUBLE_EQ(tester.measure(Setting(), traces[1]).value().seconds, 0.02);
}

}  // namespace
}  // namespace gpupool::tools
