// A program's function that is called at the thresholds of the alerts, in virtual time.
#include "gpupool/threshold_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

constexpr std::uint64_t kWatchedBlock = 8 * kMiB;
constexpr std::uint64_t kCapacity = 256 * kMiB;

struct Told {
  WatchedCondition condition;
  bool is_reached;
  std::uint64_t at_ns;
  double value;
  double threshold;
  std::uint64_t held_ns;
};

class ThresholdWatchTest : public PoolFixture {
 protected:
  void SetUp() override { make_pool_without_recycling(kCapacity); }
  void TearDown() override {
    for (void*& block : blocks_) put_back(block);
    PoolFixture::TearDown();
  }

  void make_watch(ThresholdWatchOptions options = {}) {
    options.clock = &clock_;
    watch_ = std::make_unique<ThresholdWatch>(*pool_, options, [this](const ThresholdEvent& event) {
      told_.push_back({event.condition, event.is_reached, clock_.now_ns(), event.value,
                       event.threshold, event.held_ns});
      if (then_) then_(event);
    });
  }
  void set_thresholds(const Thresholds& thresholds) {
    RuntimeOptions options = pool_->runtime_options();
    options.thresholds = thresholds;
    ASSERT_TRUE(pool_->reconfigure(options).ok());
  }
  /// Each second, for `seconds`, as a thread of upkeep does.
  void pass(std::uint64_t seconds) {
    for (std::uint64_t i = 0; i < seconds; ++i) {
      clock_.advance_ns(kSecondNs);
      watch_->check();
    }
  }
  void put_back(void*& block) {
    if (block != nullptr) free(block);
    block = nullptr;
  }
  /// All of the pool in blocks, then every other one is freed: half is free, in small pieces.
  void fragment() {
    blocks_.resize(kCapacity / kWatchedBlock);
    for (void*& block : blocks_) {
      if (block == nullptr) block = allocate(kWatchedBlock);
    }
    std::ranges::sort(blocks_);
    for (std::size_t i = 0; i < blocks_.size(); i += 2) put_back(blocks_[i]);
    settle();
    ASSERT_GT(pool_->stats().fragmentation_ratio, 0.9);
  }
  /// The first half in one piece.
  void mend() {
    for (std::size_t i = 0; i < blocks_.size() / 2; ++i) put_back(blocks_[i]);
    settle();
    ASSERT_LT(pool_->stats().fragmentation_ratio, 0.4);
  }

  VirtualClock clock_;
  std::vector<void*> blocks_;
  std::vector<Told> told_;
  std::function<void(const ThresholdEvent&)> then_;
  std::unique_ptr<ThresholdWatch> watch_;
};

TEST_F(ThresholdWatchTest, IsToldOnceItHasHeldForItsTimeAndOnceWhenItIsOver) {
  make_watch();
  pass(100);
  EXPECT_TRUE(told_.empty());
  fragment();
  pass(30);
  EXPECT_TRUE(told_.empty()) << "seen for 29 s";
  pass(1);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].condition, WatchedCondition::fragmentation);
  EXPECT_TRUE(told_[0].is_reached);
  EXPECT_EQ(told_[0].held_ns, 30 * kSecondNs);
  EXPECT_EQ(told_[0].value, pool_->stats().fragmentation_ratio);
  EXPECT_EQ(told_[0].threshold, 0.5);
  pass(1000);
  EXPECT_EQ(told_.size(), 1u) << "it still holds, which was said";
  mend();
  pass(1);
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_FALSE(told_[1].is_reached);
  EXPECT_LT(told_[1].value, 0.4);
  pass(1000);
  EXPECT_EQ(told_.size(), 2u);
}

TEST_F(ThresholdWatchTest, ABreakBeginsTheTimeAnew) {
  make_watch();
  for (int i = 0; i < 5; ++i) {
    fragment();
    pass(29);
    mend();
    pass(1);
  }
  EXPECT_TRUE(told_.empty());
}

TEST_F(ThresholdWatchTest, TheLargestRequestThatTheJobDeclared) {
  set_thresholds({.required_block_bytes = 2 * kWatchedBlock});
  make_watch();
  fragment();
  pass(3);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].condition, WatchedCondition::largest_below_required);
  EXPECT_EQ(told_[0].value, static_cast<double>(kWatchedBlock));
  EXPECT_EQ(told_[0].threshold, 2.0 * kWatchedBlock);
  EXPECT_STREQ(to_string(told_[0].condition), "largest_below_required");
  mend();
  pass(1);
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_FALSE(told_[1].is_reached);
}

TEST_F(ThresholdWatchTest, AThresholdThatIsChangedHoldsFromTheNextLook) {
  make_watch();
  fragment();
  pass(31);
  ASSERT_EQ(told_.size(), 1u);
  set_thresholds({.fragmentation_ratio = 1.0});
  pass(1);
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_FALSE(told_[1].is_reached);
  EXPECT_EQ(told_[1].threshold, 1.0);
  // None is declared any more: what was reached is over.
  set_thresholds({.fragmentation_ratio = 1.0, .required_block_bytes = 2 * kWatchedBlock});
  pass(3);
  ASSERT_EQ(told_.size(), 3u);
  set_thresholds({.fragmentation_ratio = 1.0});
  pass(1);
  ASSERT_EQ(told_.size(), 4u);
  EXPECT_FALSE(told_[3].is_reached);
  EXPECT_EQ(told_[3].threshold, 0);
}

TEST_F(ThresholdWatchTest, WhatHoversIsToldOnce) {
  make_watch({.fragmentation_hold_ns = 0, .hysteresis = 0.1, .min_gap_ns = 0});
  fragment();
  const double value = pool_->stats().fragmentation_ratio;
  for (int i = 0; i < 100; ++i) {
    // Above its threshold, and 4 % below it.
    set_thresholds({.fragmentation_ratio = value * 0.98});
    pass(1);
    set_thresholds({.fragmentation_ratio = value * 1.04});
    pass(1);
  }
  EXPECT_EQ(told_.size(), 1u);
}

TEST_F(ThresholdWatchTest, BetweenTwoTimesThatItIsReachedLiesAGap) {
  make_watch({.fragmentation_hold_ns = kSecondNs, .min_gap_ns = 60 * kSecondNs});
  for (int i = 0; i < 60; ++i) {
    fragment();
    pass(3);
    mend();
    pass(2);
  }
  std::vector<std::uint64_t> reached;
  for (const Told& told : told_) {
    if (told.is_reached) reached.push_back(told.at_ns);
  }
  ASSERT_EQ(reached.size(), 5u) << "in 300 s";
  for (std::size_t i = 1; i < reached.size(); ++i) {
    EXPECT_GE(reached[i] - reached[i - 1], 60 * kSecondNs);
  }
}

TEST_F(ThresholdWatchTest, ThePoolIsLookedAtOnceAPeriod) {
  make_watch({.fragmentation_hold_ns = 0, .period_ns = 10 * kSecondNs});
  watch_->check();
  fragment();
  pass(9);
  EXPECT_TRUE(told_.empty());
  pass(1);
  EXPECT_EQ(told_.size(), 1u);
}

TEST_F(ThresholdWatchTest, TheFunctionMayUseThePoolAndCheck) {
  make_watch({.fragmentation_hold_ns = 0});
  then_ = [this](const ThresholdEvent& event) {
    watch_->check();  // nothing: it is being done
    if (event.is_reached) mend();
    EXPECT_TRUE(pool_->reconfigure(pool_->runtime_options()).ok());
    pool_->trim(0);
  };
  fragment();
  pass(2);
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_TRUE(told_[0].is_reached);
  EXPECT_FALSE(told_[1].is_reached);
}

TEST_F(ThresholdWatchTest, WhatTheFunctionThrowsIsCountedAndGoesNoFurther) {
  make_watch({.fragmentation_hold_ns = 0});
  then_ = [](const ThresholdEvent& event) {
    if (event.is_reached) throw std::runtime_error("no checkpoint");
    throw 1;
  };
  fragment();
  pass(1);
  EXPECT_EQ(watch_->failed_calls(), 1u);
  mend();
  pass(1);
  EXPECT_EQ(watch_->failed_calls(), 2u);
  EXPECT_EQ(told_.size(), 2u) << "what it throws changes nothing of what it is told";
}

}  // namespace
}  // namespace gpupool
