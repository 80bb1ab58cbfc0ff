// A pool that moves empty pages: how much it holds, what it never moves, and a driver that refuses
// in the middle of it.
#include <tuple>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolRecyclingTest : public PoolFixture {
 protected:
  void SetUp() override { make_pool_of_pages(512); }

  /// Without caches, so that what is freed is free.
  static PoolOptions options_of(std::uint64_t pages, Recycling recycling = Recycling::eager,
                                AliasReuse reuse = AliasReuse::wait) {
    PoolOptions options;
    options.capacity = pages * kPage;
    options.cache_small_bytes = 0;
    options.cache_large_bytes = 0;
    options.runtime.recycling = recycling;
    options.runtime.alias_reuse = reuse;
    options.runtime.slack = 0;
    return options;
  }
  void make_pool_of_pages(std::uint64_t pages, Recycling recycling = Recycling::eager,
                          AliasReuse reuse = AliasReuse::wait) {
    make_pool(options_of(pages, recycling, reuse));
  }
  std::uint64_t held_pages() const { return pool_->stats().held_bytes / kPage; }
  std::vector<void*> allocate_pages(std::uint64_t count, StreamRef stream) {
    std::vector<void*> blocks;
    for (std::uint64_t i = 0; i < count; ++i) blocks.push_back(allocate(kPage, stream));
    return blocks;
  }
  std::vector<void*> allocate_pages(std::uint64_t count) { return allocate_pages(count, a_); }
  /// Every other one, from the first on.
  void free_half(std::vector<void*>& blocks, StreamRef stream) {
    for (std::size_t i = 0; i < blocks.size(); i += 2) {
      free(blocks[i], stream);
      blocks[i] = nullptr;
    }
  }
  void free_half(std::vector<void*>& blocks) { free_half(blocks, a_); }
  void free_all(const std::vector<void*>& blocks) {
    for (void* block : blocks) {
      if (block != nullptr) free(block);
    }
  }
  std::uint64_t calls(BackendCall call) const { return backend_.call_count(call); }
  std::uint64_t fallbacks(FallbackReason reason) const {
    return pool_->stats().fallbacks_by_reason[static_cast<std::size_t>(reason)];
  }
};

TEST_F(PoolRecyclingTest, EmptyPagesMoveBeforeMoreIsHeld) {
  auto blocks = allocate_pages(40);
  free_half(blocks);
  const std::uint64_t created = calls(BackendCall::create);
  void* large = allocate(20 * kPage);
  EXPECT_EQ(calls(BackendCall::create), created);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.held_bytes, 40 * kPage);
  EXPECT_EQ(stats.peak_held_bytes, 40 * kPage);
  EXPECT_EQ(device_.held_bytes(), 40 * kPage);
  EXPECT_EQ(stats.pages_recycled, 20u);
  EXPECT_GT(stats.recycle_ns, 0u);
  EXPECT_EQ(stats.free_bytes, 0u);
  EXPECT_TRUE(work(raw_a_, large, 20 * kPage));
  pool_->maintain(std::chrono::seconds(1));
  EXPECT_EQ(calls(BackendCall::unmap), 20u);
  pool_->check_invariants();
  free(large);
  free_all(blocks);
}

TEST_F(PoolRecyclingTest, MoreIsHeldOnceRequestsHaveWaitedEnough) {
  for (const double share : {0.01, 1.0}) {
    SCOPED_TRACE(share);
    PoolOptions options = options_of(512);
    options.runtime.recycling_wait = share;
    make_pool(options);
    // Moves a hundred pages, 3 ms, where no more than two hundred are held.
    const auto play = [&] {
      auto blocks = allocate_pages(200);
      free_half(blocks);
      free(allocate(100 * kPage));
      free_all(blocks);
    };
    for (int round = 0; round < 300; ++round) play();
    const StatsV1 before = pool_->stats();
    EXPECT_EQ(before.recycling_wait, share);
    EXPECT_EQ(before.recycling_forgone > 0, share < 1.0);
    EXPECT_EQ(before.held_bytes > 200 * kPage, share < 1.0);
    EXPECT_GE(before.recycle_ns, 500 * kMs) << "a start may cost so much";
    for (int round = 0; round < 10; ++round) play();
    EXPECT_EQ(pool_->stats().pages_recycled == before.pages_recycled, share < 1.0)
        << "once the pool has what its requests need, nothing moves";
  }
}

TEST_F(PoolRecyclingTest, PressureMovesAtTheLimitAndOffGivesBackInstead) {
  for (const Recycling recycling : {Recycling::pressure, Recycling::off}) {
    make_pool_of_pages(45, recycling);
    auto blocks = allocate_pages(40);
    free_half(blocks);
    void* fits = allocate(4 * kPage);
    EXPECT_EQ(pool_->stats().pages_recycled, 0u);
    EXPECT_EQ(held_pages(), 44u);
    void* more = allocate(10 * kPage);
    EXPECT_EQ(pool_->stats().pages_recycled, recycling == Recycling::pressure ? 9u : 0u);
    EXPECT_EQ(
        pool_->stats().trimmed_bytes_by_reason[static_cast<std::size_t>(TrimReason::out_of_memory)],
        recycling == Recycling::pressure ? 0u : 9 * kPage);
    EXPECT_LE(held_pages(), 45u);
    free(more);
    free(fits);
    free_all(blocks);
  }
}

TEST_F(PoolRecyclingTest, SlackIsWhatMayBeHeldBeyond) {
  PoolOptions options = options_of(512);
  options.runtime.slack = 0.1;
  make_pool(options);
  auto blocks = allocate_pages(100);
  free_half(blocks);
  void* large = allocate(30 * kPage);
  EXPECT_EQ(held_pages(), 110u);
  EXPECT_EQ(pool_->stats().pages_recycled, 20u);
  free(large);
  free_all(blocks);
}

// What is pending is occupied already; that a request will lie there makes no more of it.
TEST_F(PoolRecyclingTest, OnesOwnUnfinishedPagesCountOnce) {
  auto singles = allocate_pages(30, b_);
  void* own = allocate(30 * kPage);
  EXPECT_TRUE(work(raw_a_, own));
  free(own);
  free_half(singles, b_);
  EXPECT_EQ(held_pages(), 60u);
  void* larger = allocate(31 * kPage);
  EXPECT_EQ(larger, own);
  EXPECT_EQ(held_pages(), 60u);
  EXPECT_EQ(pool_->stats().pages_recycled, 1u);
  void* more = allocate(5 * kPage);
  EXPECT_EQ(held_pages(), 60u);
  free(larger);
  free(more);
  free_all(singles);
}

TEST_F(PoolRecyclingTest, WaitDoesNotMoveWhatIsUnfinished) {
  make_pool_of_pages(8);
  const auto blocks = allocate_pages(8);
  EXPECT_TRUE(work(raw_a_, blocks[0]));
  free(blocks[0]);
  free(blocks[2]);
  // Of page 0 the work is unfinished, of page 2 nothing is.
  pool_->maintain();
  EXPECT_FALSE(pool_->allocate(2 * kPage, a_).ok());
  EXPECT_EQ(pool_->last_failure().reason, MissReason::pending);
  EXPECT_EQ(pool_->stats().pages_recycled, 0u);
  EXPECT_EQ(pool_->would_fit(2 * kPage, a_), Fit::after_pending);
  device_.complete_all();
  void* two = allocate(2 * kPage);
  EXPECT_EQ(pool_->stats().pages_recycled, 2u);
  EXPECT_EQ(held_pages(), 8u);
  free(two);
  for (const std::size_t i : {1u, 3u, 4u, 5u, 6u, 7u}) free(blocks[i]);
}

TEST_F(PoolRecyclingTest, SameStreamMovesItsOwnAtOnceAndOthersNot) {
  make_pool_of_pages(8, Recycling::eager, AliasReuse::same_stream);
  const auto blocks = allocate_pages(8);
  EXPECT_TRUE(work(raw_a_, blocks[0]));
  EXPECT_TRUE(work(raw_a_, blocks[2]));
  free(blocks[0]);
  free(blocks[2]);
  EXPECT_FALSE(pool_->allocate(2 * kPage, b_).ok());
  const std::uint64_t unmapped = calls(BackendCall::unmap);
  void* two = allocate(2 * kPage);
  EXPECT_EQ(pool_->stats().pages_recycled, 2u);
  EXPECT_TRUE(work(raw_a_, two, 2 * kPage));
  // By their old addresses they are in use until the work is done.
  pool_->maintain(std::chrono::seconds(1));
  pool_->trim(0);
  EXPECT_EQ(calls(BackendCall::unmap), unmapped);
  device_.complete_all();
  pool_->maintain(std::chrono::seconds(1));
  EXPECT_EQ(calls(BackendCall::unmap), unmapped + 2);
  free(two);
  for (const std::size_t i : {1u, 3u, 4u, 5u, 6u, 7u}) free(blocks[i]);
}

// What a request leaves of the pages that moved for it is the stream's alone as it was before.
TEST_F(PoolRecyclingTest, WhatIsLeftOfMovedPagesIsStillInUse) {
  make_pool_of_pages(8, Recycling::eager, AliasReuse::same_stream);
  const auto blocks = allocate_pages(8);
  for (const std::size_t i : {0u, 2u}) {
    EXPECT_TRUE(work(raw_a_, blocks[i]));
    free(blocks[i]);
  }
  void* const most = allocate(2 * kPage - kMiB);
  EXPECT_EQ(pool_->stats().pages_recycled, 2u);
  EXPECT_EQ(pool_->stats().pending_bytes, kMiB);
  EXPECT_FALSE(pool_->allocate(kMiB, b_).ok());
  device_.complete_all();
  free(allocate(kMiB, b_), b_);
  free(most);
  for (const std::size_t i : {1u, 3u, 4u, 5u, 6u, 7u}) free(blocks[i]);
}

TEST_F(PoolRecyclingTest, SameStreamDoesNotMoveWhatAnotherStreamUses) {
  make_pool_of_pages(8, Recycling::eager, AliasReuse::same_stream);
  const auto blocks = allocate_pages(8);
  for (const std::size_t i : {0u, 2u}) {
    EXPECT_TRUE(work(raw_b_, blocks[i]));
    EXPECT_TRUE(pool_->record_use(blocks[i], b_));
    free(blocks[i]);
  }
  EXPECT_FALSE(pool_->allocate(2 * kPage, a_).ok());
  device_.complete_all();
  free(allocate(2 * kPage));
  for (const std::size_t i : {1u, 3u, 4u, 5u, 6u, 7u}) free(blocks[i]);
}

// Where one stream is known, what is free is in one run, whatever is still at work there.
TEST_F(PoolRecyclingTest, ARefusedRequestLeavesIdlePagesIdle) {
  end_pool();
  pool_ = Pool::create(backend_, options_of(8)).value();
  raw_a_ = device_.create_stream();
  a_ = pool_->adopt_stream(raw_a_).value();
  const auto blocks = allocate_pages(8);
  for (const std::size_t i : {1u, 5u, 7u}) free(blocks[i]);
  pool_->maintain();
  EXPECT_TRUE(work(raw_a_, blocks[0]));
  free(blocks[0]);
  pool_->maintain();
  // Pages 1, 5 and 7 are idle, and page 0 beside them is not.
  EXPECT_FALSE(pool_->allocate(5 * kPage, a_).ok());
  EXPECT_EQ(held_pages(), 8u);  // what would not have been enough is not given back for it
  free(allocate(3 * kPage));
  EXPECT_EQ(pool_->stats().pages_recycled, 2u);
  for (const std::size_t i : {2u, 3u, 4u, 6u}) free(blocks[i]);
}

TEST_F(PoolRecyclingTest, ARefusedRequestTakesNothingFromTheReserve) {
  PoolOptions options = options_of(8);
  options.reserve_bytes = 8 * kPage;
  make_pool(options);
  auto blocks = allocate_pages(8);
  free_half(blocks);
  pool_->maintain();
  EXPECT_FALSE(pool_->allocate(5 * kPage, a_).ok());
  AllocationRequest request;
  request.bytes = kPage;
  request.allocation_class = AllocationClass::contiguous;
  EXPECT_FALSE(pool_->allocate(request, a_).ok());
  EXPECT_EQ(device_.held_bytes(), 8 * kPage);
  free(allocate(4 * kPage));
  free_all(blocks);
}

TEST_F(PoolRecyclingTest, SegmentsGoBackInsteadOfMoving) {
  PoolOptions options = options_of(64);
  options.backing = Backing::cudamalloc;
  make_pool(options);
  std::vector<void*> blocks(4);
  for (void*& block : blocks) block = allocate(16 * kPage);
  free(blocks[0]);
  free(blocks[2]);
  void* large = allocate(32 * kPage);
  EXPECT_EQ(held_pages(), 64u);
  EXPECT_EQ(pool_->stats().pages_recycled, 0u);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.pages_unmapped, 32u);
  EXPECT_EQ(stats.trims_by_reason[static_cast<std::size_t>(TrimReason::recycle)], 1u);
  EXPECT_EQ(stats.trims_by_reason[static_cast<std::size_t>(TrimReason::out_of_memory)], 0u);
  free(large);
  free(blocks[1]);
  free(blocks[3]);
}

// Addresses.

// Stale addresses without maintenance.

// Where nobody maintains the pool, a request that moves pages unmaps twice as many old addresses
// as it leaves, once there are very many; and not all of them, which might take half a minute.
TEST(PoolWithoutMaintenance, StaleAddressesAreBoundedAndSoIsWhatARequestUnmaps) {
  constexpr std::uint64_t kRowPages = 1024;
  constexpr std::uint64_t kMostStale = 4096;
  SimulatedBackend device({.capacity_bytes = std::uint64_t{8} << 30, .charge_costs = false});
  PoolOptions options;
  options.cache_large_bytes = 0;
  options.runtime.slack = 0;
  auto pool = Pool::create(device, options).value();
  const StreamRef stream = pool->adopt_stream(device.create_stream()).value();
  std::uint64_t moved = 0;
  std::uint64_t most_stale = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<void*> pages(kRowPages);
    for (void*& page : pages) page = pool->allocate(kPage, stream).value();
    for (std::size_t i = 0; i < kRowPages; i += 2) pool->deallocate(pages[i], stream);
    const StatsV1 before = pool->stats();
    void* const row = pool->allocate(kRowPages / 2 * kPage, stream).value();
    const StatsV1 after = pool->stats();
    moved = after.pages_recycled - before.pages_recycled;
    ASSERT_LE(before.stale_pages + moved - after.stale_pages, 2 * moved);
    most_stale = std::max(most_stale, after.stale_pages);
    for (std::size_t i = 1; i < kRowPages; i += 2) pool->deallocate(pages[i], stream);
    pool->deallocate(row, stream);
  }
  EXPECT_GT(pool->stats().pages_recycled, 3 * kMostStale);
  EXPECT_LE(most_stale, kMostStale);
  EXPECT_GT(most_stale, kMostStale - kRowPages);
  pool->check_invariants();
  EXPECT_EQ(device.violation_count(), 0u) << device.last_violation();
}

/// Uses up addresses: of each row all but the last page is a hole that is too short for the next
/// row, which is one page longer.
class PoolAddressTest : public PoolRecyclingTest {
 protected:
  void start(std::uint64_t pages, std::uint64_t rows) {
    make_pool_of_pages(pages);
    row_pages_ = pages - 2 * rows;
  }
  void use_up(std::uint64_t rows) {
    for (std::uint64_t i = 0; i < rows; ++i) {
      free(allocate(row_pages_ * kPage));
      void* front = allocate((row_pages_ - 1) * kPage);
      pins_.push_back(allocate(kPage));
      free(front);
      ++row_pages_;
    }
  }
  std::uint64_t row_pages_ = 0;
  std::vector<void*> pins_;
};

TEST_F(PoolAddressTest, OneRangeAfterTheOther) {
  start(64, 13);
  EXPECT_EQ(pool_->stats().address_range_bytes, 512 * kPage);
  use_up(13);
  EXPECT_EQ(pool_->stats().address_range_bytes, 1024 * kPage);
  EXPECT_EQ(calls(BackendCall::reserve_address), 3u);  // one was of the pool before
  EXPECT_LE(held_pages(), 64u);
  EXPECT_EQ(pool_->stats().fallbacks, 0u);
  const std::uint64_t all_pages = 64 - pins_.size();
  void* all = allocate(all_pages * kPage);
  EXPECT_TRUE(work(raw_a_, all, all_pages * kPage));
  EXPECT_EQ(pool_->find_size(all).value(), all_pages * kPage);
  device_.complete_all();
  free(all);
  // Blocks of each kind in a later range.
  void* rest = allocate((all_pages - 1) * kPage);
  std::vector<void*> small;
  for (const std::uint64_t bytes : {kKiB / 2, 5 * kKiB + 7, 100 * kKiB, 700 * kKiB}) {
    small.push_back(allocate(bytes));
    EXPECT_TRUE(work(raw_a_, small.back(), bytes));
    EXPECT_EQ(pool_->find_size(small.back()).value(), bytes);
  }
  EXPECT_FALSE(pool_->deallocate(at(rest, 4096), a_));
  EXPECT_EQ(count(Misuse::interior_pointer), 1u);
  device_.complete_all();
  free(rest);
  free_all(small);
  free_all(pins_);
  pool_->check_invariants();
  pool_->trim(0);
  EXPECT_EQ(device_.held_bytes(), 0u);
  end_pool();
  EXPECT_EQ(calls(BackendCall::free_address), calls(BackendCall::reserve_address));
}

TEST_F(PoolAddressTest, WhereTheDeviceHasNoMoreAddressesTheDriverServesAlone) {
  start(64, 14);
  backend_.fail_nth(BackendCall::reserve_address, 1, Error::out_of_memory);
  std::uint64_t steps = 0;
  while (pool_->stats().fallbacks == 0 && ++steps < 14) use_up(1);
  EXPECT_EQ(fallbacks(FallbackReason::address_space), 1u);
  EXPECT_EQ(backend_.failed_count(), 1u);
  EXPECT_LE(device_.held_bytes(), 64 * kPage);
  pool_->check_invariants();
  use_up(1);
  EXPECT_EQ(fallbacks(FallbackReason::address_space), 1u);
  EXPECT_EQ(pool_->stats().address_range_bytes, 1024 * kPage);
  free_all(pins_);
}

TEST_F(PoolAddressTest, AfterFourRangesTheDriverServesAlone) {
  start(256, 50);
  std::uint64_t steps = 0;
  while (pool_->stats().fallbacks == 0 && ++steps < 50) use_up(1);
  EXPECT_GE(fallbacks(FallbackReason::address_space), 1u);
  EXPECT_EQ(pool_->stats().address_range_bytes, 8192 * kPage);
  EXPECT_LE(device_.held_bytes(), 256 * kPage);
  pool_->check_invariants();
  free_all(pins_);
}

// Handles of several pages.

TEST(PoolLargeHandleTest, OnesThatDoNotFitAreBrokenUp) {
  for (const bool is_reserved : {false, true}) {
    SimulatedBackend device({.capacity_bytes = std::uint64_t{16} << 30});
    FaultyBackend backend(device);
    constexpr std::uint64_t kPages = 4400;
    PoolOptions options;
    options.capacity = kPages * kPage;
    options.cache_large_bytes = 0;
    if (is_reserved) options.reserve_bytes = kPages * kPage;
    auto pool = Pool::create(backend, options).value();
    const StreamRef stream = pool->adopt_stream(device.create_stream()).value();
    const auto allocate = [&](std::uint64_t pages) {
      const auto block = pool->allocate(pages * kPage, stream);
      EXPECT_TRUE(block.ok()) << pool->last_failure().text();
      return block.ok() ? block.value() : nullptr;
    };
    // From 4000 pages on a new handle is of two.
    void* most = allocate(4050);
    std::vector<void*> pairs(175);
    for (void*& pair : pairs) pair = allocate(2);
    EXPECT_EQ(device.held_bytes(), kPages * kPage);
    for (std::size_t i = 0; i < pairs.size(); i += 3) {
      EXPECT_TRUE(pool->deallocate(pairs[i], stream));
      pairs[i] = nullptr;
    }
    pool->maintain();
    void* even = allocate(10);
    const std::uint64_t moved = pool->stats().pages_recycled;
    EXPECT_EQ(moved, 8u);  // and two are at the end already
    EXPECT_EQ(pool->stats().pages_unmapped, 0u);
    void* odd = allocate(7);
    EXPECT_GT(pool->stats().pages_unmapped, 0u);  // given back, and got again
    EXPECT_LE(device.held_bytes(), kPages * kPage);
    EXPECT_EQ(pool->stats().failures, 0u);
    pool->check_invariants();
    for (void* block : {most, even, odd}) EXPECT_TRUE(pool->deallocate(block, stream));
    for (void* block : pairs) {
      if (block != nullptr) {
        EXPECT_TRUE(pool->deallocate(block, stream));
      }
    }
    pool.reset();
    EXPECT_EQ(device.violation_count(), 0u) << device.last_violation();
    EXPECT_EQ(device.object_count(), 0u);
  }
}

// Faults.

class PoolRecyclingFaultTest
    : public PoolRecyclingTest,
      public testing::WithParamInterface<std::tuple<Recycling, AliasReuse, Error>> {
 protected:
  /// A request for which four pages move and two are created, or as many as there are; the n-th
  /// call fails, and another one so many calls later (0: none).
  void try_with(std::uint64_t n, std::uint64_t later) {
    const auto [recycling, reuse, error] = GetParam();
    make_pool_of_pages(14, recycling, reuse);
    // A few looks: each is a number of calls, of which each is made to fail.
    RuntimeOptions runtime = pool_->runtime_options();
    runtime.out_of_memory.wait_ns = 100'000;
    ASSERT_TRUE(pool_->reconfigure(runtime).ok());
    auto blocks = allocate_pages(12, a_);
    for (const std::size_t i : {1u, 3u, 4u, 8u}) {
      EXPECT_TRUE(work(raw_a_, blocks[i]));
      free(blocks[i]);
      blocks[i] = nullptr;
    }
    if (reuse == AliasReuse::wait) device_.complete_all();
    const std::uint64_t failed = backend_.failed_count();
    backend_.fail_nth_of_all(n, error);
    if (later > 0) backend_.fail_nth_of_all(n + later, error);
    const auto first = pool_->allocate(6 * kPage, a_);
    has_failed_ = backend_.failed_count() - failed;
    backend_.clear();
    pool_->check_invariants();
    EXPECT_EQ(pool_->stats().held_bytes, device_.held_bytes());
    EXPECT_LE(device_.held_bytes(), 14 * kPage);
    if (first.ok()) {
      EXPECT_TRUE(work(raw_a_, first.value(), 6 * kPage));
      free(first.value());
    } else {
      EXPECT_TRUE(first.error() == error || first.error() == Error::out_of_memory);
      EXPECT_GT(has_failed_, 0u);
    }
    // What had been refused is served now, and by pages that are as good as before.
    device_.complete_all();
    void* second = allocate(6 * kPage);
    EXPECT_TRUE(work(raw_a_, second, 6 * kPage));
    for (void* block : blocks) {
      if (block != nullptr) {
        EXPECT_TRUE(work(raw_a_, block, kPage));
      }
    }
    device_.complete_all();
    free(second);
    free_all(blocks);
    pool_->maintain(std::chrono::seconds(1));
    pool_->check_invariants();
    pool_->trim(0);
    EXPECT_EQ(device_.held_bytes(), 0u);
    EXPECT_EQ(pool_->stats().held_bytes, 0u);
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
  }
  std::uint64_t has_failed_ = 0;
};

TEST_P(PoolRecyclingFaultTest, EachCallThatFailsIsGotOver) {
  std::uint64_t n = 1;
  for (has_failed_ = 1; has_failed_ > 0 && !HasFailure(); ++n) try_with(n, 0);
  EXPECT_GT(n, 10u);
}

TEST_P(PoolRecyclingFaultTest, AndEachSecondOne) {
  std::uint64_t tries = 0;
  for (std::uint64_t n = 1; n < 100; ++n) {
    std::uint64_t later = 0;
    do {
      try_with(n, ++later);
      ++tries;
    } while (has_failed_ == 2 && !HasFailure());
    if (has_failed_ == 0 || HasFailure()) break;
  }
  EXPECT_GT(tries, 60u);
}

std::string name_of(const testing::TestParamInfo<std::tuple<Recycling, AliasReuse, Error>>& kind) {
  const auto& [recycling, reuse, error] = kind.param;
  return std::string(to_string(recycling)) + "_" + to_string(reuse) + "_" + to_string(error);
}

INSTANTIATE_TEST_SUITE_P(
    All, PoolRecyclingFaultTest,
    testing::Combine(testing::Values(Recycling::eager, Recycling::pressure),
                     testing::Values(AliasReuse::wait, AliasReuse::same_stream),
                     testing::Values(Error::out_of_memory, Error::backend_failure)),
    name_of);

}  // namespace
}  // namespace gpupool
