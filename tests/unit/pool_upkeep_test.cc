// Reserve, trim, maintenance, ages, peaks, reconfiguration, the end.
#include <map>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolUpkeepTest : public PoolFixture {};

TEST_F(PoolUpkeepTest, TheReserveIsTakenAtTheStartAndNeverTrimmed) {
  for (const Backing backing : {Backing::vmm, Backing::cudamalloc}) {
    PoolOptions options;
    options.capacity = 128 * kMiB;
    options.reserve_bytes = 9 * kMiB + 1;
    options.backing = backing;
    make_pool(options);
    EXPECT_EQ(device_.held_bytes(), 10 * kMiB);
    EXPECT_EQ(pool_->stats().reserve_bytes, 10 * kMiB);
    EXPECT_EQ(pool_->stats().peak_held_bytes, 10 * kMiB);
    EXPECT_EQ(pool_->trim(0), 0u);
    EXPECT_EQ(device_.held_bytes(), 10 * kMiB);
    void* inside = allocate(8 * kMiB);
    EXPECT_EQ(pool_->stats().hits, 1u);
    void* beyond = allocate(50 * kMiB);
    free(inside);
    free(beyond);
    EXPECT_GT(pool_->trim(0), 0u);
    EXPECT_EQ(device_.held_bytes(), 10 * kMiB);
    // Fallbacks are no reserve: freed, they go, and what stays is still enough.
    AllocationRequest request;
    request.bytes = 20 * kMiB;
    request.allocation_class = AllocationClass::contiguous;
    void* fallback = pool_->allocate(request, a_).value();
    pool_->trim(0);
    free(fallback);
    pool_->trim(0);
    EXPECT_EQ(device_.held_bytes(), 10 * kMiB);
  }
}

TEST_F(PoolUpkeepTest, AReserveThatTheDeviceDoesNotHaveIsAnError) {
  ASSERT_TRUE(device_.set_taken_by_others(1000 * kMiB).ok());
  PoolOptions options;
  options.capacity = 500 * kMiB;
  options.reserve_bytes = 100 * kMiB;
  const auto pool = Pool::create(backend_, options);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.error().code, Error::out_of_memory);
  EXPECT_NE(pool.error().message.find("reserve"), std::string::npos);
  EXPECT_EQ(device_.held_bytes(), 0u);
}

TEST_F(PoolUpkeepTest, TrimGoesAsLowAsItIsToldAndNoMappingFurther) {
  std::vector<void*> blocks(20);
  for (void*& block : blocks) block = allocate(4 * kMiB);
  for (void* block : blocks) free(block);
  const std::uint64_t released = pool_->trim(41 * kMiB);
  EXPECT_EQ(device_.held_bytes(), 40 * kMiB);
  EXPECT_EQ(released, 40 * kMiB);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.trims_by_reason[static_cast<std::size_t>(TrimReason::api)], 1u);
  EXPECT_EQ(stats.trimmed_bytes_by_reason[static_cast<std::size_t>(TrimReason::api)], released);
  EXPECT_EQ(stats.released_bytes_by_reason[static_cast<std::size_t>(ReleaseReason::trim)],
            released);
  // By which nothing goes back, for there is no need, or nothing is empty.
  EXPECT_EQ(pool_->trim(1000 * kMiB, TrimReason::idle), 0u);
  void* const live = allocate(40 * kMiB);
  EXPECT_EQ(pool_->trim(0, TrimReason::idle), 0u);
  EXPECT_EQ(pool_->stats().trims_by_reason[static_cast<std::size_t>(TrimReason::idle)], 0u);
  free(live);
}

TEST_F(PoolUpkeepTest, TrimTakesNothingThatIsInUse) {
  void* live = allocate(6 * kMiB);
  void* busy = allocate(6 * kMiB);
  void* done = allocate(6 * kMiB);
  EXPECT_TRUE(work(raw_a_, live));
  EXPECT_TRUE(work(raw_b_, busy));
  free(busy, b_);
  free(done, a_);
  pool_->trim(0);
  EXPECT_GE(device_.held_bytes(), 12 * kMiB);
  EXPECT_EQ(device_.violation_count(), 0u);
  device_.complete_all();
  pool_->trim(0);
  EXPECT_EQ(device_.held_bytes(), 6 * kMiB);
  free(live);
  pool_->trim(0);
  EXPECT_EQ(device_.held_bytes(), 0u);
}

TEST_F(PoolUpkeepTest, TrimmedAddressesAreUsedAgain) {
  void* low = allocate(8 * kMiB);
  void* high = allocate(8 * kMiB);
  free(low);
  pool_->trim(0);
  EXPECT_EQ(allocate(8 * kMiB), low);  // the hole that it left
  EXPECT_EQ(pool_->stats().address_range_used_bytes, 16 * kMiB);
  free(low);
  free(high);
}

TEST_F(PoolUpkeepTest, CachesAge) {
  void* small = allocate(512);
  void* large = allocate(kMiB);
  free(small);
  free(large);
  pool_->maintain();
  EXPECT_EQ(pool_->stats().cached_bytes, kMiB + 512);
  device_.advance_ns(kSecondNs / 2);
  pool_->maintain();
  EXPECT_EQ(pool_->stats().cached_bytes, kMiB + 512);
  for (int i = 0; i < 3; ++i) {
    device_.advance_ns(kSecondNs);
    pool_->maintain();
  }
  EXPECT_EQ(pool_->stats().cached_bytes, 0u);
  EXPECT_EQ(pool_->stats().pending_bytes, 0u);
}

TEST_F(PoolUpkeepTest, CachesAreBounded) {
  PoolOptions options;
  options.cache_small_bytes = 100 * kKiB;
  options.cache_large_bytes = 3 * kMiB;
  make_pool(options);
  std::vector<void*> small(100);
  std::vector<void*> large(10);
  for (void*& block : small) block = allocate(4 * kKiB);
  for (void*& block : large) block = allocate(kMiB);
  for (void* block : small) free(block);
  // In the thread's own cache, and again as much where other threads find it; chains go whole.
  const std::uint64_t cached_small = pool_->stats().cached_bytes;
  EXPECT_GE(cached_small, 64 * kKiB);
  EXPECT_LE(cached_small, 200 * kKiB);
  for (void* block : large) free(block);
  const std::uint64_t cached_large = pool_->stats().cached_bytes - cached_small;
  EXPECT_GE(cached_large, 2 * kMiB);
  EXPECT_LE(cached_large, 3 * kMiB + 3 * kMiB / 2);
  EXPECT_EQ(pool_->drain_caches(), cached_small + cached_large);
  EXPECT_EQ(pool_->drain_caches(), 0u);
}

TEST_F(PoolUpkeepTest, MaintainNoticesCompletedWork) {
  void* block = allocate(5 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  pool_->drain_caches();
  EXPECT_EQ(pool_->maintain().completed_epochs, 0u);
  EXPECT_EQ(pool_->stats().pending_bytes, 5 * kMiB);
  device_.complete_all();
  EXPECT_EQ(pool_->maintain().completed_epochs, 1u);
  EXPECT_EQ(pool_->stats().pending_bytes, 0u);
  EXPECT_EQ(pool_->stats().maintain_steps, 2u);
}

TEST_F(PoolUpkeepTest, MaintainWithoutTimeLeavesDriverWorkForTheNextStep) {
  AllocationRequest request;
  request.bytes = kMiB;
  request.allocation_class = AllocationClass::contiguous;
  free(pool_->allocate(request, a_).value());
  const MaintainReport report = pool_->maintain(std::chrono::nanoseconds(-5));
  EXPECT_TRUE(report.more_to_do);
  EXPECT_EQ(report.released_bytes, 0u);
  EXPECT_EQ(pool_->maintain(std::chrono::hours(1)).released_bytes, kMiB);
}

TEST_F(PoolUpkeepTest, MaintainReadsTheDevicesMemoryNowAndThen) {
  const std::uint64_t calls = backend_.call_count(BackendCall::memory_info);
  for (int i = 0; i < 100; ++i) {
    pool_->maintain();
    device_.advance_ns(1'000'000);
  }
  EXPECT_LE(backend_.call_count(BackendCall::memory_info), calls + 2);
  ASSERT_TRUE(device_.set_taken_by_others(100 * kMiB).ok());
  device_.advance_ns(200'000'000);
  pool_->maintain();
  EXPECT_EQ(pool_->stats().device_free_bytes, 924 * kMiB);
  EXPECT_EQ(pool_->stats().device_total_bytes, 1024 * kMiB);
}

TEST_F(PoolUpkeepTest, PeaksAndTheirReset) {
  void* block = allocate(30 * kMiB);
  void* other = allocate(10 * kMiB);
  free(block);
  pool_->trim(0);
  StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.peak_requested_bytes, 40 * kMiB);
  EXPECT_EQ(stats.peak_held_bytes, 40 * kMiB);
  EXPECT_EQ(stats.largest_free_block_at_peak_held_bytes, 0u);
  pool_->reset_peaks();
  stats = pool_->stats();
  EXPECT_EQ(stats.peak_requested_bytes, 10 * kMiB);
  EXPECT_EQ(stats.peak_held_bytes, 10 * kMiB);
  free(other);
}

TEST_F(PoolUpkeepTest, WindowPeaksForgetAfterAMinute) {
  void* block = allocate(30 * kMiB);
  free(block);
  pool_->trim(0);
  pool_->maintain();
  device_.advance_ns(30 * kSecondNs);
  void* small = allocate(2 * kMiB);
  pool_->maintain();
  EXPECT_EQ(pool_->stats().window_peak_requested_bytes, 30 * kMiB);
  EXPECT_EQ(pool_->stats().window_peak_held_bytes, 30 * kMiB);
  device_.advance_ns(45 * kSecondNs);
  pool_->maintain();
  EXPECT_EQ(pool_->stats().window_peak_requested_bytes, 2 * kMiB);
  EXPECT_EQ(pool_->stats().window_peak_held_bytes, 2 * kMiB);
  EXPECT_EQ(pool_->stats().peak_requested_bytes, 30 * kMiB);
  free(small);
}

TEST_F(PoolUpkeepTest, AClockOfOnesOwn) {
  VirtualClock clock;
  clock.advance_ns(500);
  PoolOptions options;
  options.clock = &clock;
  make_pool(options);
  clock.advance_ns(70);
  EXPECT_EQ(pool_->stats().start_time_ns, 500u);
  EXPECT_EQ(pool_->stats().time_ns, 570u);
  EXPECT_FALSE(pool_->allocate(2048 * kMiB, a_).ok());
  EXPECT_EQ(pool_->last_failure().time_ns, 570u);
  end_pool();  // before its clock
}

TEST_F(PoolUpkeepTest, ReconfigureChangesAllOrNothing) {
  RuntimeOptions options = pool_->runtime_options();
  options.slack = 0.05;
  options.thresholds.fragmentation_ratio = 0.7;
  options.thresholds.required_block_bytes = 5 * kMiB;
  options.thresholds.critical_fragmentation_ratio = 0.9;
  options.thresholds.fallback_ratio = 0.25;
  ASSERT_TRUE(pool_->reconfigure(options).ok());
  StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.slack, 0.05);
  EXPECT_EQ(stats.threshold_fragmentation_ratio, 0.7);
  EXPECT_EQ(stats.threshold_required_block_bytes, 5 * kMiB);
  EXPECT_EQ(stats.threshold_critical_fragmentation_ratio, 0.9);
  EXPECT_EQ(stats.threshold_fallback_ratio, 0.25);
  EXPECT_EQ(stats.reconfigurations, 1u);

  const auto refuse = [&](auto change, Error error) {
    RuntimeOptions wrong = pool_->runtime_options();
    wrong.thresholds.required_block_bytes = 1;
    change(wrong);
    const auto result = pool_->reconfigure(wrong);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, error);
    EXPECT_FALSE(result.error().message.empty());
  };
  refuse([](RuntimeOptions& o) { o.slack = 1.5; }, Error::invalid_argument);
  refuse([](RuntimeOptions& o) { o.thresholds.fragmentation_ratio = -0.1; },
         Error::invalid_argument);
  refuse([](RuntimeOptions& o) { o.thresholds.critical_fragmentation_ratio = 1.1; },
         Error::invalid_argument);
  refuse([](RuntimeOptions& o) { o.thresholds.fallback_ratio = -0.1; }, Error::invalid_argument);
  refuse([](RuntimeOptions& o) { o.slack = std::numeric_limits<double>::quiet_NaN(); },
         Error::invalid_argument);
  stats = pool_->stats();
  EXPECT_EQ(stats.threshold_required_block_bytes, 5 * kMiB);
  EXPECT_EQ(stats.slack, 0.05);
  EXPECT_EQ(stats.reconfigurations, 1u);
}

TEST_F(PoolUpkeepTest, WhatTheDriverWouldNotTakeBackIsHeldUntilItDoes) {
  make_pool_without_recycling(1024 * kMiB);  // 8 MiB are one handle
  free(allocate(8 * kMiB));
  settle();
  backend_.fail_nth(BackendCall::release, 1, Error::backend_failure);
  EXPECT_EQ(pool_->trim(0), 8 * kMiB);  // tried again at once
  free(allocate(8 * kMiB));
  settle();
  backend_.fail_nth(BackendCall::release, 1, Error::backend_failure);
  backend_.fail_nth(BackendCall::release, 2, Error::backend_failure);
  EXPECT_EQ(pool_->trim(0), 0u);
  pool_->check_invariants();
  EXPECT_EQ(device_.held_bytes(), 8 * kMiB);
  EXPECT_EQ(pool_->stats().held_bytes, 8 * kMiB);
  EXPECT_EQ(pool_->maintain().released_bytes, 8 * kMiB);
  EXPECT_EQ(device_.held_bytes(), 0u);
}

TEST_F(PoolUpkeepTest, WhatAFailedGrowthLeavesBehindCountsAsHeld) {
  // Once more, since the device has it; then what was left is tried again.
  for (const std::uint64_t n : {1u, 2u}) {
    backend_.fail_nth(BackendCall::map, n, Error::out_of_memory);
  }
  for (const std::uint64_t n : {1u, 3u}) {
    backend_.fail_nth(BackendCall::release, n, Error::backend_failure);
  }
  EXPECT_FALSE(pool_->allocate(2 * kMiB, a_).ok());
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(device_.held_bytes(), 2 * kMiB);
  EXPECT_EQ(stats.held_bytes, 2 * kMiB);
  EXPECT_EQ(stats.peak_held_bytes, 2 * kMiB);
  EXPECT_EQ(stats.free_bytes, 2 * kMiB);
  EXPECT_EQ(stats.mapped_free_bytes, 0u);
  pool_->trim(0);
  EXPECT_EQ(device_.held_bytes(), 0u);
}

TEST_F(PoolUpkeepTest, AFailedCallAtTheEndDoesNotKeepTheOthersFromBeingMade) {
  for (std::uint64_t n = 1; n < 40; ++n) {
    SimulatedBackend device({.capacity_bytes = 256 * kMiB});
    FaultyBackend faulty(device);
    PoolOptions options;
    options.runtime.recycling = Recycling::off;  // large handles, and so few calls
    auto pool = Pool::create(faulty, options).value();
    const StreamRef stream = pool->adopt_stream(device.create_stream()).value();
    for (const std::uint64_t bytes : {kMiB, 40 * kMiB, 100 * kMiB}) {
      EXPECT_TRUE(pool->deallocate(pool->allocate(bytes, stream).value(), stream));
    }
    pool->maintain();
    const std::uint64_t objects = device.object_count();
    faulty.fail_nth_of_all(n, Error::backend_failure);
    pool.reset();
    // An event, or a handle and its mapping, is what one failed call can leave.
    EXPECT_LE(device.object_count(), 2u) << "call " << n << " of " << objects << " objects";
    if (faulty.failed_count() == 0) {
      EXPECT_EQ(device.object_count(), 0u);
      EXPECT_GT(n, 10u);
      return;
    }
  }
  ADD_FAILURE() << "the end takes more calls than there are objects";
}

TEST_F(PoolUpkeepTest, ReplayedRequestsNeedNoDriverTheSecondTime) {
  make_pool_without_recycling(1024 * kMiB);
  const auto pass = [&] {
    std::vector<void*> blocks;
    for (std::uint64_t i = 1; i <= 60; ++i) {
      blocks.push_back(allocate(i * 137 * kKiB));
      if (i % 3 == 0) {
        free(blocks[i / 2]);
        blocks[i / 2] = nullptr;
      }
    }
    for (void* block : blocks) free(block);
    pool_->drain_caches();
  };
  pass();
  const std::uint64_t calls = pool_->stats().driver_calls;
  for (int i = 0; i < 5; ++i) pass();
  EXPECT_EQ(pool_->stats().driver_calls, calls);
}

TEST_F(PoolUpkeepTest, GrowingRequestsDoNotPileUp) {
  // Each is a little larger than all before it, which no exact-size cache can serve.
  for (std::uint64_t i = 0; i < 2000; ++i) free(allocate(64 * kMiB + i * 4096));
  EXPECT_LE(device_.held_bytes(), 2 * (64 * kMiB + 8000 * kKiB));
}

TEST_F(PoolUpkeepTest, PairsOfGrowingRequestsUseWhatWasFreed) {
  for (std::uint64_t k = 1; k <= 12; ++k) {
    void* first = allocate(k * 34 * kMiB);
    void* second = allocate(k * 34 * kMiB);
    free(first);
    free(second);
  }
  EXPECT_LE(device_.held_bytes(), kMiB * 24 * 34 + 2 * kMiB);
}

}  // namespace
}  // namespace gpupool
