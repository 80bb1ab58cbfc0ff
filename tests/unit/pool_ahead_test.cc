// Pages that maintenance moves ahead of need, beside the threads that allocate.
#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolAheadTest : public PoolFixture {
 protected:
  void SetUp() override {
    PoolOptions options;
    options.capacity = 128 * kPage;
    options.cache_small_bytes = 0;
    options.cache_large_bytes = 0;
    options.runtime.slack = 0;
    make_pool(options);
  }

  /// A run of ten pages was grown for, and there is none any more, though 11 pages are empty.
  void break_up() {
    for (int i = 0; i < 40; ++i) singles_.push_back(allocate(kPage));
    for (std::size_t i = 0; i < 20; i += 2) free(singles_[i]);
    free(allocate(10 * kPage));
    // Into its front.
    pin_ = allocate(kPage);
    free(singles_[21]);
    free(singles_[23]);
    pool_->maintain(std::chrono::seconds(1));
    unmapped_ = backend_.call_count(BackendCall::unmap);
    ASSERT_EQ(pool_->stats().largest_free_block_bytes, 9 * kPage);
    ASSERT_EQ(pool_->stats().pages_recycled, 10u);
  }
  void free_rest() {
    for (std::size_t i = 1; i < 40; i += 2) {
      if (i != 21 && i != 23) free(singles_[i]);
    }
    for (std::size_t i = 20; i < 40; i += 2) free(singles_[i]);
    free(pin_);
  }
  void pause() { device_.advance_ns(30 * kMs); }

  std::vector<void*> singles_;
  void* pin_ = nullptr;
  std::uint64_t unmapped_ = 0;
};

TEST_F(PoolAheadTest, TheNextRequestOfItsKindIsAHit) {
  break_up();
  pool_->maintain(std::chrono::seconds(1));  // while such requests may follow, nothing is done
  EXPECT_EQ(pool_->stats().largest_free_block_bytes, 9 * kPage);
  pause();
  pool_->maintain(std::chrono::seconds(1));
  const StatsV1 before = pool_->stats();
  EXPECT_EQ(before.largest_free_block_bytes, 10 * kPage);
  EXPECT_EQ(before.pages_recycled, 11u);
  EXPECT_EQ(before.held_bytes, 40 * kPage);
  void* ten = allocate(10 * kPage);
  EXPECT_EQ(pool_->stats().hits, before.hits + 1);
  EXPECT_EQ(pool_->stats().driver_calls, before.driver_calls);
  EXPECT_TRUE(work(raw_a_, ten, 10 * kPage));
  free(ten);
  free_rest();
}

TEST_F(PoolAheadTest, WithoutTimeItIsLeft) {
  break_up();
  pause();
  EXPECT_TRUE(pool_->maintain(std::chrono::nanoseconds(0)).more_to_do);
  EXPECT_EQ(pool_->stats().pages_recycled, 10u);
  free_rest();
}

TEST_F(PoolAheadTest, NotUnderPressureOrOff) {
  break_up();
  RuntimeOptions options = pool_->runtime_options();
  for (const Recycling recycling : {Recycling::pressure, Recycling::off}) {
    options.recycling = recycling;
    ASSERT_TRUE(pool_->reconfigure(options).ok());
    pause();
    pool_->maintain(std::chrono::seconds(1));
    EXPECT_EQ(pool_->stats().pages_recycled, 10u);
  }
  free_rest();
}

TEST_F(PoolAheadTest, UnfinishedPagesDoNotMove) {
  break_up();
  // Of the two singles that are free beside the run of nine, each has work on it.
  void* one = allocate(kPage);
  void* other = allocate(kPage);
  EXPECT_TRUE(work(raw_a_, one, kPage));
  EXPECT_TRUE(work(raw_a_, other, kPage));
  free(one);
  free(other);
  pause();
  pool_->maintain(std::chrono::seconds(1));
  EXPECT_EQ(pool_->stats().pages_recycled, 10u);
  device_.complete_all();
  pool_->maintain(std::chrono::seconds(1));
  EXPECT_EQ(pool_->stats().pages_recycled, 11u);
  free_rest();
}

TEST_F(PoolAheadTest, ADriverThatRefusesChangesNothing) {
  break_up();
  pause();
  std::uint64_t tries = 0;
  for (const BackendCall call : {BackendCall::map, BackendCall::set_access}) {
    backend_.fail_nth(call, 1, Error::out_of_memory);
    const std::uint64_t failed = backend_.failed_count();
    pool_->maintain(std::chrono::seconds(1));
    EXPECT_EQ(backend_.failed_count(), failed + 1) << to_string(call);
    pool_->check_invariants();
    const StatsV1 stats = pool_->stats();
    EXPECT_EQ(stats.pages_recycled, 10u);
    EXPECT_EQ(stats.largest_free_block_bytes, 9 * kPage);
    EXPECT_EQ(stats.free_bytes, 11 * kPage);
    EXPECT_EQ(stats.mapped_free_bytes, 11 * kPage);
    EXPECT_EQ(stats.held_bytes, device_.held_bytes());
    ++tries;
  }
  // Nor does one that does not take back what it has mapped.
  backend_.fail_nth(BackendCall::set_access, 1, Error::out_of_memory);
  backend_.fail_nth(BackendCall::unmap, 1, Error::backend_failure);
  pool_->maintain(std::chrono::seconds(1));
  pool_->check_invariants();
  EXPECT_EQ(pool_->stats().held_bytes, device_.held_bytes());
  EXPECT_EQ(pool_->stats().pages_recycled, 10u);
  pool_->maintain(std::chrono::seconds(1));
  EXPECT_EQ(pool_->stats().pages_recycled, 11u);
  free(allocate(10 * kPage));
  free_rest();
  EXPECT_EQ(pool_->trim(0), 40 * kPage);
}

// On a thread of its own, in virtual time.
class PoolBesideTest : public PoolAheadTest {
 protected:
  /// A step of maintenance that is not over for the caller yet.
  void maintain_beside() {
    device_.begin_background();
    pool_->maintain(std::chrono::seconds(1));
    until_ns_ = device_.clock().now_ns();
    device_.end_background();
    ASSERT_GT(until_ns_, device_.clock().now_ns());
  }
  void start() {
    break_up();
    pause();
    maintain_beside();
  }
  std::uint64_t until_ns_ = 0;
};

TEST_F(PoolBesideTest, WhatIsNotMappedYetIsNotFreeYet) {
  start();
  StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.pages_recycled, 10u);
  EXPECT_EQ(stats.largest_free_block_bytes, 9 * kPage);
  EXPECT_EQ(stats.held_bytes, 40 * kPage);
  EXPECT_EQ(stats.free_bytes, 11 * kPage);
  EXPECT_EQ(stats.mapped_free_bytes, 10 * kPage);
  pool_->check_invariants();
  pool_->maintain(std::chrono::seconds(1));  // not yet
  EXPECT_EQ(pool_->stats().pages_recycled, 10u);
  device_.wait_until(until_ns_);
  pool_->maintain(std::chrono::seconds(1));
  stats = pool_->stats();
  EXPECT_EQ(stats.pages_recycled, 11u);
  EXPECT_EQ(stats.largest_free_block_bytes, 10 * kPage);
  free_rest();
}

TEST_F(PoolBesideTest, ARequestThatNeedsItWaitsForTheRest) {
  start();
  const StatsV1 before = pool_->stats();
  void* ten = allocate(10 * kPage);
  EXPECT_GE(device_.clock().now_ns(), until_ns_);
  EXPECT_EQ(pool_->stats().pages_recycled, 11u);
  EXPECT_EQ(pool_->stats().misses, before.misses + 1);
  EXPECT_GT(pool_->stats().driver_wait_ns, before.driver_wait_ns);
  free(ten);
  free_rest();
}

TEST_F(PoolBesideTest, ARequestThatDoesNotNeedItDoesNotWait) {
  start();
  const std::uint64_t now = device_.clock().now_ns();
  free(allocate(9 * kPage));
  EXPECT_EQ(device_.clock().now_ns(), now);
  free_rest();
}

TEST_F(PoolBesideTest, TrimGivesBackAll) {
  start();
  free_rest();
  EXPECT_EQ(pool_->trim(0), 40 * kPage);
  EXPECT_EQ(device_.held_bytes(), 0u);
  EXPECT_GE(device_.clock().now_ns(), until_ns_);
}

TEST_F(PoolBesideTest, AllThatIsEmptyServesABlockOfItsOwn) {
  start();
  AllocationRequest request;
  request.bytes = (128 - 29) * kPage;
  request.allocation_class = AllocationClass::contiguous;
  const auto block = pool_->allocate(request, a_);
  ASSERT_TRUE(block.ok()) << pool_->last_failure().text();
  free(block.value());
  free_rest();
}

// The fixture looks for what is left on the device.
TEST_F(PoolBesideTest, ThePoolEndsInTheMiddle) {
  start();
  free_rest();
  end_pool();
  EXPECT_EQ(device_.object_count(), 0u);
  EXPECT_EQ(device_.held_bytes(), 0u);
}

}  // namespace
}  // namespace gpupool
