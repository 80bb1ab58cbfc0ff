// The large part of a thread's cache: exact sizes, evicted whole.
#include "cache/run_bins.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace gpupool::internal {
namespace {

constexpr std::uint64_t kNoLimit = ~std::uint64_t{0} >> 1;

class RunBinsTest : public testing::Test {
 protected:
  RunBinsTest() : blocks_(5000) {
    bins_.start();
    bins_.set_limit(kNoLimit);
  }

  bool put(std::uint32_t id, std::uint32_t units) { return bins_.put(id, units, blocks_.data()); }
  std::uint32_t take(std::uint64_t units) { return bins_.take(units, blocks_.data()); }
  std::vector<std::uint32_t> blocks_of(const RunChain& chain) const {
    std::vector<std::uint32_t> ids;
    for (std::uint32_t id = chain.head; id != 0; id = blocks_[id].record.next.get()) {
      ids.push_back(id);
    }
    EXPECT_EQ(ids.size(), chain.blocks);
    EXPECT_EQ(chain.bytes(), std::uint64_t{chain.blocks} * chain.units * kUnitBytes);
    return ids;
  }
  /// Three sizes of which the third finds no slot while the others have blocks.
  std::array<std::uint32_t, 3> sizes_that_meet() {
    constexpr std::uint32_t kFirst = 33;
    for (std::uint32_t second = kFirst + 1;; ++second) {
      for (std::uint32_t third = second + 1; third < second + 500; ++third) {
        RunBins bins;
        bins.start();
        bins.set_limit(kNoLimit);
        EXPECT_TRUE(bins.put(1, kFirst, blocks_.data()));
        EXPECT_TRUE(bins.put(2, second, blocks_.data()));
        if (!bins.put(3, third, blocks_.data())) return {kFirst, second, third};
      }
    }
  }

  std::vector<internal::Run> blocks_;
  RunBins bins_;
};

TEST_F(RunBinsTest, GivesExactlyTheSizeTheNewestFirst) {
  EXPECT_TRUE(put(1, 100));
  EXPECT_TRUE(put(2, 100));
  EXPECT_TRUE(put(3, 101));
  EXPECT_EQ(bins_.bytes(), 301 * kUnitBytes);
  EXPECT_EQ(take(99), 0u);
  EXPECT_EQ(take(102), 0u);
  EXPECT_EQ(take(0), 0u);
  EXPECT_EQ(take(100 + (std::uint64_t{1} << 32)), 0u);  // no more than its low bits agree
  EXPECT_EQ(take(100), 2u);
  EXPECT_EQ(take(100), 1u);
  EXPECT_EQ(take(100), 0u);
  EXPECT_EQ(take(101), 3u);
  EXPECT_EQ(bins_.bytes(), 0u);
}

TEST_F(RunBinsTest, TheLimitHoldsToTheByte) {
  bins_.set_limit(300 * kUnitBytes);
  EXPECT_TRUE(put(1, 100));
  EXPECT_TRUE(put(2, 200));
  EXPECT_FALSE(put(3, 33));
  EXPECT_EQ(take(100), 1u);
  EXPECT_FALSE(put(1, 101));
  EXPECT_FALSE(bins_.put_chain({1, 2, 51}));
  EXPECT_TRUE(put(1, 100));
  // What is here stays where the limit falls below it, and nothing more comes in.
  bins_.set_limit(0);
  EXPECT_FALSE(put(3, 33));
  EXPECT_EQ(take(200), 2u);
  EXPECT_FALSE(put(2, 200));
  EXPECT_EQ(bins_.bytes(), 100 * kUnitBytes);
}

TEST_F(RunBinsTest, TwoSizesThatMeetHaveASlotEachAThirdWaits) {
  const auto sizes = sizes_that_meet();
  EXPECT_TRUE(put(1, sizes[0]));
  EXPECT_TRUE(put(2, sizes[1]));
  EXPECT_FALSE(put(3, sizes[2]));
  EXPECT_EQ(bins_.bytes(), (sizes[0] + sizes[1]) * kUnitBytes);
  EXPECT_EQ(take(sizes[2]), 0u);
  EXPECT_EQ(take(sizes[0]), 1u);
  EXPECT_TRUE(put(3, sizes[2]));  // the slot is empty now
  EXPECT_EQ(take(sizes[1]), 2u);
  EXPECT_EQ(take(sizes[2]), 3u);
}

TEST_F(RunBinsTest, WhatStandsInTheWayIsEvictedFirst) {
  const auto sizes = sizes_that_meet();
  ASSERT_TRUE(put(1, sizes[0]));
  ASSERT_TRUE(put(2, sizes[1]));
  // Others everywhere, so that "the next in turn" would hardly be the one.
  std::uint32_t id = 10;
  for (std::uint32_t units = 3000; units < 3100; ++units) put(id++, units);
  ASSERT_FALSE(put(3, sizes[2]));
  const RunChain evicted = bins_.evict_other(sizes[2], blocks_.data());
  EXPECT_TRUE(evicted.units == sizes[0] || evicted.units == sizes[1]);
  EXPECT_TRUE(put(3, sizes[2]));
}

TEST_F(RunBinsTest, EvictsEverySizeInTurnButTheOneAsked) {
  std::set<std::uint32_t> sizes;
  std::uint32_t id = 1;
  for (std::uint32_t units = 40; units < 80; ++units) {
    if (put(id, units)) sizes.insert(units), ++id;
  }
  ASSERT_GT(sizes.size(), 20u);
  const std::uint32_t kept = *sizes.begin();
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    const RunChain chain = bins_.evict_other(kept, blocks_.data());
    ASSERT_NE(chain.head, 0u);
    ASSERT_NE(chain.units, kept);
    ASSERT_EQ(sizes.count(chain.units), 1u);
    EXPECT_EQ(take(chain.units), 0u);
  }
  EXPECT_EQ(bins_.evict_other(kept, blocks_.data()).head, 0u);
  EXPECT_NE(take(kept), 0u);
  EXPECT_EQ(bins_.evict_other(0, blocks_.data()).head, 0u);
}

TEST_F(RunBinsTest, TheOlderHalfGoesTheNewerStays) {
  for (std::uint32_t id = 1; id <= 7; ++id) EXPECT_TRUE(put(id, 50));
  const auto cut_older_half = [&] {
    const RunBatch older = bins_.find_older_half(50, blocks_.data());
    if (older.blocks > 0) bins_.cut(older, blocks_.data());
    return std::vector<std::uint32_t>(older.ids.begin(), older.ids.begin() + older.blocks);
  };
  EXPECT_EQ(cut_older_half(), (std::vector<std::uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ(bins_.bytes(), 3 * 50 * kUnitBytes);
  EXPECT_EQ(cut_older_half(), (std::vector<std::uint32_t>{5, 6}));
  EXPECT_EQ(cut_older_half(), std::vector<std::uint32_t>{7});
  EXPECT_TRUE(cut_older_half().empty());
  EXPECT_EQ(bins_.find_older_half(51, blocks_.data()).blocks, 0u);
  EXPECT_EQ(bins_.bytes(), 0u);
}

TEST_F(RunBinsTest, NoHalfIsFoundWhileThereAreOtherSizes) {
  for (std::uint32_t id = 1; id <= 4; ++id) ASSERT_TRUE(put(id, 50));
  ASSERT_TRUE(put(5, 49));
  ASSERT_TRUE(put(6, 51));
  EXPECT_EQ(bins_.find_older_half(50, blocks_.data()).blocks, 0u);
  EXPECT_EQ(bins_.find_older_half(49, blocks_.data()).blocks, 0u);
  bins_.evict_other(50, blocks_.data());
  EXPECT_EQ(bins_.find_older_half(50, blocks_.data()).blocks, 0u);
  bins_.evict_other(50, blocks_.data());
  EXPECT_EQ(bins_.find_older_half(50, blocks_.data()).blocks, 2u);
  EXPECT_EQ(bins_.bytes(), 4 * 50 * kUnitBytes);  // finding takes nothing out
}

TEST_F(RunBinsTest, NoHalfIsLookedForAmongVeryMany) {
  std::uint32_t id = 1;
  for (; id <= RunBins::kMostWalked; ++id) ASSERT_TRUE(put(id, 33));
  EXPECT_GT(bins_.find_older_half(33, blocks_.data()).blocks, 0u);
  ASSERT_TRUE(put(id, 33));
  EXPECT_EQ(bins_.find_older_half(33, blocks_.data()).blocks, 0u);
  for (; id > 0; --id) EXPECT_EQ(take(33), id);
}

TEST_F(RunBinsTest, NearestIsTheSmallestThatIsEnoughElseTheLargest) {
  for (const std::uint32_t units : {40u, 60u, 90u}) ASSERT_TRUE(put(units, units));
  const auto nearest = [&](std::uint32_t units) {
    const RunChain chain = bins_.take_nearest(units, blocks_.data());
    EXPECT_TRUE(chain.head == 0 || bins_.put_chain(chain));
    return chain.units;
  };
  EXPECT_EQ(nearest(1), 40u);
  EXPECT_EQ(nearest(40), 40u);
  EXPECT_EQ(nearest(41), 60u);
  EXPECT_EQ(nearest(90), 90u);
  EXPECT_EQ(nearest(91), 90u);
  bins_.start();
  EXPECT_EQ(nearest(1), 0u);
}

TEST_F(RunBinsTest, AtRestItKeepsNothingMore) {
  ASSERT_TRUE(put(1, 70));
  EXPECT_EQ(bins_.evict_other(0, blocks_.data()).head, 1u);
  bins_.rest();
  EXPECT_EQ(bins_.limit_bytes(), 0u);
  EXPECT_FALSE(put(1, 70));
  EXPECT_EQ(take(70), 0u);
  bins_.set_limit(70 * kUnitBytes);
  EXPECT_TRUE(put(1, 70));
}

TEST_F(RunBinsTest, AChainNeedsAnEmptySlot) {
  ASSERT_TRUE(put(1, 70));
  EXPECT_FALSE(bins_.put_chain({2, 1, 70}));
  EXPECT_EQ(take(70), 1u);
  blocks_[2].record.next.set(3);
  blocks_[3].record.next.set(0);
  EXPECT_TRUE(bins_.put_chain({2, 2, 70}));
  EXPECT_EQ(bins_.bytes(), 140 * kUnitBytes);
  EXPECT_EQ(take(70), 2u);
  EXPECT_EQ(take(70), 3u);
}

// Any order of operations against a multimap; sizes are few enough to be met again and many enough
// to stand in each other's way.
class RunBinsTrialTest : public RunBinsTest {
 protected:
  void start(std::uint64_t seed) {
    random_.seed(seed);
    bins_.start();
    limit_ = (seed % 3 == 0 ? 200'000 : 20'000) * kUnitBytes;
    bins_.set_limit(limit_);
    model_.clear();
    unused_.clear();
    for (std::uint32_t id = 1; id < blocks_.size(); ++id) unused_.push_back(id);
    bytes_ = 0;
  }
  void operate() {
    const auto units = static_cast<std::uint32_t>(33 + random_() % 12 * 17 + random_() % 20);
    switch (random_() % 8) {
      case 0:
      case 1:
      case 2:
      case 3: put_one(units); break;
      case 4:
      case 5: take_one(units); break;
      case 6:
        if (random_() % 4 == 0) take_out(bins_.evict_other(units, blocks_.data()), true);
        if (random_() % 4 == 0) take_out(bins_.take_nearest(units, blocks_.data()), true);
        break;
      case 7: cut_older_half(units); break;
    }
    ASSERT_EQ(bins_.bytes(), bytes_);
    ASSERT_LE(bytes_, limit_);
  }
  /// evict_other() finds all that is left.
  void evict_all() {
    for (;;) {
      const RunChain chain = bins_.evict_other(0, blocks_.data());
      if (chain.head == 0) break;
      take_out(chain, true);
    }
    ASSERT_EQ(bins_.bytes(), 0u);
    ASSERT_EQ(bytes_, 0u);
  }

 private:
  void put_one(std::uint32_t units) {
    if (unused_.empty()) return;
    const bool is_known = !model_[units].empty();
    if (!put(unused_.back(), units)) {
      // Only for the limit, or for the slot.
      ASSERT_TRUE(bytes_ + units * kUnitBytes > limit_ || !is_known);
      return;
    }
    model_[units].push_back(unused_.back());
    unused_.pop_back();
    bytes_ += units * kUnitBytes;
  }
  void take_one(std::uint32_t units) {
    const std::uint32_t id = take(units);
    ASSERT_EQ(id, model_[units].empty() ? 0 : model_[units].back());
    if (id == 0) return;
    model_[units].pop_back();
    unused_.push_back(id);
    bytes_ -= units * kUnitBytes;
  }
  void cut_older_half(std::uint32_t units) {
    const RunBatch older = bins_.find_older_half(units, blocks_.data());
    const std::vector<std::uint32_t>& of_size = model_[units];
    const bool is_alone = !of_size.empty() && of_size.size() * units * kUnitBytes == bytes_;
    ASSERT_EQ(older.blocks > 0, is_alone);
    if (!is_alone) return;
    bins_.cut(older, blocks_.data());
    take_out(older.link(blocks_.data()), false);
  }
  void take_out(const RunChain& chain, bool is_whole_size) {
    if (chain.head == 0) return;
    std::vector<std::uint32_t> ids = blocks_of(chain);
    std::vector<std::uint32_t>& of_size = model_[chain.units];
    std::reverse(ids.begin(), ids.end());
    ASSERT_LE(ids.size(), of_size.size());
    if (is_whole_size) {
      ASSERT_EQ(ids, of_size);
    }
    ASSERT_TRUE(std::equal(ids.begin(), ids.end(), of_size.begin()));
    of_size.erase(of_size.begin(), of_size.begin() + static_cast<std::ptrdiff_t>(ids.size()));
    bytes_ -= chain.bytes();
    unused_.insert(unused_.end(), ids.begin(), ids.end());
  }

  std::mt19937_64 random_;
  std::uint64_t limit_ = 0;
  std::uint64_t bytes_ = 0;
  std::map<std::uint32_t, std::vector<std::uint32_t>> model_;  // by units, the oldest first
  std::vector<std::uint32_t> unused_;
};

TEST_F(RunBinsTrialTest, AnyOrderOfOperationsAgainstTheModel) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    start(seed);
    for (int step = 0; step < 4000; ++step) {
      operate();
      if (HasFatalFailure()) return;
    }
    evict_all();
  }
}

}  // namespace
}  // namespace gpupool::internal
