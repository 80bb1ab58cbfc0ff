// Why a request was no hit, whether one would fit, and what a failure says.
#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolMissTest : public PoolFixture {
 protected:
  /// Fills the pool with blocks of `bytes`.
  std::vector<void*> fill(std::uint64_t bytes) {
    std::vector<void*> blocks;
    for (;;) {
      const auto block = pool_->allocate(bytes, a_);
      if (!block.ok()) return blocks;
      blocks.push_back(block.value());
    }
  }
  void expect_failure(std::uint64_t bytes, StreamRef stream, MissReason reason) {
    const std::uint64_t before = misses(reason);
    const auto block = pool_->allocate(bytes, stream);
    ASSERT_FALSE(block.ok());
    EXPECT_EQ(block.error(), Error::out_of_memory);
    EXPECT_EQ(misses(reason), before + 1) << to_string(pool_->last_failure().reason);
    const FailureReport report = pool_->last_failure();
    EXPECT_EQ(report.reason, reason);
    EXPECT_EQ(report.requested_bytes, bytes);
    EXPECT_EQ(report.held_bytes, report.live_requested_bytes + report.waste_bytes +
                                     report.cached_bytes + report.pending_bytes +
                                     report.free_bytes);
    EXPECT_EQ(report.held_bytes, device_.held_bytes());
    EXPECT_LT(report.largest_satisfiable_bytes, bytes);
  }
};

TEST_F(PoolMissTest, ColdIsGrowth) {
  void* block = allocate(kMiB);
  EXPECT_EQ(misses(MissReason::cold), 1u);
  free(block);
}

TEST_F(PoolMissTest, BudgetIsALimitThatIsUsedUp) {
  make_pool_of(8 * kMiB);
  const auto blocks = fill(kMiB);
  EXPECT_EQ(blocks.size(), 8u);
  expect_failure(kMiB, a_, MissReason::budget);
  EXPECT_EQ(pool_->would_fit(kMiB, a_), Fit::no);
  for (void* block : blocks) free(block);
}

TEST_F(PoolMissTest, BudgetIsADeviceThatIsFull) {
  make_pool_of(64 * kMiB);
  ASSERT_TRUE(device_.set_taken_by_others(1020 * kMiB).ok());
  device_.advance_ns(1'000'000'000);
  pool_->maintain();
  EXPECT_EQ(pool_->stats().limit_in_force_bytes, 4 * kMiB);
  EXPECT_EQ(pool_->would_fit(5 * kMiB, a_), Fit::no);
  expect_failure(5 * kMiB, a_, MissReason::budget);
  EXPECT_EQ(pool_->last_failure().device_free_bytes, 4 * kMiB);
  EXPECT_EQ(device_.held_bytes(), 0u);  // what was got on the way is given back
  free(allocate(4 * kMiB));
}

TEST_F(PoolMissTest, PendingWouldFitOnceWorkIsDone) {
  make_pool_of(16 * kMiB);
  void* block = allocate(12 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  settle();
  EXPECT_EQ(pool_->stats().pending_bytes, 12 * kMiB);
  EXPECT_EQ(pool_->would_fit(12 * kMiB, b_), Fit::after_pending);
  expect_failure(12 * kMiB, b_, MissReason::pending);
  EXPECT_EQ(pool_->would_fit(12 * kMiB, a_), Fit::now);  // its own work is before what is next
  const auto number = [this](RawStream raw) { return device_.stream_id(raw).value(); };
  EXPECT_EQ(pool_->would_fit_on(12 * kMiB, number(raw_a_)), Fit::now);
  EXPECT_EQ(pool_->would_fit_on(12 * kMiB, number(raw_b_)), Fit::after_pending);
  EXPECT_EQ(pool_->would_fit_on(12 * kMiB, number(device_.create_stream())), std::nullopt);
  device_.complete_all();
  free(allocate(12 * kMiB, b_), b_);  // looked for, without maintain
}

TEST_F(PoolMissTest, PendingMemoryIsGrownAround) {
  make_pool_of(64 * kMiB);
  void* block = allocate(12 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  settle();
  EXPECT_EQ(pool_->would_fit(12 * kMiB, b_), Fit::by_growth);
  free(allocate(12 * kMiB, b_), b_);
  EXPECT_EQ(misses(MissReason::pending), 1u);
  EXPECT_EQ(device_.held_bytes(), 24 * kMiB);
}

TEST_F(PoolMissTest, FragmentedIsEnoughInPieces) {
  make_pool_of(16 * kMiB);
  const auto blocks = fill(kMiB);
  ASSERT_EQ(blocks.size(), 16u);
  for (std::size_t i = 0; i < blocks.size(); i += 2) free(blocks[i]);
  settle();
  EXPECT_EQ(pool_->stats().free_bytes, 8 * kMiB);
  EXPECT_EQ(pool_->stats().largest_free_block_bytes, kMiB);
  EXPECT_EQ(pool_->would_fit(2 * kMiB, a_), Fit::no);
  expect_failure(2 * kMiB, a_, MissReason::fragmented);
  const StatsV1 stats = pool_->stats();
  EXPECT_DOUBLE_EQ(stats.fragmentation_ratio, 1.0 - 1.0 / 8);
  EXPECT_DOUBLE_EQ(stats.raw_fragmentation_ratio, 1.0 - 1.0 / 8);
  for (std::size_t i = 1; i < blocks.size(); i += 2) free(blocks[i]);
}

TEST_F(PoolMissTest, FragmentedMemoryIsGrownAround) {
  make_pool_of(32 * kMiB);
  std::vector<void*> blocks(16);
  for (void*& block : blocks) block = allocate(kMiB);
  for (std::size_t i = 0; i < blocks.size(); i += 2) free(blocks[i]);
  settle();
  free(allocate(2 * kMiB));
  EXPECT_EQ(misses(MissReason::fragmented), 1u);
  for (std::size_t i = 1; i < blocks.size(); i += 2) free(blocks[i]);
}

TEST_F(PoolMissTest, RatiosOfAnEmptyPoolAreZero) {
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.fragmentation_ratio, 0.0);
  EXPECT_EQ(stats.raw_fragmentation_ratio, 0.0);
  EXPECT_EQ(stats.largest_free_block_bytes, 0u);
  EXPECT_EQ(stats.largest_satisfiable_bytes, 1024 * kMiB);
}

TEST_F(PoolMissTest, LargestSatisfiableIsWhatCanBeHad) {
  PoolOptions options;
  options.capacity = 64 * kMiB;
  options.reserve_bytes = 32 * kMiB;  // one handle, that none of it can go back without the rest
  options.runtime.recycling = Recycling::off;
  make_pool(options);
  void* low = allocate(10 * kMiB);
  void* high = allocate(3 * kMiB);
  free(low);
  settle();
  const std::uint64_t most = pool_->stats().largest_satisfiable_bytes;
  EXPECT_EQ(pool_->would_fit(most, b_), Fit::by_growth);
  EXPECT_EQ(pool_->would_fit(most + 1, b_), Fit::no);
  EXPECT_FALSE(pool_->allocate(most + 1, b_).ok());
  free(allocate(most, b_), b_);
  const std::uint64_t now = pool_->stats().largest_free_block_bytes;
  EXPECT_GE(most, now);
  free(high);
}

TEST_F(PoolMissTest, WouldFitForetellsWhatAllocateDoes) {
  make_pool_of(32 * kMiB);
  void* held = allocate(5 * kMiB);
  void* gap = allocate(2 * kMiB);
  void* end = allocate(300 * kKiB);
  void* busy = allocate(6 * kMiB);
  EXPECT_TRUE(work(raw_a_, busy));
  free(gap);
  free(busy);
  settle();
  for (std::uint64_t bytes = 1; bytes <= 40 * kMiB; bytes = bytes * 5 / 4 + 1) {
    for (const StreamRef stream : {a_, b_}) {
      const Fit fit = pool_->would_fit(bytes, stream);
      const StatsV1 before = pool_->stats();
      const auto block = pool_->allocate(bytes, stream);
      const StatsV1 after = pool_->stats();
      EXPECT_EQ(block.ok(), fit == Fit::now || fit == Fit::by_growth)
          << bytes << " " << to_string(fit);
      EXPECT_EQ(after.hits > before.hits, fit == Fit::now) << bytes << " " << to_string(fit);
      if (fit == Fit::after_pending) {
        EXPECT_EQ(pool_->last_failure().reason, MissReason::pending) << bytes;
      }
      if (block.ok()) free(block.value(), stream);
      pool_->drain_caches();
      pool_->trim(0);
    }
  }
  EXPECT_EQ(pool_->would_fit(0, a_), Fit::now);
  EXPECT_EQ(pool_->would_fit(~std::size_t{0}, a_), Fit::no);
  EXPECT_EQ(pool_->would_fit(kMiB), pool_->would_fit(kMiB, StreamRef()));
  free(held);
  free(end);
}

TEST_F(PoolMissTest, ALimitThatIsNoWholeNumberOfPagesIsNoFragmentation) {
  make_pool_of(4 * kMiB - 1);
  EXPECT_EQ(pool_->stats().fragmentation_ratio, 0.0);
  void* page = allocate(2 * kMiB);
  StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.limit_bytes, 4 * kMiB - 1);
  EXPECT_EQ(stats.largest_satisfiable_bytes, 0u);
  EXPECT_EQ(stats.fragmentation_ratio, 0.0);
  free(page);
  settle();
  EXPECT_EQ(pool_->stats().fragmentation_ratio, 0.0);
  // Nor is what the device has less than a page of.
  make_pool_of(16 * kMiB);
  ASSERT_TRUE(device_.set_taken_by_others((1024 - 8) * kMiB + 512).ok());
  device_.advance_ns(1'000'000'000);
  pool_->maintain();
  stats = pool_->stats();
  EXPECT_EQ(stats.limit_in_force_bytes, 8 * kMiB - 512);
  EXPECT_EQ(stats.largest_satisfiable_bytes, 6 * kMiB);
  EXPECT_EQ(stats.fragmentation_ratio, 0.0);
}

TEST_F(PoolMissTest, WatchedSizes) {
  PoolOptions options;
  options.capacity = 16 * kMiB;
  options.watched_sizes = {kMiB, 2 * kMiB};
  make_pool(options);
  const auto blocks = fill(kMiB);
  for (std::size_t i = 0; i < blocks.size(); i += 2) free(blocks[i]);
  settle();
  const StatsV1 stats = pool_->stats();
  ASSERT_EQ(stats.watched_count, 2u);
  EXPECT_TRUE(stats.watched[0].fits);
  EXPECT_EQ(stats.watched[0].unusable_free_bytes, 0u);
  EXPECT_FALSE(stats.watched[1].fits);
  EXPECT_EQ(stats.watched[1].unusable_free_bytes, 8 * kMiB);
  for (std::size_t i = 1; i < blocks.size(); i += 2) free(blocks[i]);
}

TEST_F(PoolMissTest, WhatIsFreeInChunksIsTooSmallForARun) {
  PoolOptions options;
  options.cache_small_bytes = 0;
  options.watched_sizes = {1024 * kMiB, 96 * kKiB, 64 * kKiB, 16 * kKiB};
  make_pool(options);
  const auto unusable = [&] {
    std::vector<std::uint64_t> bytes;
    const StatsV1 stats = pool_->stats();
    for (const WatchedSize& size : stats.watched) bytes.push_back(size.unusable_free_bytes);
    EXPECT_EQ(bytes.front(), stats.free_bytes);
    return bytes;
  };
  // Two in each of sixteen chunks, which are a page.
  std::vector<void*> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(allocate(48 * kKiB));
  EXPECT_EQ(unusable()[2], 32 * 16 * kKiB);
  for (std::size_t i = 0; i < blocks.size(); i += 2) free(blocks[i]);
  settle();
  EXPECT_TRUE(work(raw_a_, blocks[1]));
  free(blocks[1]);
  pool_->maintain();
  // One chunk is pending; the others have 64 KiB in a row, and 16 KiB. A slab of the last
  // size is of 64 KiB.
  EXPECT_EQ(unusable(), (std::vector<std::uint64_t>{15 * 80 * kKiB, 15 * 80 * kKiB, 15 * 16 * kKiB,
                                                    15 * 16 * kKiB}));
  device_.complete_all();
  settle();
  // It is a free run again, too short for the first alone.
  EXPECT_EQ(unusable()[1], 15 * 80 * kKiB);
  for (std::size_t i = 3; i < blocks.size(); i += 2) free(blocks[i]);
  settle();
  EXPECT_EQ(unusable(), (std::vector<std::uint64_t>{2 * kMiB, 0, 0, 0}));
}

TEST_F(PoolMissTest, FreeSlotsAreOfUseToTheirOwnSizeAlone) {
  PoolOptions options;
  options.cache_small_bytes = 0;
  options.watched_sizes = {1024 * kMiB, 128 * kKiB, 32 * kKiB, 24 * kKiB};
  make_pool(options);
  // Four in each of sixteen chunks.
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(allocate(32 * kKiB));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 4 != 0) free(blocks[i]);
  }
  settle();
  const StatsV1 stats = pool_->stats();
  const std::uint64_t all = 16 * 96 * kKiB;
  EXPECT_EQ(stats.free_bytes, all);
  EXPECT_EQ(stats.watched[0].unusable_free_bytes, all);
  EXPECT_EQ(stats.watched[1].unusable_free_bytes, all);
  EXPECT_EQ(stats.watched[2].unusable_free_bytes, 0u);
  EXPECT_EQ(stats.watched[3].unusable_free_bytes, all);
  for (std::size_t i = 0; i < blocks.size(); i += 4) free(blocks[i]);
}

TEST_F(PoolMissTest, AFailedRequestLeavesNothingBehind) {
  make_pool_of(32 * kMiB);
  void* block = allocate(20 * kMiB);
  const StatsV1 before = pool_->stats();
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(pool_->allocate(20 * kMiB, a_).ok());
  const StatsV1 after = pool_->stats();
  EXPECT_EQ(after.held_bytes, before.held_bytes);
  EXPECT_EQ(after.live_blocks, before.live_blocks);
  EXPECT_EQ(after.failures, 50u);
  free(block);
}

TEST_F(PoolMissTest, ASmallRequestIsServedByWhatIsTooShortForAChunk) {
  make_pool_of(2 * kMiB);
  // 16 chunks' worth of units, of which 60 KiB are left.
  void* large = allocate(2 * kMiB - 60 * kKiB);
  const StatsV1 before = pool_->stats();
  EXPECT_EQ(pool_->would_fit(10 * kKiB, a_), Fit::now);
  void* small = allocate(10 * kKiB);
  void* other = allocate(40 * kKiB);
  EXPECT_EQ(pool_->stats().hits, before.hits + 2);  // nothing was asked of the driver
  EXPECT_EQ(pool_->stats().driver_calls, before.driver_calls);
  EXPECT_EQ(pool_->would_fit(20 * kKiB, a_), Fit::no);
  EXPECT_FALSE(pool_->allocate(20 * kKiB, a_).ok());
  for (void* block : {large, small, other}) free(block);
}

}  // namespace
}  // namespace gpupool
