// Memory that maintenance gives back by itself: what nobody used for long, and what others on the
// device need. All in virtual time.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolTrimmingTest : public PoolFixture {
 protected:
  void make_trimming_pool(const TrimOptions& trim, std::uint64_t reserve_bytes = 0,
                          AliasReuse reuse = AliasReuse::wait) {
    PoolOptions options;
    options.capacity = 1024 * kMiB;
    options.reserve_bytes = reserve_bytes;
    options.cache_small_bytes = 0;
    options.cache_large_bytes = 0;
    options.runtime.slack = 0;
    options.runtime.trim = trim;
    options.runtime.alias_reuse = reuse;
    make_pool(options);
  }
  void make_segment_pool(const TrimOptions& trim, std::uint64_t reserve_bytes = 0) {
    PoolOptions options;
    options.backing = Backing::cudamalloc;
    options.reserve_bytes = reserve_bytes;
    options.cache_large_bytes = 0;
    options.runtime.trim = trim;
    make_pool(options);
  }
  std::vector<void*> allocate_pages(std::uint64_t count) {
    std::vector<void*> blocks;
    for (std::uint64_t i = 0; i < count; ++i) blocks.push_back(allocate(kPage));
    return blocks;
  }
  void free_half(std::vector<void*>& blocks) {
    for (std::size_t i = 0; i < blocks.size(); i += 2) {
      free(blocks[i]);
      blocks[i] = nullptr;
    }
  }
  void free_all(const std::vector<void*>& blocks) {
    for (void* block : blocks) {
      if (block != nullptr) free(block);
    }
  }
  /// Steps of maintenance, one each 10 ms; `churn` in between.
  template <class Churn>
  void pass(std::uint64_t duration_ns, Churn churn) {
    for (std::uint64_t i = 0; i < duration_ns / (10 * kMs); ++i) {
      device_.advance_ns(10 * kMs);
      churn();
      pool_->maintain();
    }
  }
  void pass(std::uint64_t duration_ns) {
    pass(duration_ns, [] {});
  }
  std::uint64_t held_pages() const { return device_.held_bytes() / kPage; }
  std::uint64_t trimmed(TrimReason reason) const {
    return pool_->stats().trimmed_bytes_by_reason[static_cast<std::size_t>(reason)];
  }
  std::uint64_t trims(TrimReason reason) const {
    return pool_->stats().trims_by_reason[static_cast<std::size_t>(reason)];
  }
};

TEST_F(PoolTrimmingTest, IdleMemoryGoesAfterItsTimeAndAtItsRate) {
  make_trimming_pool({.idle_after_ns = kSecondNs, .idle_bytes_per_second = 100 * kPage});
  free(allocate(300 * kPage));
  // As far as a look every eighth of that time can tell.
  pass(kSecondNs);
  EXPECT_EQ(held_pages(), 300u);
  pass(300 * kMs);
  // A second's has been saved up.
  EXPECT_LE(held_pages(), 200u);
  EXPECT_GE(held_pages(), 200u - 20u);
  const std::uint64_t before = held_pages();
  pass(kSecondNs);
  EXPECT_NEAR(static_cast<double>(before - held_pages()), 100.0, 2.0);
  EXPECT_EQ(pool_->stats().held_bytes, device_.held_bytes());
  pass(3 * kSecondNs);
  EXPECT_EQ(held_pages(), 0u);
  EXPECT_EQ(trimmed(TrimReason::idle), 300 * kPage);
  EXPECT_GT(trims(TrimReason::idle), 50u);
  EXPECT_EQ(trims(TrimReason::api), 0u);
  EXPECT_EQ(trimmed(TrimReason::pressure), 0u);
}

TEST_F(PoolTrimmingTest, AStepGivesBackAsMuchAsIsDueAndItsBudgetLetsIt) {
  make_trimming_pool({.idle_after_ns = kSecondNs, .idle_bytes_per_second = 400 * kPage});
  free(allocate(300 * kPage));
  for (int i = 0; i < 20; ++i) {
    device_.advance_ns(kSecondNs / 2);
    pool_->maintain(std::chrono::seconds(1));
    if (held_pages() < 300) break;
  }
  EXPECT_EQ(held_pages(), 0u);  // all in one step
}

TEST_F(PoolTrimmingTest, WhatIsUsedNowAndThenStays) {
  make_trimming_pool({.idle_after_ns = kSecondNs, .idle_bytes_per_second = 1000 * kPage});
  void* live = allocate(10 * kPage);
  free(allocate(100 * kPage));
  int step = 0;
  pass(10 * kSecondNs, [&] {
    if (++step % 50 == 0) free(allocate(40 * kPage));
  });
  // As many as each second's peak has.
  EXPECT_EQ(held_pages(), 50u);
  EXPECT_EQ(trimmed(TrimReason::idle), 60 * kPage);
  free(live);
}

TEST_F(PoolTrimmingTest, ABlockThatComesAndGoesKeepsNothingElse) {
  make_trimming_pool({.idle_after_ns = kSecondNs, .idle_bytes_per_second = 1000 * kPage});
  // Blocks around a border of the bins by size, in the middle of what is free.
  auto blocks = allocate_pages(129);
  free_all(blocks);
  pass(5 * kSecondNs, [&] { free(allocate(kMiB)); });
  EXPECT_LE(held_pages(), 2u);
}

// Segments, which go back as a whole.

TEST_F(PoolTrimmingTest, ASegmentThatWasInUseStaysThoughAnotherIsIdle) {
  make_segment_pool({.idle_after_ns = kSecondNs, .idle_bytes_per_second = 64 * kMiB});
  void* small = allocate(32 * kMiB);
  void* large = allocate(512 * kMiB);
  free(small);
  free(large);
  const std::uint64_t mapped = pool_->stats().pages_mapped;
  for (int i = 0; i < 100; ++i) {
    large = allocate(512 * kMiB);
    pass(50 * kMs);
    free(large);
    pass(50 * kMs);
  }
  EXPECT_EQ(device_.held_bytes(), 512 * kMiB);
  EXPECT_EQ(trimmed(TrimReason::idle), 32 * kMiB);
  EXPECT_EQ(pool_->stats().pages_mapped, mapped);
}

TEST_F(PoolTrimmingTest, ASegmentLargerThanWhatIsIdleStays) {
  for (const std::uint64_t first_bytes : {64 * kMiB, 32 * kMiB}) {
    make_segment_pool({.idle_after_ns = kSecondNs, .idle_bytes_per_second = 512 * kMiB});
    void* small = allocate(32 * kMiB);
    free(allocate(64 * kMiB));
    free(small);
    pool_->drain_caches();
    const std::uint64_t mapped = pool_->stats().pages_mapped;
    // One of them at a time, so that as much as the smaller one has is idle.
    std::uint64_t bytes = first_bytes;
    for (int i = 0; i < 100; ++i) {
      void* block = allocate(bytes);
      pass(50 * kMs);
      free(block);
      pool_->drain_caches();
      bytes = 96 * kMiB - bytes;
    }
    EXPECT_EQ(device_.held_bytes(), 64 * kMiB);
    EXPECT_EQ(pool_->stats().pages_mapped, mapped);
  }
}

TEST_F(PoolTrimmingTest, WhatIsInUseNowAndThenIsServedByWhatStays) {
  make_segment_pool({.idle_after_ns = kSecondNs, .idle_bytes_per_second = 512 * kMiB});
  std::vector<void*> small;
  for (int i = 0; i < 8; ++i) small.push_back(allocate(32 * kMiB));
  free(allocate(256 * kMiB));
  free_all(small);
  const std::uint64_t mapped = pool_->stats().pages_mapped;
  // The large segment is in use half of the time, the small ones never.
  for (int i = 0; i < 50; ++i) {
    void* large = allocate(256 * kMiB);
    pass(50 * kMs);
    free(large);
    pass(50 * kMs);
  }
  EXPECT_EQ(device_.held_bytes(), 256 * kMiB);
  EXPECT_EQ(pool_->stats().pages_mapped, mapped);
}

TEST_F(PoolTrimmingTest, ASegmentOfMoreThanASecondsRateGoesAndIsMadeUpFor) {
  make_segment_pool({.idle_after_ns = kSecondNs, .idle_bytes_per_second = 64 * kMiB});
  free(allocate(512 * kMiB));
  pass(kSecondNs);
  EXPECT_EQ(device_.held_bytes(), 512 * kMiB);
  pass(kSecondNs);
  EXPECT_EQ(device_.held_bytes(), 0u);
  EXPECT_EQ(trims(TrimReason::idle), 1u);
  // At the rate that took 8 seconds, of which one was saved up.
  free(allocate(32 * kMiB));
  pass(5 * kSecondNs);
  EXPECT_EQ(device_.held_bytes(), 32 * kMiB);
  pass(3 * kSecondNs);
  EXPECT_EQ(device_.held_bytes(), 0u);
}

TEST_F(PoolTrimmingTest, ASegmentThatLeavesLessThanTheReserveStays) {
  make_segment_pool({.idle_after_ns = kSecondNs, .idle_bytes_per_second = 512 * kMiB}, 64 * kMiB);
  free(allocate(256 * kMiB));
  pass(4 * kSecondNs);
  EXPECT_EQ(device_.held_bytes(), 64 * kMiB);
}

// A request for which the reserve went leaves one large segment in its place.
TEST_F(PoolTrimmingTest, ASegmentThatTheReserveNeedsLittleOfMakesWayForAnExactOne) {
  const TrimOptions kIdle = {.idle_after_ns = kSecondNs, .idle_bytes_per_second = 512 * kMiB};
  const TrimOptions kOthers = {.keep_device_free_bytes = 1024 * kMiB};
  for (const TrimOptions& trim : {TrimOptions(), kIdle, kOthers}) {
    PoolOptions options;
    options.capacity = 64 * kPage;
    options.backing = Backing::cudamalloc;
    options.reserve_bytes = 4 * kPage;
    options.cache_large_bytes = 0;
    options.runtime.trim = trim;
    make_pool(options);
    free(allocate(63 * kPage));
    EXPECT_EQ(device_.held_bytes(), 63 * kPage);
    pass(4 * kSecondNs);
    const bool is_asked = trim.idle_after_ns == 0 && trim.keep_device_free_bytes == 0;
    if (is_asked) {
      EXPECT_EQ(device_.held_bytes(), 63 * kPage);
      EXPECT_EQ(pool_->trim(0), 59 * kPage);
    }
    EXPECT_EQ(device_.held_bytes(), 4 * kPage);
    EXPECT_EQ(pool_->stats().segments, 1u);
    // And so it stays.
    const std::uint64_t calls = backend_.call_count(BackendCall::allocate);
    pass(4 * kSecondNs);
    EXPECT_EQ(pool_->trim(0), 0u);
    EXPECT_EQ(backend_.call_count(BackendCall::allocate), calls);
    pool_->check_invariants();
  }
}

TEST_F(PoolTrimmingTest, ASegmentThatTheReserveNeedsHalfOfStays) {
  PoolOptions options;
  options.capacity = 64 * kPage;
  options.backing = Backing::cudamalloc;
  options.reserve_bytes = 32 * kPage;
  options.cache_large_bytes = 0;
  make_pool(options);
  free(allocate(60 * kPage));
  EXPECT_EQ(pool_->trim(0), 0u);
  EXPECT_EQ(device_.held_bytes(), 60 * kPage);
}

// The limit has no room for both, so that the exact one can only come afterwards.
TEST_F(PoolTrimmingTest, AReserveThatTheDriverWouldNotGiveIsTriedForAgain) {
  PoolOptions options;
  options.capacity = 64 * kPage;
  options.backing = Backing::cudamalloc;
  options.reserve_bytes = 4 * kPage;
  options.cache_large_bytes = 0;
  make_pool(options);
  free(allocate(63 * kPage));
  backend_.fail_nth(BackendCall::allocate, 1, Error::out_of_memory);
  EXPECT_EQ(pool_->trim(0), 59 * kPage) << "once it is tried for again at once";
  EXPECT_EQ(device_.held_bytes(), 4 * kPage);
  free(allocate(63 * kPage));
  backend_.fail_at_random(BackendCall::allocate, 1.0, Error::out_of_memory);
  EXPECT_EQ(pool_->trim(0), 63 * kPage);
  EXPECT_EQ(device_.held_bytes(), 0u);
  backend_.clear();
  pool_->maintain(std::chrono::seconds(1));
  EXPECT_EQ(device_.held_bytes(), 4 * kPage);
}

// Where both have room it comes first, so that nothing is lost where the driver refuses it.
TEST_F(PoolTrimmingTest, ALargeSegmentStaysUntilThereIsAnExactOne) {
  PoolOptions options;
  options.backing = Backing::cudamalloc;
  options.reserve_bytes = 4 * kPage;
  options.cache_large_bytes = 0;
  make_pool(options);
  // Another process has what would be needed beside the reserve.
  ASSERT_TRUE(device_.set_taken_by_others(1024 * kMiB - 64 * kPage).ok());
  void* const large = allocate(63 * kPage);
  ASSERT_TRUE(device_.set_taken_by_others(0).ok());
  free(large);
  pass(kSecondNs);  // the device's memory is read
  backend_.fail_nth(BackendCall::allocate, 1, Error::out_of_memory);
  EXPECT_EQ(pool_->trim(0), 0u);
  EXPECT_EQ(device_.held_bytes(), 63 * kPage);
  pool_->check_invariants();
  EXPECT_EQ(pool_->trim(0), 59 * kPage);
  EXPECT_EQ(device_.held_bytes(), 4 * kPage);
}

TEST_F(PoolTrimmingTest, TheReserveStays) {
  make_trimming_pool({.idle_after_ns = kSecondNs, .idle_bytes_per_second = 1000 * kPage},
                     20 * kPage);
  free(allocate(100 * kPage));
  pass(5 * kSecondNs);
  EXPECT_EQ(held_pages(), 20u);
  EXPECT_EQ(trimmed(TrimReason::idle), 80 * kPage);
}

TEST_F(PoolTrimmingTest, WhereOnlyTheReserveIsHeldNothingIsLookedFor) {
  make_trimming_pool({.idle_after_ns = kSecondNs,
                      .idle_bytes_per_second = 1000 * kPage,
                      .keep_device_free_bytes = 1024 * kMiB},
                     20 * kPage);
  // Of maintenance without a budget: whether there is anything to do with one.
  bool has_more = false;
  for (int i = 0; i < 500; ++i) {
    device_.advance_ns(10 * kMs);
    const std::uint64_t before = backend_.call_count(BackendCall::memory_info);
    const bool more = pool_->maintain(std::chrono::nanoseconds(0)).more_to_do;
    // The device's memory is read then, and found to be short.
    if (backend_.call_count(BackendCall::memory_info) == before) has_more = has_more || more;
    pool_->maintain();
  }
  EXPECT_FALSE(has_more);
  EXPECT_EQ(held_pages(), 20u);
}

TEST_F(PoolTrimmingTest, OffItKeepsAll) {
  make_trimming_pool({});
  free(allocate(100 * kPage));
  pass(20 * kSecondNs);
  EXPECT_EQ(held_pages(), 100u);
  RuntimeOptions options = pool_->runtime_options();
  options.trim.idle_after_ns = kSecondNs;
  ASSERT_TRUE(pool_->reconfigure(options).ok());
  pass(3 * kSecondNs);
  EXPECT_EQ(held_pages(), 0u);
}

// What goes back is not what `eager` may hold any more.
TEST_F(PoolTrimmingTest, AfterwardsNoMoreIsHeldThanIsOccupied) {
  make_trimming_pool({.idle_after_ns = kSecondNs, .idle_bytes_per_second = 1000 * kPage});
  auto blocks = allocate_pages(100);
  free_half(blocks);
  pass(3 * kSecondNs);
  EXPECT_EQ(held_pages(), 50u);
  for (std::size_t i = 1; i < blocks.size(); i += 4) {
    free(blocks[i]);
    blocks[i] = nullptr;
  }
  void* large = allocate(25 * kPage);
  EXPECT_EQ(held_pages(), 50u);
  free(large);
  free_all(blocks);
}

// Others on the device.

TEST_F(PoolTrimmingTest, OthersGetWhatIsEmpty) {
  make_trimming_pool({.keep_device_free_bytes = 200 * kMiB});
  void* live = allocate(50 * kPage);
  free(allocate(150 * kPage));
  ASSERT_TRUE(device_.set_taken_by_others(400 * kMiB).ok());
  pass(200 * kMs);
  // 1024 - 400 - 400 MiB are free: enough.
  EXPECT_EQ(held_pages(), 200u);
  ASSERT_TRUE(device_.set_taken_by_others(501 * kMiB).ok());
  pass(200 * kMs);
  EXPECT_EQ(device_.memory_info().value().free_bytes, 201 * kMiB);
  EXPECT_EQ(trimmed(TrimReason::pressure), 78 * kMiB);
  EXPECT_EQ(trimmed(TrimReason::idle), 0u);
  for (const std::uint64_t mib : {700u, 890u}) {
    ASSERT_TRUE(device_.set_taken_by_others(mib * kMiB).ok());
    pass(kSecondNs);
  }
  EXPECT_EQ(held_pages(), 50u);  // and no more is empty
  EXPECT_EQ(trimmed(TrimReason::pressure), 300 * kMiB);
  EXPECT_EQ(pool_->stats().held_bytes, device_.held_bytes());
  free(live);
}

TEST_F(PoolTrimmingTest, OthersDoNotGetTheReserve) {
  make_trimming_pool({.keep_device_free_bytes = 500 * kMiB}, 100 * kPage);
  free(allocate(200 * kPage));
  ASSERT_TRUE(device_.set_taken_by_others(600 * kMiB).ok());
  pass(kSecondNs);
  EXPECT_EQ(held_pages(), 100u);
}

TEST_F(PoolTrimmingTest, OthersGetWhatHasMovedAwayFromItsOldAddress) {
  make_trimming_pool({.keep_device_free_bytes = 924 * kMiB});
  auto blocks = allocate_pages(60);
  free_half(blocks);
  void* large = allocate(30 * kPage);  // they move; their old addresses are not unmapped yet
  free(large);
  device_.advance_ns(kSecondNs);
  for (int i = 0; i < 50; ++i) pool_->maintain();
  EXPECT_EQ(held_pages(), 50u);
  free_all(blocks);
}

TEST_F(PoolTrimmingTest, OthersWaitForTheBudgetToo) {
  make_trimming_pool({.keep_device_free_bytes = 1000 * kMiB});
  free(allocate(400 * kPage));
  ASSERT_TRUE(device_.set_taken_by_others(100 * kMiB).ok());
  device_.advance_ns(kSecondNs);
  constexpr std::uint64_t kBudgetNs = kMs;
  std::uint64_t steps = 0;
  bool has_more = false;
  do {
    const std::uint64_t start = device_.clock().now_ns();
    has_more = pool_->maintain(std::chrono::nanoseconds(kBudgetNs)).more_to_do;
    // Sixteen pages are given back between two looks at the clock.
    EXPECT_LE(device_.clock().now_ns() - start, kBudgetNs + 960'000);
    ++steps;
  } while (has_more && steps < 100);
  EXPECT_EQ(held_pages(), 0u);
  EXPECT_GT(steps, 5u);
  // Nothing is left to give, which costs the steps that follow nothing.
  const std::uint64_t calls = backend_.call_count(BackendCall::unmap);
  pass(kSecondNs);
  EXPECT_EQ(backend_.call_count(BackendCall::unmap), calls);
}

// Each step looks no further than for what it gives: to look at all that is empty each time would
// take as many looks as there are pages, squared, under the lock that every request needs.
TEST(PoolTrimmingTime, WhatOthersGetCostsLittleMoreThanToGiveAllAtOnce) {
  SimulatedBackend device({.capacity_bytes = std::uint64_t{64} << 30, .charge_costs = false});
  PoolOptions options;
  options.cache_large_bytes = 0;
  auto pool = Pool::create(device, options).value();
  const StreamRef stream = pool->adopt_stream(device.create_stream()).value();
  const auto fill = [&] {
    std::vector<void*> pages(20'000);
    for (void*& page : pages) page = pool->allocate(kPage, stream).value();
    for (void* page : pages) EXPECT_TRUE(pool->deallocate(page, stream));
    pool->drain_caches();
  };
  const auto cpu_ns = [] {
    timespec now{};
    EXPECT_EQ(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return static_cast<std::uint64_t>(now.tv_sec) * kSecondNs +
           static_cast<std::uint64_t>(now.tv_nsec);
  };
  fill();
  std::uint64_t start = cpu_ns();
  EXPECT_EQ(pool->trim(0), 20'000 * kPage);
  const std::uint64_t at_once_ns = cpu_ns() - start;
  fill();
  RuntimeOptions runtime = pool->runtime_options();
  runtime.trim.keep_device_free_bytes = kMaxTrimBytes;
  ASSERT_TRUE(pool->reconfigure(runtime).ok());
  device.advance_ns(kSecondNs);
  start = cpu_ns();
  EXPECT_EQ(pool->maintain(std::chrono::hours(1)).released_bytes, 20'000 * kPage);
  EXPECT_LT(cpu_ns() - start, 10 * at_once_ns);
}

// Pages that have moved.

TEST_F(PoolTrimmingTest, TrimUnmapsOldAddressesFirst) {
  make_trimming_pool({});
  auto blocks = allocate_pages(40);
  free_half(blocks);
  free(allocate(20 * kPage));
  EXPECT_EQ(pool_->stats().pages_recycled, 20u);
  EXPECT_EQ(backend_.call_count(BackendCall::unmap), 0u);
  EXPECT_EQ(pool_->trim(0), 20 * kPage);
  EXPECT_EQ(held_pages(), 20u);
  free_all(blocks);
}

TEST_F(PoolTrimmingTest, WhatIsStillUsedByItsOldAddressStaysAsAWhole) {
  make_trimming_pool({}, 0, AliasReuse::same_stream);
  PoolOptions options;
  options.capacity = 8 * kPage;
  options.cache_large_bytes = 0;
  options.runtime.alias_reuse = AliasReuse::same_stream;
  make_pool(options);
  auto blocks = allocate_pages(8);
  for (const std::size_t i : {0u, 2u}) {
    EXPECT_TRUE(work(raw_a_, blocks[i], kPage));
    free(blocks[i]);
    blocks[i] = nullptr;
  }
  free(allocate(2 * kPage));
  EXPECT_EQ(pool_->trim(0), 0u);
  EXPECT_EQ(held_pages(), 8u);
  device_.complete_all();
  EXPECT_EQ(pool_->trim(0), 2 * kPage);
  EXPECT_EQ(held_pages(), 6u);
  free_all(blocks);
}

TEST_F(PoolTrimmingTest, WhatTheDriverWouldNotUnmapStaysAsAWhole) {
  make_trimming_pool({});
  auto blocks = allocate_pages(8);
  free_half(blocks);
  free(allocate(4 * kPage));
  backend_.fail_nth(BackendCall::unmap, 2, Error::backend_failure);
  backend_.fail_nth(BackendCall::unmap, 5, Error::backend_failure);  // it is tried again
  EXPECT_EQ(pool_->trim(0), 3 * kPage);
  EXPECT_EQ(held_pages(), 5u);
  pool_->check_invariants();
  EXPECT_EQ(pool_->trim(0), kPage);
  EXPECT_EQ(held_pages(), 4u);
  free_all(blocks);
}

TEST_F(PoolTrimmingTest, MaintainUnmapsOldAddressesAsItsBudgetLets) {
  make_trimming_pool({});
  auto blocks = allocate_pages(400);
  free_half(blocks);
  void* large = allocate(200 * kPage);
  EXPECT_EQ(pool_->stats().pages_recycled, 200u);
  const auto unmaps = [&] { return backend_.call_count(BackendCall::unmap); };
  EXPECT_TRUE(pool_->maintain(std::chrono::nanoseconds(0)).more_to_do);
  EXPECT_EQ(unmaps(), 0u);
  std::uint64_t steps = 0;
  for (bool has_more = true; has_more && steps < 100; ++steps) {
    const std::uint64_t start = device_.clock().now_ns();
    has_more = pool_->maintain(std::chrono::microseconds(300)).more_to_do;
    EXPECT_LE(device_.clock().now_ns() - start, 620'000u);
  }
  EXPECT_EQ(unmaps(), 200u);
  EXPECT_GE(steps, 6u);
  EXPECT_FALSE(pool_->maintain().more_to_do);
  free(large);
  free_all(blocks);
}

TEST_F(PoolTrimmingTest, OldAddressesThatTheDriverWouldNotUnmapAreTriedAgain) {
  make_trimming_pool({});
  auto blocks = allocate_pages(4);
  free_half(blocks);
  void* two = allocate(2 * kPage);
  backend_.fail_nth(BackendCall::unmap, 1, Error::backend_failure);
  backend_.fail_nth(BackendCall::unmap, 2, Error::backend_failure);
  pool_->maintain();
  pool_->check_invariants();
  EXPECT_EQ(backend_.failed_count(), 2u);
  pool_->maintain();
  EXPECT_EQ(backend_.call_count(BackendCall::unmap), 4u);
  pool_->check_invariants();
  free(two);
  free_all(blocks);
  EXPECT_EQ(pool_->trim(0), 4 * kPage);
}

}  // namespace
}  // namespace gpupool
