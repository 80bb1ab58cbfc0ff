// What one thread hands to others, chain by chain.
#include "cache/depot.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gpupool::internal {
namespace {

class DepotTest : public testing::Test {
 protected:
  DepotTest() : records_(10'000), runs_(10'000) {}

  Chain make_chain(std::uint32_t bin, std::uint32_t blocks) {
    Chain chain{0, blocks};
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const std::uint32_t code = ++last_;
      records_[code].store(BlockWord::cached(bin, 3));
      records_[code].next.set(chain.head);
      chain.head = code;
    }
    return chain;
  }
  RunBatch make_runs(std::uint32_t units, std::uint32_t blocks) {
    RunBatch batch;
    batch.units = units;
    batch.blocks = blocks;
    for (std::uint32_t i = 0; i < blocks; ++i) batch.ids[i] = ++last_;
    return batch;
  }
  static std::vector<std::uint32_t> ids_of(const RunBatch& batch) {
    return {batch.ids.begin(), batch.ids.begin() + batch.blocks};
  }
  template <class C, class R>
  static std::uint32_t length(const C& chain, R next_of) {
    std::uint32_t blocks = 0;
    for (std::uint32_t at = chain.head; at != 0; at = next_of(at)) ++blocks;
    return blocks;
  }
  std::uint32_t length(const Chain& chain) const {
    return length(chain, [this](std::uint32_t code) { return records_[code].next.get(); });
  }

  std::vector<BlockRecord> records_;
  std::vector<internal::Run> runs_;
  std::uint32_t last_ = 0;
  Depot depot_;
};

TEST_F(DepotTest, ChainsOfEveryLengthComeBackWhole) {
  const std::uint32_t bin = bin_of(512);
  std::uint64_t bytes = 0;
  for (std::uint32_t blocks = 1; blocks <= BlockWord::kMaxChain; ++blocks) {
    depot_.put(bin, make_chain(bin, blocks), records_.data());
    bytes += blocks * 512;
    EXPECT_EQ(depot_.small_bytes(), bytes);
  }
  for (std::uint32_t blocks = BlockWord::kMaxChain; blocks >= 1; --blocks) {
    const Chain chain = depot_.take(bin, records_.data());
    EXPECT_EQ(chain.blocks, blocks);
    EXPECT_EQ(length(chain), blocks);
    bytes -= blocks * 512;
    EXPECT_EQ(depot_.small_bytes(), bytes);
  }
  EXPECT_EQ(depot_.take(bin, records_.data()).head, 0u);
  EXPECT_EQ(depot_.bytes(), 0u);
}

TEST_F(DepotTest, BinsAreKeptApart) {
  depot_.put(3, make_chain(3, 2), records_.data());
  depot_.put(40, make_chain(40, 1), records_.data());
  EXPECT_EQ(depot_.take(4, records_.data()).head, 0u);
  EXPECT_NE(depot_.head(3), 0u);
  EXPECT_EQ(depot_.take(40, records_.data()).blocks, 1u);
  EXPECT_EQ(depot_.take(40, records_.data()).head, 0u);
  EXPECT_EQ(depot_.take(3, records_.data()).blocks, 2u);
  EXPECT_EQ(depot_.bytes(), 0u);
}

TEST_F(DepotTest, AnyBinIsOneThatHasAChain) {
  std::mt19937 random(1);
  std::vector<std::uint32_t> chains(kBinCount, 0);
  std::uint32_t count = 0;
  for (int step = 0; step < 3000; ++step) {
    const auto bin = static_cast<std::uint32_t>(random() % kBinCount);
    if (bin == buddy_bin(0)) continue;
    if (random() % 2 == 0 && last_ + 3 < records_.size()) {
      depot_.put(bin, make_chain(bin, 1 + random() % 2), records_.data());
      ++chains[bin], ++count;
    } else if (depot_.take(bin, records_.data()).head != 0) {
      --chains[bin], --count;
    }
    ASSERT_EQ(depot_.small_bytes() == 0, count == 0);
    if (count > 0) {
      ASSERT_GT(chains[depot_.any_bin()], 0u);
    }
  }
  while (depot_.small_bytes() > 0) depot_.take(depot_.any_bin(), records_.data());
  for (std::uint32_t bin = 0; bin < kBinCount; ++bin) EXPECT_EQ(depot_.head(bin), 0u);
}

TEST_F(DepotTest, SixteenBatchesOfRunsWhateverTheirSizes) {
  std::vector<std::vector<std::uint32_t>> ids(56);
  for (std::uint32_t units = 40; units < 56; ++units) {
    const RunBatch batch = make_runs(units, units % 2 == 0 ? 2 : RunBatch::kMost);
    ids[units] = ids_of(batch);
    EXPECT_TRUE(depot_.put_runs(batch));
  }
  const std::uint64_t bytes = depot_.run_bytes();
  EXPECT_FALSE(depot_.put_runs(make_runs(56, 1)));
  EXPECT_EQ(depot_.run_bytes(), bytes);
  EXPECT_EQ(depot_.take_runs(56, RunBatch::kMost).blocks, 0u);
  for (std::uint32_t units = 40; units < 56; ++units) {
    ASSERT_TRUE(depot_.may_have_runs(units));
    const RunBatch batch = depot_.take_runs(units, RunBatch::kMost);
    EXPECT_EQ(batch.units, units);
    EXPECT_EQ(ids_of(batch), ids[units]);
    EXPECT_EQ(depot_.take_runs(units, RunBatch::kMost).blocks, 0u);
  }
  EXPECT_EQ(depot_.run_bytes(), 0u);
  EXPECT_TRUE(depot_.put_runs(make_runs(56, 1)));  // there is place again
}

TEST_F(DepotTest, WhoHasRoomForLessTakesTheNewest) {
  ASSERT_TRUE(depot_.put_runs(make_runs(50, 7)));
  EXPECT_EQ(ids_of(depot_.take_runs(50, 3)), (std::vector<std::uint32_t>{5, 6, 7}));
  EXPECT_EQ(depot_.run_bytes(), 4 * 50 * kUnitBytes);
  EXPECT_EQ(ids_of(depot_.take_runs(50, 1)), std::vector<std::uint32_t>{4});
  EXPECT_TRUE(depot_.may_have_runs(50));
  EXPECT_EQ(ids_of(depot_.take_runs(50, 9)), (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_FALSE(depot_.may_have_runs(50));
  EXPECT_EQ(depot_.run_bytes(), 0u);
}

// The newest is the first that is served again.
TEST_F(DepotTest, ABatchIsLinkedFromTheNewestOn) {
  const RunBatch batch = make_runs(50, 4);
  const RunChain chain = batch.link(runs_.data());
  EXPECT_EQ(chain.blocks, 4u);
  EXPECT_EQ(chain.units, 50u);
  std::vector<std::uint32_t> order;
  for (std::uint32_t id = chain.head; id != 0; id = runs_[id].record.next.get()) {
    order.push_back(id);
  }
  EXPECT_EQ(order, (std::vector<std::uint32_t>{4, 3, 2, 1}));
  EXPECT_EQ(RunBatch().link(runs_.data()).head, 0u);
}

TEST_F(DepotTest, TakesAnyUntilNoneIsLeft) {
  for (std::uint32_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(depot_.put_runs(make_runs(50 + i % 2, i + 1)));
  }
  std::uint32_t blocks = 0;
  for (;;) {
    const RunBatch batch = depot_.take_any_runs();
    if (batch.blocks == 0) break;
    blocks += batch.blocks;
  }
  EXPECT_EQ(blocks, 15u);
  EXPECT_EQ(depot_.run_bytes(), 0u);
  EXPECT_FALSE(depot_.may_have_runs(50));
}

TEST_F(DepotTest, OnlyAnIdleQuotaIsTakenAway) {
  depot_.add_run_quota(100 * kUnitBytes);
  ASSERT_TRUE(depot_.put_runs(make_runs(50, 1)));
  EXPECT_EQ(depot_.take_idle_quota(), 50 * kUnitBytes);
  EXPECT_EQ(depot_.run_quota(), 50 * kUnitBytes);
  EXPECT_EQ(depot_.take_idle_quota(), 0u);
  depot_.take_runs(50, 1);
  EXPECT_EQ(depot_.run_quota(), 50 * kUnitBytes);  // for the next
  EXPECT_EQ(depot_.take_idle_quota(), 50 * kUnitBytes);
}

TEST_F(DepotTest, SaysWhetherItWasTouchedSinceItWasAsked) {
  EXPECT_FALSE(depot_.was_touched());
  depot_.put(0, make_chain(0, 1), records_.data());
  EXPECT_TRUE(depot_.was_touched());
  EXPECT_FALSE(depot_.was_touched());
  depot_.take(0, records_.data());
  EXPECT_TRUE(depot_.was_touched());
  depot_.take(0, records_.data());
  EXPECT_FALSE(depot_.was_touched());  // nothing was there
  ASSERT_TRUE(depot_.put_runs(make_runs(50, 1)));
  EXPECT_TRUE(depot_.was_touched());
  depot_.take_any_runs();
  EXPECT_TRUE(depot_.was_touched());
}

// What may_have_runs() denies is not there, whatever sizes came and went.
TEST_F(DepotTest, TheHintOfSizesNeverHidesARun) {
  std::mt19937 random(1);
  std::vector<std::uint32_t> held(200, 0);
  for (int step = 0; step < 5000; ++step) {
    const auto units = static_cast<std::uint32_t>(random() % held.size());
    if (units < 33) continue;
    if (random() % 2 == 0 && last_ + 3 < runs_.size()) {
      held[units] += depot_.put_runs(make_runs(units, 1 + random() % 2));
    } else if (depot_.take_runs(units, RunBatch::kMost).blocks != 0) {
      --held[units];
    } else {
      ASSERT_EQ(held[units], 0u);
    }
    for (std::uint32_t other = 33; other < held.size(); ++other) {
      ASSERT_TRUE(held[other] == 0 || depot_.may_have_runs(other)) << other;
    }
  }
}

}  // namespace
}  // namespace gpupool::internal
