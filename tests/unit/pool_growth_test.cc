// How a pool grows beside memory that it may not use yet: unfinished work of one stream takes
// nothing from another.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "gpupool/faulty_backend.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

class PoolGrowthTest : public testing::Test {
 protected:
  void SetUp() override { make_pool(std::uint64_t{8} << 30); }

  void make_pool(std::uint64_t capacity, Recycling recycling = Recycling::eager) {
    pool_.reset();
    PoolOptions options;
    options.runtime.recycling = recycling;
    options.capacity = capacity;
    options.on_misuse = OnMisuse::abort;
    pool_ = Pool::create(device_, options).value();
    a_ = device_.create_stream();
    b_ = device_.create_stream();
    ref_a_ = pool_->adopt_stream(a_).value();
    ref_b_ = pool_->adopt_stream(b_).value();
  }
  void TearDown() override {
    device_.complete_all();
    pool_.reset();
    EXPECT_EQ(device_.violation_count(), 0U) << device_.last_violation();
    EXPECT_EQ(device_.object_count(), 0U);
  }

  // Freed on `stream` with work on it that runs until it is told to end.
  void free_with_work(void* block, std::uint64_t bytes, RawStream stream, StreamRef ref) {
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(block);
    work.bytes = bytes;
    work.until_completed = true;
    ASSERT_TRUE(device_.launch(stream, work).ok());
    ASSERT_TRUE(pool_->deallocate(block, ref));
    pool_->drain_caches();
    pool_->maintain();
  }

  SimulatedBackend device_;
  std::unique_ptr<Pool> pool_;
  RawStream a_ = nullptr;
  RawStream b_ = nullptr;
  StreamRef ref_a_;
  StreamRef ref_b_;
};

TEST_F(PoolGrowthTest, NewPagesServeTheRequestTheyWereMappedFor) {
  void* first = pool_->allocate(32 * kMiB, ref_a_).value();
  free_with_work(first, 32 * kMiB, a_, ref_a_);
  // The end of the arena is pending for the other stream: new pages must not become so, too.
  for (int i = 1; i <= 3; ++i) {
    const auto block = pool_->allocate(32 * kMiB, ref_b_);
    ASSERT_TRUE(block.ok()) << pool_->last_failure().text();
    EXPECT_EQ(pool_->stats().held_bytes, (32U + 32U * static_cast<unsigned>(i)) * kMiB);
    pool_->check_invariants();
  }
}

TEST_F(PoolGrowthTest, ASmallPendingPieceLeavesTheReadyMemoryBesideItToOthers) {
  void* small = pool_->allocate(kMiB, ref_a_).value();
  void* large = pool_->allocate(1023 * kMiB, ref_a_).value();
  ASSERT_TRUE(pool_->deallocate(large, ref_a_));
  pool_->drain_caches();
  pool_->maintain();
  ASSERT_EQ(pool_->stats().largest_free_block_bytes, 1023 * kMiB);
  free_with_work(small, kMiB, a_, ref_a_);
  EXPECT_EQ(pool_->stats().largest_free_block_bytes, 1023 * kMiB);
  EXPECT_EQ(pool_->stats().pending_bytes, kMiB);
  const auto block = pool_->allocate(1023 * kMiB, ref_b_);
  ASSERT_TRUE(block.ok()) << pool_->last_failure().text();
  EXPECT_EQ(pool_->stats().held_bytes, 1024 * kMiB);
}

TEST_F(PoolGrowthTest, AStreamIsServedAcrossItsOwnPendingAndReadyMemory) {
  make_pool(64 * kMiB, Recycling::off);
  void* left = pool_->allocate(16 * kMiB, ref_a_).value();
  void* middle = pool_->allocate(16 * kMiB, ref_a_).value();
  void* right = pool_->allocate(32 * kMiB, ref_a_).value();
  ASSERT_TRUE(pool_->deallocate(left, ref_a_));
  ASSERT_TRUE(pool_->deallocate(right, ref_a_));
  pool_->drain_caches();
  pool_->maintain();
  free_with_work(middle, 16 * kMiB, a_, ref_a_);
  // Of what is empty 48 MiB could go back and be got anew.
  EXPECT_FALSE(pool_->allocate(52 * kMiB, ref_b_).ok());
  EXPECT_EQ(pool_->last_failure().reason, MissReason::pending);
  // Stream a's next work comes after its last, so that all 64 MiB are one piece for it.
  const auto block = pool_->allocate(40 * kMiB, ref_a_);
  ASSERT_TRUE(block.ok()) << pool_->last_failure().text();
  pool_->check_invariants();
  // What is left beyond it was ready and still is.
  EXPECT_EQ(pool_->stats().largest_free_block_bytes, 24 * kMiB);
  EXPECT_EQ(pool_->stats().pending_bytes, 0U);
}

TEST_F(PoolGrowthTest, FailuresWaitForNoMoreThanDriverCalls) {
  make_pool(32 * kMiB);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(pool_->allocate(20 * kMiB, ref_a_).ok(), i == 0);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.failures, 99U);
  EXPECT_LE(stats.driver_wait_ns, stats.driver_ns);
}

TEST_F(PoolGrowthTest, InvariantsHoldWhileARequestWaitsForTheDriver) {
  FaultyBackend driver(device_);
  const std::unique_ptr<Pool> pool = Pool::create(driver, {}).value();
  const StreamRef stream = pool->adopt_stream(a_).value();
  int checks = 0;
  driver.before(BackendCall::map, [&] {
    pool->check_invariants();
    ++checks;
  });
  void* block = pool->allocate(kMiB, stream).value();
  EXPECT_EQ(checks, 1);
  EXPECT_TRUE(pool->deallocate(block, stream));
}

TEST_F(PoolGrowthTest, FreedFallbacksMakeRoomWithoutMaintenance) {
  make_pool(64 * kMiB);
  AllocationRequest contiguous;
  contiguous.bytes = 40 * kMiB;
  contiguous.allocation_class = AllocationClass::contiguous;
  for (int i = 0; i < 3; ++i) {
    const auto block = pool_->allocate(contiguous, ref_a_);
    ASSERT_TRUE(block.ok()) << i << ": " << pool_->last_failure().text();
    ASSERT_TRUE(pool_->deallocate(block.value(), ref_a_));
  }
  const auto block = pool_->allocate(40 * kMiB, ref_a_);
  ASSERT_TRUE(block.ok()) << pool_->last_failure().text();
  ASSERT_TRUE(pool_->deallocate(block.value(), ref_a_));
}

TEST_F(PoolGrowthTest, FreedFallbacksWithUnfinishedWorkMakeNoRoom) {
  make_pool(64 * kMiB);
  AllocationRequest contiguous;
  contiguous.bytes = 40 * kMiB;
  contiguous.allocation_class = AllocationClass::contiguous;
  void* block = pool_->allocate(contiguous, ref_a_).value();
  SimulatedWork work;
  work.address = reinterpret_cast<DeviceAddress>(block);
  work.bytes = contiguous.bytes;
  work.until_completed = true;
  ASSERT_TRUE(device_.launch(a_, work).ok());
  ASSERT_TRUE(pool_->deallocate(block, ref_a_));
  EXPECT_FALSE(pool_->allocate(contiguous, ref_a_).ok());
  device_.complete(a_);
  block = pool_->allocate(contiguous, ref_a_).value();
  EXPECT_TRUE(pool_->deallocate(block, ref_a_));
}

TEST_F(PoolGrowthTest, WhatIsCalledTheLargestFreeBlockIsServedWithoutTheDriver) {
  // Pieces of 64 KiB are all that is free: too short for a chunk, long enough for what fills them.
  std::vector<void*> blocks;
  for (;;) {
    const auto block = pool_->allocate(192 << 10, ref_a_);
    blocks.push_back(block.value());
    if (pool_->stats().largest_free_block_bytes < 128 << 10) break;
  }
  const std::uint64_t largest = pool_->stats().largest_free_block_bytes;
  ASSERT_GT(largest, 0U);
  EXPECT_EQ(pool_->would_fit(largest), Fit::now);
  const StatsV1 before = pool_->stats();
  blocks.push_back(pool_->allocate(largest, ref_b_).value());
  const StatsV1 after = pool_->stats();
  EXPECT_EQ(after.driver_calls, before.driver_calls);
  EXPECT_EQ(after.hits, before.hits + 1);
  for (void* block : blocks) ASSERT_TRUE(pool_->deallocate(block, ref_a_));
}

TEST_F(PoolGrowthTest, ACapacityBeyondTheDeviceIsRefused) {
  PoolOptions options;
  options.capacity = std::uint64_t{1} << 40;
  const auto pool = Pool::create(device_, options);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.error().message, "capacity: 1TiB is more than the device has, 140GiB");
}

TEST(PoolDeviceReadingTest, GrowthUnderWayIsNotCountedTwice) {
  SimulatedBackend device;
  FaultyBackend backend(device);
  const auto pool = Pool::create(backend, {}).value();
  const StreamRef stream = pool->adopt_stream(nullptr).value();
  // The pages are the device's already, and not yet in the books, when maintenance comes by.
  backend.before(BackendCall::set_access, [&] {
    device.advance_ns(1'000'000'000);
    std::thread([&] { pool->maintain(); }).join();
  });
  void* block = pool->allocate(64 * kMiB, stream).value();
  const StatsV1 stats = pool->stats();
  EXPECT_EQ(stats.held_bytes + stats.device_free_bytes, stats.device_total_bytes);
  EXPECT_EQ(stats.limit_in_force_bytes, stats.limit_bytes);
  ASSERT_TRUE(pool->deallocate(block, stream));
}

}  // namespace
}  // namespace gpupool
