// What a thread has at hand: several pools in turn, streams of others, a pool that is gone.
#include <memory>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolHotSlotTest : public PoolFixture {};

TEST_F(PoolHotSlotTest, MorePoolsThanAThreadKeepsInMind) {
  constexpr std::size_t kPools = 6;
  std::vector<std::unique_ptr<Pool>> pools;
  std::vector<StreamRef> streams;
  for (std::size_t i = 0; i < kPools; ++i) {
    PoolOptions options;
    options.capacity = 16 * kMiB;
    pools.push_back(Pool::create(device_, options).value());
    streams.push_back(pools[i]->adopt_stream(raw_a_).value());
  }
  for (int round = 0; round < 50; ++round) {
    for (std::size_t i = 0; i < kPools; ++i) {
      void* const block = pools[i]->allocate(512, streams[i]).value();
      EXPECT_TRUE(pools[i]->deallocate(block, streams[i]));
    }
  }
  for (const auto& pool : pools) {
    const StatsV1 stats = pool->stats();
    EXPECT_EQ(stats.thread_caches, 1u);
    EXPECT_EQ(stats.requests, 50u);
    EXPECT_EQ(stats.hits_by_tier[0], 49u);
    EXPECT_EQ(stats.peak_requested_bytes, 512u);
    pool->check_invariants();
  }
}

TEST_F(PoolHotSlotTest, AStreamOfAnotherPoolIsUnknownHoweverWarmThisOneIs) {
  const auto other = Pool::create(device_, {}).value();
  const StreamRef others = other->adopt_stream(raw_a_).value();
  void* const block = allocate(512);
  for (int i = 0; i < 3; ++i) {
    free(allocate(kMiB));
    EXPECT_TRUE(other->deallocate(other->allocate(kMiB, others).value(), others));
    EXPECT_FALSE(pool_->deallocate(block, others));
    EXPECT_FALSE(other->deallocate(block, others));
    EXPECT_FALSE(pool_->allocate(512, others).ok());
    EXPECT_FALSE(pool_->allocate(512, StreamRef()).ok());
    EXPECT_FALSE(pool_->deallocate(block, StreamRef()));
  }
  EXPECT_EQ(count(Misuse::unknown_stream), 12u);
  EXPECT_EQ(other->stats().misuses[static_cast<std::size_t>(Misuse::foreign_pointer)], 3u);
  free(block);
}

TEST_F(PoolHotSlotTest, ANewPoolAtTheSameAddressIsNotTheOldOne) {
  // The heap gives the address again, mostly at once; what the thread had at hand names the old.
  for (int i = 0; i < 20; ++i) {
    make_pool_of(64 * kMiB);
    const StatsV1 fresh = pool_->stats();
    EXPECT_EQ(fresh.thread_caches, 0u);
    void* const block = allocate(kMiB);
    free(block);
    EXPECT_EQ(allocate(kMiB), block);
    EXPECT_FALSE(pool_->deallocate(at(block, 512), a_));
    free(block);
    EXPECT_EQ(pool_->stats().thread_caches, 1u);
  }
}

}  // namespace
}  // namespace gpupool
