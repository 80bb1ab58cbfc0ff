// Requests that get nothing although the limit is not in the way: what the driver refuses once a
// block is there, what is not valid, and what each of them counts as and is told.
#include <array>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

constexpr std::array<std::uint64_t, 5> kRefusedSizes = {100, 512, 20 * kKiB + 1, 100 * kKiB,
                                                        5 * kMiB - 3};
constexpr CapturePoolId kGraph{7, 1};

std::uint64_t sum(const auto& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::size_t index(MissReason reason) { return static_cast<std::size_t>(reason); }

class PoolRefusalTest : public PoolFixture {
 protected:
  void SetUp() override {}
  void start(DebugOptions debug) {
    PoolOptions options;
    options.capacity = 256 * kMiB;
    options.debug = debug;
    make_pool(options);
  }
  /// `ask` gets nothing, for that cause, and is counted as a request that failed, and as nothing
  /// else.
  void expect_failure(const std::function<Result<void*>()>& ask, FailureCause cause,
                      MissReason reason) {
    const StatsV1 before = pool_->stats();
    const auto block = ask();
    ASSERT_FALSE(block.ok());
    const StatsV1 after = pool_->stats();
    EXPECT_EQ(after.requests, before.requests + 1);
    EXPECT_EQ(after.hits, before.hits);
    EXPECT_EQ(after.hits_by_tier, before.hits_by_tier);
    EXPECT_EQ(after.misses, before.misses + 1);
    EXPECT_EQ(after.misses_by_reason[index(reason)], before.misses_by_reason[index(reason)] + 1);
    EXPECT_EQ(after.failures, before.failures + 1);
    EXPECT_EQ(after.failures_by_reason[index(reason)],
              before.failures_by_reason[index(reason)] + 1);
    EXPECT_EQ(sum(after.requests_by_size), after.requests);
    EXPECT_EQ(after.requested_bytes_total, before.requested_bytes_total);
    EXPECT_EQ(after.frees, before.frees);
    EXPECT_EQ(after.fallbacks, before.fallbacks);
    EXPECT_EQ(after.live_blocks, before.live_blocks);
    EXPECT_EQ(after.ladder_successes, before.ladder_successes);
    expect_report(block.error(), cause, reason);
    pool_->check_invariants();
  }
  void expect_report(Error error, FailureCause cause, MissReason reason) {
    const FailureReport report = pool_->last_failure();
    EXPECT_EQ(report.error, error);
    EXPECT_EQ(report.cause, cause) << report.text();
    EXPECT_EQ(report.reason, reason) << report.text();
    EXPECT_NE(report.json().find(std::string("\"cause\":\"") + to_string(cause)),
              std::string::npos);
    // What would have worked is said where less would have.
    const bool says_how_much = report.text().find("would have worked") != std::string::npos;
    EXPECT_EQ(says_how_much, index(reason) < kMemoryReasonCount) << report.text();
  }
  bool says(const char* part) {
    return pool_->last_failure().text().find(part) != std::string::npos;
  }
  /// Every fill fails until clear().
  void refuse_fills() { backend_.fail_at_random(BackendCall::fill, 1.0, Error::backend_failure); }
};

TEST_F(PoolRefusalTest, AHitThatCannotBeFilledIsNone) {
  for (const DebugOptions debug : {DebugOptions{.poison = true}, DebugOptions{.canary = true}}) {
    start(debug);
    for (const std::uint64_t bytes : kRefusedSizes) {
      void* const before = allocate(bytes);
      free(before);
      refuse_fills();
      expect_failure([&] { return pool_->allocate(bytes, a_); }, FailureCause::guard,
                     MissReason::driver);
      EXPECT_TRUE(says("would not fill it")) << pool_->last_failure().text();
      backend_.clear();
      // The block is there for the next one.
      const std::uint64_t hits = pool_->stats().hits;
      free(allocate(bytes));
      EXPECT_EQ(pool_->stats().hits, hits + 1);
    }
  }
}

TEST_F(PoolRefusalTest, SoIsOneThatHasToBeScrubbedBefore) {
  start({.scrub = true});
  void* const block = allocate(kMiB);
  EXPECT_TRUE(pool_->record_stream(block, b_));
  free(block);
  refuse_fills();
  expect_failure([&] { return pool_->allocate(kMiB, a_); }, FailureCause::guard,
                 MissReason::driver);
  backend_.clear();
  free(allocate(kMiB));
}

TEST_F(PoolRefusalTest, WhatWasGrownForARequestThatCannotBeFilledStays) {
  for (const std::uint64_t bytes : kRefusedSizes) {
    start({.poison = true});
    refuse_fills();
    expect_failure([&] { return pool_->allocate(bytes, a_); }, FailureCause::guard,
                   MissReason::driver);
    EXPECT_GT(pool_->stats().free_bytes, 0u);
    backend_.clear();
    const std::uint64_t calls = pool_->stats().driver_calls;
    free(allocate(bytes));
    EXPECT_EQ(pool_->stats().driver_calls, calls);
  }
}

TEST_F(PoolRefusalTest, AnAllocationOfItsOwnThatCannotBeFilledGoesBack) {
  AllocationRequest request;
  request.bytes = 3 * kMiB;
  request.allocation_class = AllocationClass::contiguous;
  for (const auto kind : {ContiguousBacking::cudamalloc, ContiguousBacking::handle}) {
    PoolOptions options;
    options.debug.canary = true;
    options.contiguous = kind;
    make_pool(options);
    refuse_fills();
    expect_failure([&] { return pool_->allocate(request, a_); }, FailureCause::guard,
                   MissReason::driver);
    backend_.clear();
    pool_->maintain();
    EXPECT_EQ(pool_->stats().held_bytes, 0u);
    EXPECT_EQ(device_.held_bytes(), 0u);
  }
}

TEST_F(PoolRefusalTest, InACaptureItStaysThePrivatePools) {
  for (const bool is_contiguous : {false, true}) {
    start({.poison = true});
    AllocationRequest request;
    request.bytes = 3 * kMiB;
    if (is_contiguous) request.allocation_class = AllocationClass::contiguous;
    const auto takes = [this](RawStream raw) { return raw == raw_a_; };
    ASSERT_TRUE(pool_->begin_allocate_to_pool(kGraph, takes).ok());
    device_.begin_capture(raw_a_);
    refuse_fills();
    expect_failure([&] { return pool_->allocate(request, raw_a_); }, FailureCause::guard,
                   MissReason::driver);
    backend_.clear();
    // A part of the fills may be a part of the graph.
    EXPECT_GE(pool_->stats().pinned_bytes, is_contiguous ? 3 * kMiB : 0);
    EXPECT_EQ(pool_->stats().live_blocks, 0u);
    EXPECT_NE(device_.end_capture(raw_a_).value, 0u);
    ASSERT_TRUE(pool_->end_allocate_to_pool(kGraph).ok());
    ASSERT_TRUE(pool_->release_pool(kGraph).ok());
    settle();
    EXPECT_EQ(pool_->stats().pinned_bytes, 0u);
    EXPECT_EQ(pool_->stats().pending_bytes, 0u);
  }
}

TEST_F(PoolRefusalTest, WhatWaitsForTheDeviceIsNoHit) {
  start({});
  AllocationRequest request;
  for (const std::uint64_t bytes : kRefusedSizes) {
    request.bytes = bytes;
    for (int i = 0; i < 3; ++i) {
      const auto block = pool_->allocate_for_any_stream(request);
      ASSERT_TRUE(block.ok());
      EXPECT_TRUE(pool_->deallocate_unused(block.value(), bytes));
    }
  }
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.hits, 0u);
  EXPECT_EQ(sum(stats.hits_by_tier), 0u);
  EXPECT_EQ(stats.requests, 3 * kRefusedSizes.size());
  EXPECT_EQ(sum(stats.misses_by_reason), stats.requests);
  EXPECT_EQ(stats.failures, 0u);
}

TEST_F(PoolRefusalTest, ForAnyStreamWithoutTheDriversWaitFails) {
  AllocationRequest request;
  request.bytes = kMiB;
  const auto ask = [&] { return pool_->allocate_for_any_stream(request); };
  // What is known before a block is taken.
  for (const BackendCall call : {BackendCall::create_event, BackendCall::capture_state}) {
    start({});
    EXPECT_TRUE(pool_->deallocate_unused(ask().value(), kMiB));
    backend_.fail_nth(call, 1, Error::backend_failure);
    expect_failure(ask, FailureCause::event, MissReason::driver);
    EXPECT_TRUE(says("when other work on it is over")) << pool_->last_failure().text();
  }
}

TEST_F(PoolRefusalTest, ForAnyStreamWhereTheDriversWaitFailsNothingStaysTaken) {
  AllocationRequest request;
  request.bytes = kMiB;
  for (const BackendCall call : {BackendCall::record_event, BackendCall::synchronize_event}) {
    start({});
    EXPECT_TRUE(pool_->deallocate_unused(pool_->allocate_for_any_stream(request).value(), kMiB));
    const StatsV1 before = pool_->stats();
    backend_.fail_at_random(call, 1.0, Error::backend_failure);
    const auto block = pool_->allocate_for_any_stream(request);
    backend_.clear();
    ASSERT_FALSE(block.ok());
    const StatsV1 after = pool_->stats();
    EXPECT_EQ(after.requests, before.requests + 1);
    EXPECT_EQ(after.hits, 0u);
    EXPECT_EQ(after.misses, before.misses + 1);
    EXPECT_EQ(after.failures, 1u);
    EXPECT_EQ(after.failures_by_reason[index(MissReason::driver)], 1u);
    EXPECT_EQ(after.frees, before.frees);
    EXPECT_EQ(after.live_blocks, 0u);
    EXPECT_EQ(sum(after.requests_by_size), after.requests);
    expect_report(Error::backend_failure, FailureCause::event, MissReason::driver);
    pool_->check_invariants();
  }
}

TEST_F(PoolRefusalTest, ForAnyStreamInACaptureFailsAsWhatIsNotValidThen) {
  start({});
  AllocationRequest request;
  request.bytes = kMiB;
  device_.begin_capture(raw_a_);
  expect_failure([&] { return pool_->allocate_for_any_stream(request); }, FailureCause::capture,
                 MissReason::invalid);
  EXPECT_TRUE(says("a capture that is under way forbids")) << pool_->last_failure().text();
  device_.end_capture(raw_a_);
}

TEST_F(PoolRefusalTest, WhatIsNotValidIsNoMatterOfItsSize) {
  start({});
  AllocationRequest request;
  request.bytes = 512;
  request.alignment = 3;
  expect_failure([&] { return pool_->allocate(request, a_); }, FailureCause::alignment,
                 MissReason::invalid);
  EXPECT_TRUE(says("reason invalid (its alignment is no power of two"))
      << pool_->last_failure().text();
  request.alignment = kDefaultAlignment;
  request.capture_pool = unannounced_capture(1);
  expect_failure([&] { return pool_->allocate(request, a_); }, FailureCause::private_pool,
                 MissReason::invalid);
  expect_failure([&] { return pool_->allocate(512, StreamRef()); }, FailureCause::stream,
                 MissReason::invalid);
  EXPECT_TRUE(says("its stream is not one of this pool's")) << pool_->last_failure().text();
  backend_.fail_nth(BackendCall::stream_id, 1, Error::backend_failure);
  expect_failure([&] { return pool_->allocate(512, raw_b_); }, FailureCause::handle,
                 MissReason::driver);
  expect_failure([&] { return pool_->allocate(257 * kMiB, a_); }, FailureCause::size,
                 MissReason::size);
  EXPECT_EQ(pool_->stats().failures_by_reason[index(MissReason::invalid)], 3u);
}

TEST_F(PoolRefusalTest, ADriverThatRefusesPagesForOtherReasonsThanMemoryIsTheCause) {
  start({});
  backend_.fail_at_random(BackendCall::map, 1.0, Error::backend_failure);
  backend_.fail_at_random(BackendCall::allocate, 1.0, Error::backend_failure);
  expect_failure([&] { return pool_->allocate(kMiB, a_); }, FailureCause::driver,
                 MissReason::driver);
  EXPECT_TRUE(says("a call of the driver has failed")) << pool_->last_failure().text();
  backend_.clear();
  free(allocate(kMiB));
}

}  // namespace
}  // namespace gpupool
