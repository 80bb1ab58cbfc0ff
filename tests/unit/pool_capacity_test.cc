// The limit is changed while the pool is in use: to more, to less than is held, and to what is
// refused.
#include <string>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolSetCapacityTest : public PoolFixture {
 protected:
  void SetUp() override { make_pool_of(64 * kMiB); }

  bool set(CapacityLimit capacity) { return pool_->set_capacity(capacity).ok(); }
  std::string refusal(CapacityLimit capacity) {
    const auto set = pool_->set_capacity(capacity);
    return set.ok() ? "" : set.error().message;
  }
  bool can_have(std::uint64_t bytes) {
    const auto block = pool_->allocate(bytes, a_);
    if (block.ok()) free(block.value());
    return block.ok();
  }
  std::uint64_t held() const { return pool_->stats().held_bytes; }
};

TEST_F(PoolSetCapacityTest, MoreServesRequestsAtOnce) {
  void* const first = allocate(60 * kMiB);
  EXPECT_FALSE(can_have(60 * kMiB));
  ASSERT_TRUE(set(128 * kMiB));
  EXPECT_EQ(pool_->stats().limit_bytes, 128 * kMiB);
  void* const second = allocate(60 * kMiB);
  EXPECT_FALSE(can_have(60 * kMiB));
  // Four times what it was created with, and all of it in use.
  ASSERT_TRUE(set(256 * kMiB));
  void* const third = allocate(130 * kMiB);
  EXPECT_GT(device_.held_bytes(), 248 * kMiB);
  for (void* const block : {first, second, third}) free(block);
}

TEST_F(PoolSetCapacityTest, SmallBlocksFillWhatTheLimitWasRaisedTo) {
  ASSERT_TRUE(set(256 * kMiB));
  std::vector<void*> blocks;
  while (true) {
    const auto block = pool_->allocate(512, a_);
    if (!block.ok()) break;
    blocks.push_back(block.value());
  }
  EXPECT_EQ(blocks.size(), 256 * kMiB / 512);
  for (void* const block : blocks) free(block);
}

TEST_F(PoolSetCapacityTest, LessThanIsHeldTakesNothingFromAnybody) {
  void* const kept = allocate(20 * kMiB);
  void* const other = allocate(30 * kMiB);
  ASSERT_TRUE(set(10 * kMiB));
  EXPECT_EQ(held(), 50 * kMiB);
  EXPECT_EQ(pool_->stats().live_requested_bytes, 50 * kMiB);
  EXPECT_EQ(pool_->allocate(4 * kMiB, a_).ok(), false);
  EXPECT_EQ(pool_->last_failure().limit_bytes, 10 * kMiB);
  EXPECT_EQ(pool_->last_failure().reason, MissReason::budget);
  EXPECT_EQ(pool_->allocate(16 * kMiB, a_).error(), Error::limit_exceeded);
  free(other);
  // Of what is held, the request is served; what it does not need may go.
  void* const again = allocate(6 * kMiB);
  EXPECT_LE(held(), 50 * kMiB);
  free(again);
  free(kept);
  EXPECT_TRUE(can_have(10 * kMiB));
}

TEST_F(PoolSetCapacityTest, TheNextStepGivesBackWhatIsEmptyBeyondIt) {
  void* const kept = allocate(10 * kMiB);
  free(allocate(50 * kMiB));
  settle();
  ASSERT_EQ(held(), 60 * kMiB);
  ASSERT_TRUE(set(32 * kMiB));
  EXPECT_EQ(held(), 60 * kMiB);
  pool_->maintain(std::chrono::seconds(1));
  EXPECT_EQ(held(), 32 * kMiB);
  EXPECT_EQ(device_.held_bytes(), 32 * kMiB);
  // All that may go, where what is in use is more.
  ASSERT_TRUE(set(4 * kMiB));
  pool_->maintain(std::chrono::seconds(1));
  EXPECT_EQ(held(), 10 * kMiB);
  // And as it becomes empty later.
  free(kept);
  pool_->drain_caches();
  device_.advance_ns(1'000'000'000);
  pool_->maintain(std::chrono::seconds(1));
  EXPECT_EQ(held(), 4 * kMiB);
}

TEST_F(PoolSetCapacityTest, ATrimKeepsTheLimitWhateverItIsAskedFor) {
  free(allocate(50 * kMiB));
  ASSERT_TRUE(set(20 * kMiB));
  pool_->trim(60 * kMiB);
  EXPECT_EQ(held(), 20 * kMiB);
}

TEST_F(PoolSetCapacityTest, ARequestGivesBackWhatIsEmptyUntilItFits) {
  PoolOptions options;
  options.capacity = 64 * kMiB;
  options.runtime.recycling = Recycling::off;
  make_pool(options);
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocate(8 * kMiB));
  for (std::size_t i = 0; i < 8; i += 2) free(blocks[i]);
  settle();
  ASSERT_EQ(held(), 64 * kMiB);
  // 32 MiB are live, 32 are empty in pieces of 8.
  ASSERT_TRUE(set(44 * kMiB));
  void* const block = allocate(12 * kMiB);
  EXPECT_LE(held(), 44 * kMiB);
  EXPECT_FALSE(can_have(12 * kMiB));
  free(block);
  for (std::size_t i = 1; i < 8; i += 2) free(blocks[i]);
}

TEST_F(PoolSetCapacityTest, AFractionIsOfWhatIsFreeAndWhatThePoolHas) {
  ASSERT_TRUE(device_.set_taken_by_others(512 * kMiB).ok());
  void* const block = allocate(32 * kMiB);
  ASSERT_TRUE(set(0.25));
  EXPECT_EQ(pool_->stats().limit_bytes, 128 * kMiB);
  EXPECT_FALSE(can_have(100 * kMiB));
  EXPECT_EQ(pool_->last_failure().limit_kind, LimitKind::capacity_fraction);
  EXPECT_EQ(pool_->last_failure().capacity_fraction, 0.25);
  free(block);
}

TEST_F(PoolSetCapacityTest, WhatIsRefusedChangesNothing) {
  PoolOptions options;
  options.capacity = 64 * kMiB;
  options.reserve_bytes = 8 * kMiB;
  make_pool(options);
  EXPECT_NE(refusal(kMiB).find("capacity: 1MiB is less than one page"), std::string::npos);
  EXPECT_NE(refusal(6 * kMiB).find("is less than the reserve, 8MiB"), std::string::npos);
  EXPECT_NE(refusal(2048 * kMiB).find("is more than the device has"), std::string::npos);
  EXPECT_NE(refusal(1000 * kMiB).find("addresses"), std::string::npos);
  for (const double wrong : {0.0, -0.5, 1.5}) {
    EXPECT_NE(refusal(wrong).find("capacity: a fraction above 0"), std::string::npos);
  }
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.limit_bytes, 64 * kMiB);
  EXPECT_EQ(stats.reconfigurations, 0u);
  ASSERT_TRUE(set(8 * kMiB));
  EXPECT_EQ(pool_->stats().reconfigurations, 1u);
}

TEST_F(PoolSetCapacityTest, SegmentsGoBackAndComeAgainWithTheLimit) {
  PoolOptions options;
  options.capacity = 64 * kMiB;
  options.backing = Backing::cudamalloc;
  make_pool(options);
  void* const kept = allocate(20 * kMiB);
  free(allocate(30 * kMiB));
  settle();
  ASSERT_TRUE(set(24 * kMiB));
  pool_->maintain(std::chrono::seconds(1));
  EXPECT_EQ(held(), 20 * kMiB);
  EXPECT_FALSE(can_have(6 * kMiB));
  ASSERT_TRUE(set(256 * kMiB));
  EXPECT_TRUE(can_have(200 * kMiB));
  free(kept);
}

}  // namespace
}  // namespace gpupool
