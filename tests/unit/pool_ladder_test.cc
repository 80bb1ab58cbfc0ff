// The out-of-memory ladder: every rung serves a request that none before it does, is counted, and
// is not waited for where it cannot help.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tests/support/standing_device.h"
#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kWait = 50 * kMillisecond;

class PoolLadderTest : public PoolFixture {
 protected:
  void SetUp() override {}

  /// Without caches unless told, so that what is freed is free.
  PoolOptions options_of(std::uint64_t pages, Recycling recycling = Recycling::eager) {
    PoolOptions options;
    options.capacity = pages * kPage;
    options.cache_small_bytes = 0;
    options.cache_large_bytes = 0;
    options.runtime.recycling = recycling;
    options.runtime.out_of_memory.wait_ns = kWait;
    return options;
  }
  /// Work on the block that is complete after `duration_ns`, or when it is told; then its free.
  void free_with_work(void* block, std::uint64_t bytes, RawStream raw, StreamRef stream,
                      std::uint64_t duration_ns = 0) {
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(block);
    work.bytes = bytes;
    work.duration_ns = duration_ns;
    work.until_completed = duration_ns == 0;
    ASSERT_TRUE(device_.launch(raw, work).ok());
    free(block, stream);
  }
  std::uint64_t tries(LadderRung rung) const {
    return pool_->stats().ladder_tries[static_cast<std::size_t>(rung)];
  }
  std::uint64_t served(LadderRung rung) const {
    return pool_->stats().ladder_successes[static_cast<std::size_t>(rung)];
  }
  std::uint64_t now() const { return device_.clock().now_ns(); }
};

// Which rung.

TEST_F(PoolLadderTest, ARequestThatIsServedAtOnceTriesNothing) {
  make_pool(options_of(32));
  free(allocate(4 * kPage));
  settle();
  const auto before = pool_->stats().ladder_tries;
  free(allocate(4 * kPage));
  EXPECT_EQ(pool_->stats().ladder_tries, before);
}

TEST_F(PoolLadderTest, GrowingServesTheFirstRequest) {
  make_pool(options_of(32));
  free(allocate(4 * kPage));
  EXPECT_EQ(tries(LadderRung::grow), 1u);
  EXPECT_EQ(served(LadderRung::grow), 1u);
  EXPECT_EQ(served(LadderRung::trim), 0u);
}

TEST_F(PoolLadderTest, WhatIsCachedServesAnotherSize) {
  PoolOptions options = options_of(8);
  options.cache_large_bytes = 32 * kMiB;
  make_pool(options);
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocate(kPage));
  for (void* block : blocks) free(block);
  ASSERT_GT(pool_->stats().cached_bytes, 0u);
  free(allocate(8 * kPage));
  EXPECT_EQ(served(LadderRung::caches), 1u);
}

TEST_F(PoolLadderTest, WhatTurnsOutToBeCompleteServesAnotherStream) {
  make_pool(options_of(4));  // so few that a miss by itself does not look
  void* block = allocate(4 * kPage);
  free_with_work(block, 4 * kPage, raw_a_, a_, kMillisecond);
  device_.advance_ns(2 * kMillisecond);
  free(allocate(4 * kPage, b_), b_);
  EXPECT_EQ(served(LadderRung::events), 1u);
  EXPECT_EQ(tries(LadderRung::wait), 0u);
}

TEST_F(PoolLadderTest, PagesThatMoveServeWhatIsInPieces) {
  make_pool(options_of(16));
  std::vector<void*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(allocate(kPage));
  for (std::size_t i = 0; i < 16; i += 2) free(blocks[i]);
  void* const large = allocate(8 * kPage);
  EXPECT_EQ(served(LadderRung::recycle), 1u);
  EXPECT_EQ(served(LadderRung::grow), 16u);
  free(large);
  for (std::size_t i = 1; i < 16; i += 2) free(blocks[i]);
}

// Recycling::off never moved or gave back anything, and failed though half of all was empty.
TEST_F(PoolLadderTest, WithoutRecyclingWhatIsEmptyGoesBackBeforeARequestFails) {
  for (const Backing backing : {Backing::vmm, Backing::cudamalloc}) {
    PoolOptions options = options_of(16 * 16, Recycling::off);
    options.backing = backing;
    make_pool(options);
    std::vector<void*> blocks;
    for (int i = 0; i < 16; ++i) blocks.push_back(allocate(16 * kPage));
    for (std::size_t i = 0; i < 16; i += 2) free(blocks[i]);
    settle();
    EXPECT_EQ(pool_->would_fit(8 * 16 * kPage, b_), Fit::by_growth);
    EXPECT_EQ(pool_->would_fit(8 * 16 * kPage + 1, b_), Fit::no);
    void* const large = allocate(8 * 16 * kPage, b_);
    EXPECT_EQ(served(LadderRung::trim), 1u);
    EXPECT_EQ(served(LadderRung::grow), 16u);
    EXPECT_EQ(tries(LadderRung::recycle), 0u);
    EXPECT_EQ(pool_->stats().pages_recycled, 0u);
    EXPECT_EQ(device_.held_bytes(), 16 * 16 * kPage);
    pool_->check_invariants();
    // What it says of itself is as before: what it does without that.
    EXPECT_EQ(pool_->stats().largest_satisfiable_bytes, 0u);
    EXPECT_FALSE(pool_->allocate(kPage, a_).ok());
    EXPECT_EQ(pool_->last_failure().largest_satisfiable_bytes, 0u);
    free(large, b_);
    for (std::size_t i = 1; i < 16; i += 2) free(blocks[i]);
  }
}

TEST_F(PoolLadderTest, WithoutRecyclingAReportSaysWhatWouldHaveWorked) {
  make_pool(options_of(16 * 16, Recycling::off));
  std::vector<void*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(allocate(16 * kPage));
  for (std::size_t i = 0; i < 16; i += 2) free(blocks[i]);
  EXPECT_FALSE(pool_->allocate(9 * 16 * kPage, a_).ok());
  const std::uint64_t most = pool_->last_failure().largest_satisfiable_bytes;
  EXPECT_EQ(most, 8 * 16 * kPage);
  free(allocate(most));
  for (std::size_t i = 1; i < 16; i += 2) free(blocks[i]);
}

// Waiting.

TEST_F(PoolLadderTest, WaitsNoLongerThanUntilEnoughIsComplete) {
  make_pool(options_of(16));
  void* soon = allocate(8 * kPage, a_);
  void* late = allocate(8 * kPage, b_);
  free_with_work(soon, 8 * kPage, raw_a_, a_, 3 * kMillisecond);
  free_with_work(late, 8 * kPage, raw_b_, b_, 40 * kMillisecond);
  const StreamRef third = pool_->adopt_stream(device_.create_stream()).value();
  const std::uint64_t start = now();
  free(allocate(8 * kPage, third), third);
  EXPECT_GE(now() - start, 2 * kMillisecond);
  EXPECT_LE(now() - start, 4 * kMillisecond);
  EXPECT_EQ(served(LadderRung::wait), 1u);
  EXPECT_EQ(misses(MissReason::pending), 1u);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.failures, 0u);
  EXPECT_GE(stats.out_of_memory_wait_ns, 2 * kMillisecond);
  EXPECT_GE(stats.driver_wait_ns, stats.out_of_memory_wait_ns);
  // What is needed of both is waited for in both.
  free(allocate(16 * kPage, third), third);
  EXPECT_GE(now() - start, 40 * kMillisecond);
  EXPECT_LE(now() - start, 45 * kMillisecond);
}

TEST_F(PoolLadderTest, GivesUpAtTheDeadline) {
  make_pool(options_of(8));
  free_with_work(allocate(8 * kPage), 8 * kPage, raw_a_, a_);
  const std::uint64_t start = now();
  EXPECT_FALSE(pool_->allocate(8 * kPage, b_).ok());
  EXPECT_GE(now() - start, kWait);
  EXPECT_LE(now() - start, kWait + kMillisecond);
  const FailureReport report = pool_->last_failure();
  EXPECT_EQ(report.reason, MissReason::pending);
  EXPECT_GE(report.waited_ns, kWait);
  EXPECT_LE(report.waited_ns, kWait + kMillisecond);
  EXPECT_EQ(tries(LadderRung::wait), 1u);
  EXPECT_EQ(served(LadderRung::wait), 0u);
  EXPECT_EQ(pool_->stats().failures, 1u);
}

TEST_F(PoolLadderTest, ZeroNeverWaitsAndMayBeSetWhileRunning) {
  make_pool(options_of(8));
  free_with_work(allocate(8 * kPage), 8 * kPage, raw_a_, a_, kMillisecond);
  RuntimeOptions runtime = pool_->runtime_options();
  runtime.out_of_memory.wait_ns = 0;
  ASSERT_TRUE(pool_->reconfigure(runtime).ok());
  EXPECT_FALSE(pool_->allocate(8 * kPage, b_).ok());
  EXPECT_EQ(tries(LadderRung::wait), 0u);
  EXPECT_EQ(pool_->stats().out_of_memory_wait_ns, 0u);
  runtime.out_of_memory.wait_ns = kMaxOutOfMemoryWaitNs + 1;
  const auto refused = pool_->reconfigure(runtime);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("out_of_memory.wait"), std::string::npos);
}

TEST_F(PoolLadderTest, DoesNotWaitForWhatWouldNotBeEnough) {
  make_pool(options_of(8));
  void* const live = allocate(4 * kPage);
  free_with_work(allocate(4 * kPage), 4 * kPage, raw_a_, a_, kMillisecond);
  EXPECT_FALSE(pool_->allocate(5 * kPage, b_).ok());
  EXPECT_EQ(pool_->last_failure().reason, MissReason::budget);
  EXPECT_EQ(tries(LadderRung::wait), 0u);
  free(allocate(4 * kPage, b_), b_);
  EXPECT_EQ(served(LadderRung::wait), 1u);
  free(live);
}

TEST_F(PoolLadderTest, NothingPendingIsNotWaitedFor) {
  make_pool(options_of(8));
  void* const live = allocate(8 * kPage);
  EXPECT_FALSE(pool_->allocate(kPage, b_).ok());
  EXPECT_EQ(tries(LadderRung::wait), 0u);
  EXPECT_EQ(pool_->last_failure().waited_ns, 0u);
  free(live);
}

TEST_F(PoolLadderTest, WhatAGraphCaptureHoldsIsNotWaitedFor) {
  make_pool(options_of(8));
  void* const block = allocate(8 * kPage);
  device_.begin_capture(raw_a_);
  free(block);  // in the capture: no event can be recorded
  EXPECT_FALSE(pool_->allocate(8 * kPage, b_).ok());
  EXPECT_EQ(tries(LadderRung::wait), 0u);
  const FailureReport report = pool_->last_failure();
  ASSERT_EQ(report.pending_streams.size(), 1u);
  EXPECT_FALSE(report.pending_streams[0].is_awaited);
  EXPECT_EQ(report.pending_streams[0].bytes, 8 * kPage);
  device_.end_capture(raw_a_);
  free(allocate(8 * kPage, b_), b_);
}

TEST_F(PoolLadderTest, ACapturedStreamDoesNotHideOneThatCanBeWaitedFor) {
  make_pool(options_of(16));
  void* const captured = allocate(8 * kPage, a_);
  void* const busy = allocate(8 * kPage, b_);
  device_.begin_capture(raw_a_);
  free(captured, a_);
  free_with_work(busy, 8 * kPage, raw_b_, b_, 2 * kMillisecond);
  const StreamRef third = pool_->adopt_stream(device_.create_stream()).value();
  free(allocate(8 * kPage, third), third);
  EXPECT_EQ(served(LadderRung::wait), 1u);
  // And the one that can be is no reason to wait for both.
  EXPECT_FALSE(pool_->allocate(16 * kPage, third).ok());
  EXPECT_EQ(tries(LadderRung::wait), 1u);
  device_.end_capture(raw_a_);
}

TEST_F(PoolLadderTest, DoesNotWaitForTheLesserPartOfWhatIsNeeded) {
  make_pool(options_of(16));
  void* const captured = allocate(12 * kPage, a_);
  void* const busy = allocate(4 * kPage, b_);
  device_.begin_capture(raw_a_);
  free(captured, a_);
  free_with_work(busy, 4 * kPage, raw_b_, b_, 2 * kMillisecond);
  const StreamRef third = pool_->adopt_stream(device_.create_stream()).value();
  EXPECT_FALSE(pool_->allocate(12 * kPage, third).ok());
  EXPECT_EQ(tries(LadderRung::wait), 0u);
  free(allocate(4 * kPage, third), third);
  EXPECT_EQ(served(LadderRung::wait), 1u);
  device_.end_capture(raw_a_);
}

TEST_F(PoolLadderTest, DoesNotWaitForPiecesThatStayApart) {
  PoolOptions options = options_of(16, Recycling::off);
  options.reserve_bytes = 16 * kPage;  // one handle, which goes back as a whole or not at all
  make_pool(options);
  void* const left = allocate(6 * kPage);
  void* const middle = allocate(4 * kPage);
  void* const right = allocate(6 * kPage);
  free_with_work(left, 6 * kPage, raw_a_, a_, kMillisecond);
  free_with_work(right, 6 * kPage, raw_a_, a_, kMillisecond);
  EXPECT_FALSE(pool_->allocate(8 * kPage, b_).ok());
  EXPECT_EQ(tries(LadderRung::wait), 0u);
  EXPECT_EQ(pool_->last_failure().reason, MissReason::fragmented);
  free(allocate(6 * kPage, b_), b_);
  EXPECT_EQ(served(LadderRung::wait), 1u);
  free(middle);
}

TEST_F(PoolLadderTest, AContiguousBlockWaitsForAFallbackThatIsPending) {
  make_pool(options_of(8));
  AllocationRequest request;
  request.bytes = 8 * kPage;
  request.allocation_class = AllocationClass::contiguous;
  void* const block = pool_->allocate(request, a_).value();
  free_with_work(block, 8 * kPage, raw_a_, a_, kMillisecond);
  const auto another = pool_->allocate(request, b_);
  ASSERT_TRUE(another.ok()) << pool_->last_failure().text();
  EXPECT_EQ(served(LadderRung::wait), 1u);
  EXPECT_EQ(misses(MissReason::pending), 1u);
  free(another.value(), b_);
}

// A clock that nothing moves: neither waiting nor the driver.
TEST_F(PoolLadderTest, AClockThatStandsStillEndsTheWaitAllTheSame) {
  StandingDevice standing(device_);
  PoolOptions options = options_of(8);
  options.runtime.out_of_memory.wait_ns = kMillisecond;
  const auto pool = Pool::create(standing, options).value();
  const RawStream raw = device_.create_stream();
  const StreamRef stream = pool->adopt_stream(raw).value();
  const StreamRef other = pool->adopt_stream(device_.create_stream()).value();
  void* const block = pool->allocate(8 * kPage, stream).value();
  EXPECT_TRUE(work(raw, block, 8 * kPage));
  EXPECT_TRUE(pool->deallocate(block, stream));
  EXPECT_FALSE(pool->allocate(8 * kPage, other).ok());
  EXPECT_GE(pool->last_failure().waited_ns, kMillisecond);
  device_.complete_all();
}

// The handler.

class PoolHandlerTest : public PoolLadderTest {
 protected:
  /// A pool of 8 pages, all of them in one live block of stream a.
  void start(std::function<bool(const FailureReport&)> handler) {
    PoolOptions options = options_of(8);
    options.out_of_memory_handler = [this, handler](const FailureReport& report) {
      reports_.push_back(report);
      return handler(report);
    };
    make_pool(options);
    live_ = allocate(8 * kPage);
  }
  void free_live() { free(std::exchange(live_, nullptr)); }

  std::vector<FailureReport> reports_;
  void* live_ = nullptr;
};

TEST_F(PoolHandlerTest, WhatItFreesServesTheRequest) {
  start([this](const FailureReport&) {
    free_live();
    return true;
  });
  void* const block = allocate(8 * kPage, b_);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].requested_bytes, 8 * kPage);
  EXPECT_EQ(reports_[0].reason, MissReason::budget);
  EXPECT_EQ(served(LadderRung::callback), 1u);
  EXPECT_EQ(pool_->stats().failures, 0u);
  EXPECT_FALSE(pool_->last_failure().happened);
  free(block, b_);
}

TEST_F(PoolHandlerTest, WhatItFreesMayBePendingAndIsWaitedFor) {
  start([this](const FailureReport&) {
    free_with_work(std::exchange(live_, nullptr), 8 * kPage, raw_a_, a_, 2 * kMillisecond);
    return true;
  });
  free(allocate(8 * kPage, b_), b_);
  EXPECT_EQ(tries(LadderRung::wait), 1u);
  EXPECT_EQ(served(LadderRung::callback), 1u);
  EXPECT_EQ(misses(MissReason::pending), 1u);
}

TEST_F(PoolHandlerTest, OneThatFreesNothingFailsOnce) {
  start([](const FailureReport&) { return false; });
  EXPECT_FALSE(pool_->allocate(kPage, b_).ok());
  EXPECT_EQ(reports_.size(), 1u);
  EXPECT_EQ(pool_->stats().failures, 1u);
  EXPECT_EQ(pool_->stats().misses, 2u);  // with that of the block
  EXPECT_EQ(tries(LadderRung::callback), 1u);
  EXPECT_EQ(served(LadderRung::callback), 0u);
  EXPECT_EQ(pool_->last_failure().retries, 0);
  free_live();
}

TEST_F(PoolHandlerTest, OneThatAlwaysAsksForMoreIsAskedSoOften) {
  start([](const FailureReport&) { return true; });
  EXPECT_FALSE(pool_->allocate(kPage, b_).ok());
  EXPECT_EQ(reports_.size(), static_cast<std::size_t>(kMaxOutOfMemoryRetries));
  EXPECT_EQ(pool_->stats().failures, 1u);
  EXPECT_EQ(tries(LadderRung::callback), 1u);
  EXPECT_EQ(pool_->last_failure().retries, kMaxOutOfMemoryRetries);
  free_live();
}

TEST_F(PoolHandlerTest, OneThatAllocatesIsNotCalledForThat) {
  start([this](const FailureReport&) {
    EXPECT_FALSE(pool_->allocate(kPage, a_).ok());
    return false;
  });
  EXPECT_FALSE(pool_->allocate(2 * kPage, b_).ok());
  EXPECT_EQ(reports_.size(), 1u);
  EXPECT_EQ(pool_->stats().failures, 2u);
  EXPECT_EQ(pool_->last_failure().requested_bytes, 2 * kPage);
  // It is called again for what comes after.
  EXPECT_FALSE(pool_->allocate(2 * kPage, b_).ok());
  EXPECT_EQ(reports_.size(), 2u);
  free_live();
}

TEST_F(PoolHandlerTest, ItMayTrimAndAskAndNoLockIsHeld) {
  start([this](const FailureReport&) {
    pool_->trim(0);
    pool_->maintain();
    pool_->visit_blocks([](const BlockInfo&) {});
    pool_->drain_caches();
    EXPECT_EQ(pool_->would_fit(8 * kPage, b_), Fit::no);
    return pool_->stats().failures > 0;
  });
  EXPECT_FALSE(pool_->allocate(2 * kPage, b_).ok());
  EXPECT_EQ(reports_.size(), 1u);
  free_live();
}

TEST_F(PoolHandlerTest, ItIsNotAskedForWhatNoMemoryWouldServe) {
  start([](const FailureReport&) { return true; });
  EXPECT_FALSE(pool_->allocate(9 * kPage, b_).ok());
  EXPECT_EQ(pool_->last_failure().error, Error::limit_exceeded);
  EXPECT_TRUE(reports_.empty());
  free_live();
}

}  // namespace
}  // namespace gpupool
