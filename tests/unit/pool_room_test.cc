// What a pool does for a request that pages are missing for: nothing that is empty, and nothing
// that the device has left, stands in the way of it; what cannot be served costs no driver calls.
#include <cstddef>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolRoomTest : public PoolFixture {
 protected:
  void SetUp() override {}

  /// Without caches, so that what is freed is free.
  void start(Recycling recycling, std::uint64_t pages, Backing backing = Backing::vmm,
             std::uint64_t reserve_pages = 0) {
    PoolOptions options;
    options.capacity = pages * kPage;
    options.reserve_bytes = reserve_pages * kPage;
    options.backing = backing;
    options.cache_small_bytes = 0;
    options.cache_large_bytes = 0;
    options.runtime.recycling = recycling;
    make_pool(options);
  }
  /// Of `pages` that are taken, all but each `nth` are free again.
  std::vector<void*> leave_each(std::uint64_t nth, std::uint64_t pages) {
    std::vector<void*> all;
    for (std::uint64_t i = 0; i < pages; ++i) all.push_back(allocate(kPage));
    std::vector<void*> left;
    for (std::uint64_t i = 0; i < pages; ++i) {
      if (i % nth == 0) {
        left.push_back(all[i]);
      } else {
        free(all[i]);
      }
    }
    return left;
  }
  /// Another process takes all but `pages` of the device; the pool may not have looked since.
  void leave_device(std::uint64_t pages) {
    EXPECT_TRUE(
        device_.set_taken_by_others(1024 * kMiB - device_.held_bytes() - pages * kPage).ok());
  }
  void free_all(const std::vector<void*>& blocks) {
    for (void* block : blocks) free(block);
  }
  std::uint64_t created() const { return backend_.call_count(BackendCall::create); }
};

TEST_F(PoolRoomTest, ASegmentMayBeLargerThanAllThatIsHeld) {
  for (const Recycling recycling : {Recycling::eager, Recycling::pressure}) {
    for (const std::uint64_t reserve : {0u, 64u}) {
      start(recycling, 256, Backing::cudamalloc, reserve);
      // What lies in the reserve's own segment would keep all of it.
      void* beside = reserve == 0 ? allocate(16 * kPage) : nullptr;
      const std::uint64_t most = reserve == 0 ? 240 : 256;
      free(allocate(64 * kPage));
      settle();
      EXPECT_EQ(pool_->would_fit(most * kPage, a_), Fit::by_growth);
      EXPECT_FALSE(pool_->allocate((most + 1) * kPage, a_).ok());
      free(allocate(most * kPage));
      EXPECT_LE(device_.held_bytes(), 256 * kPage);
      if (beside != nullptr) free(beside);
    }
  }
}

TEST_F(PoolRoomTest, SegmentsLeaveNextToNothingUnusedByBlocksOfOneLength) {
  for (const Recycling recycling : {Recycling::eager, Recycling::off}) {
    for (std::uint64_t pages = 1; pages <= 20; ++pages) {
      start(recycling, 512, Backing::cudamalloc);
      std::vector<void*> blocks;
      for (int i = 0; i < 20; ++i) blocks.push_back(allocate(pages * kPage));
      // The last segment may have room for more of them.
      EXPECT_LT(device_.held_bytes(), (20 * pages + 16) * kPage) << pages;
      EXPECT_EQ(pages > 8, pool_->stats().segments == 20) << pages;
      free_all(blocks);
    }
  }
}

TEST_F(PoolRoomTest, WhatIsEmptyAndWhatTheDeviceHasServeTogether) {
  for (const Recycling recycling : {Recycling::eager, Recycling::pressure}) {
    for (const bool has_looked : {true, false}) {
      start(recycling, 512);
      const auto left = leave_each(16, 128);  // 120 are empty
      leave_device(100);
      if (has_looked) {
        device_.advance_ns(1'000'000'000);
        pool_->maintain();
        EXPECT_EQ(pool_->stats().largest_satisfiable_bytes, 220 * kPage);
      }
      for (const std::uint64_t pages : {101u, 121u, 220u}) free(allocate(pages * kPage));
      EXPECT_FALSE(pool_->allocate(221 * kPage, a_).ok());
      free_all(left);
      end_pool();
      EXPECT_TRUE(device_.set_taken_by_others(0).ok());
    }
  }
}

TEST_F(PoolRoomTest, WhatTheDeviceDoesNotHaveIsAskedOfTheDriverAtMostOnce) {
  for (const Recycling recycling : {Recycling::eager, Recycling::pressure, Recycling::off}) {
    start(recycling, 512);
    void* one = allocate(kPage);
    leave_device(100);
    EXPECT_FALSE(pool_->allocate(101 * kPage, a_).ok());
    const std::uint64_t before = created();
    for (int i = 0; i < 3; ++i) {
      EXPECT_FALSE(pool_->allocate(101 * kPage, a_).ok());
      EXPECT_EQ(pool_->last_failure().reason, MissReason::budget);
    }
    EXPECT_EQ(created(), before);
    free(allocate(100 * kPage));
    free(one);
    end_pool();
    EXPECT_TRUE(device_.set_taken_by_others(0).ok());
  }
}

// Two places need as many pages; but in the lower one lies all that could be moved there.
TEST_F(PoolRoomTest, WhatCouldMoveIsNotPlannedOver) {
  start(Recycling::pressure, 10);
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(allocate(kPage));
  for (const std::size_t i : {1u, 4u}) free(blocks[i]);
  settle();
  void* behind = allocate(2 * kPage);  // of the pages 1 and 4, which are holes from now on
  pool_->maintain(std::chrono::seconds(1));
  for (const std::size_t i : {2u, 3u}) free(blocks[i]);
  settle();
  EXPECT_TRUE(work(raw_a_, behind));
  free(behind);
  EXPECT_EQ(allocate(4 * kPage), behind);
  EXPECT_EQ(pool_->stats().pages_recycled, 4u);
  EXPECT_EQ(pool_->stats().pages_unmapped, 0u);
  free(behind);
  for (const std::size_t i : {0u, 5u, 6u, 7u, 8u, 9u}) free(blocks[i]);
}

// The rests at both ends of a gap are of use with what is between them; that its page has moved,
// and is mapped there still, is known only to the pool.
TEST_F(PoolRoomTest, AnAddressThatAPageHasLeftIsFreeForWhoeverNeedsIt) {
  start(Recycling::pressure, 8);
  void* before = allocate(kPage + kPage / 4);
  void* between = allocate(2 * kPage);
  void* after = allocate(kPage + 3 * kPage / 4);
  void* single = allocate(kPage);
  free(between);
  settle();
  void* moved = allocate(2 * kPage + kPage / 4);  // two pages are new, one is out of the gap
  EXPECT_EQ(pool_->stats().stale_pages, 1u);
  free(single);
  device_.complete_all();
  EXPECT_EQ(allocate(2 * kPage), between);
  free(between);
  for (void* block : {before, after, moved}) free(block);
}

// What the driver says it has it may not give: what it has given so far it will give again.
TEST_F(PoolRoomTest, ADriverThatGivesLessThanItSaysIsBelievedAtTheSecondTry) {
  start(Recycling::pressure, 512);
  const auto left = leave_each(2, 128);  // 64 are empty
  backend_.fail_nth(BackendCall::create, 41, Error::out_of_memory);
  free(allocate(100 * kPage));
  EXPECT_EQ(backend_.failed_count(), 1u);
  EXPECT_EQ(pool_->stats().held_bytes, (128 + 40) * kPage);
  free_all(left);
}

// Handles of 16 pages, which fit into what is planned only in part: what goes back for the limit's
// sake is not enough for a device that has less.
TEST_F(PoolRoomTest, MoreGoesBackWhereTheDeviceTurnsOutToHaveLess) {
  start(Recycling::off, 256);
  void* empty = allocate(128 * kPage);
  void* pinned = allocate(28 * kPage);
  RuntimeOptions options = pool_->runtime_options();
  options.recycling = Recycling::pressure;
  EXPECT_TRUE(pool_->reconfigure(options).ok());
  free(empty);
  settle();
  leave_device(55);
  free(allocate(140 * kPage));
  free(pinned);
}

TEST_F(PoolRoomTest, WhatTheDriverDidNotTakeIsTriedAgainBeforeARequestIsRefused) {
  for (const Backing backing : {Backing::vmm, Backing::cudamalloc}) {
    start(Recycling::eager, 128, backing);
    free(allocate(128 * kPage));
    settle();
    const BackendCall call =
        backing == Backing::vmm ? BackendCall::release : BackendCall::deallocate;
    backend_.fail_at_random(call, 1, Error::backend_failure);
    pool_->trim(0);
    backend_.fail_at_random(call, 0, Error::backend_failure);
    free(allocate(100 * kPage));
  }
}

TEST_F(PoolRoomTest, OfTwoSegmentsTheSmallerOneIsEnoughForTheReserve) {
  start(Recycling::eager, 256, Backing::cudamalloc, 32);
  leave_device(80);
  void* large = allocate(100 * kPage);  // for which the reserve's own segment goes
  EXPECT_TRUE(device_.set_taken_by_others(0).ok());
  void* small = allocate(40 * kPage);
  free(small);
  free(large);
  settle();
  pool_->trim(0);
  EXPECT_EQ(pool_->stats().held_bytes, 40 * kPage);
}

// Another process may have had it for a moment.
TEST_F(PoolRoomTest, WhatTheDriverRefusesOnceIsAskedForOnceMore) {
  for (const Recycling recycling : {Recycling::eager, Recycling::pressure, Recycling::off}) {
    for (const BackendCall call : {BackendCall::create, BackendCall::map, BackendCall::allocate}) {
      const bool is_vmm = call != BackendCall::allocate;
      start(recycling, 64, is_vmm ? Backing::vmm : Backing::cudamalloc);
      void* held = allocate(20 * kPage);
      const std::uint64_t failed = backend_.failed_count();
      backend_.fail_nth(call, 1, Error::out_of_memory);
      free(allocate(40 * kPage));
      EXPECT_EQ(backend_.failed_count() - failed, 1u);
      // And no more than that.
      pool_->trim(0);
      backend_.fail_at_random(call, 1, Error::out_of_memory);
      const std::uint64_t before = backend_.call_count(call);
      EXPECT_FALSE(pool_->allocate(40 * kPage, a_).ok());
      EXPECT_LE(backend_.call_count(call) - before, 8u);
      backend_.fail_at_random(call, 0, Error::out_of_memory);
      free(held);
    }
  }
}

// Where there is no room for a block outside the arena either: all that is held is the reserve.
TEST_F(PoolRoomTest, ADriverThatFailsWhilePagesMoveIsTheReason) {
  for (const BackendCall call : {BackendCall::map, BackendCall::set_access}) {
    start(Recycling::eager, 64, Backing::vmm, 64);
    const auto left = leave_each(2, 64);
    backend_.fail_nth(call, 1, Error::backend_failure);
    const auto block = pool_->allocate(8 * kPage, a_);
    ASSERT_FALSE(block.ok());
    EXPECT_EQ(block.error(), Error::backend_failure);
    const FailureReport report = pool_->last_failure();
    EXPECT_EQ(report.error, Error::backend_failure);
    EXPECT_NE(report.text().find("a call of the driver has failed"), std::string::npos)
        << report.text();
    EXPECT_EQ(report.text().find("full"), std::string::npos) << report.text();
    free(allocate(8 * kPage));
    free_all(left);
  }
}

TEST_F(PoolRoomTest, ADriverThatGivesNothingIsTheReason) {
  for (const Recycling recycling : {Recycling::eager, Recycling::pressure, Recycling::off}) {
    start(recycling, 64);
    backend_.fail_at_random(BackendCall::create, 1, Error::out_of_memory);
    EXPECT_FALSE(pool_->allocate(kPage, a_).ok());
    EXPECT_EQ(pool_->last_failure().reason, MissReason::budget);
    backend_.fail_at_random(BackendCall::create, 0, Error::out_of_memory);
  }
}

TEST_F(PoolRoomTest, TheReserveThatARequestTookIsThereAgainOnceItCanBe) {
  for (const Backing backing : {Backing::vmm, Backing::cudamalloc}) {
    start(Recycling::eager, 256, backing, 128);
    void* outside = nullptr;
    {
      // All of it is empty, and goes: what serves needs more than there is beside it.
      AllocationRequest request;
      request.bytes = 100 * kPage;
      request.allocation_class = AllocationClass::contiguous;
      outside = pool_->allocate(request, a_).value();
    }
    EXPECT_EQ(pool_->trim(0), 0u);
    EXPECT_EQ(pool_->stats().held_bytes, 228 * kPage);
    // A driver that fails after the exchange leaves the reserve short.
    const BackendCall call = backing == Backing::vmm ? BackendCall::create : BackendCall::allocate;
    backend_.fail_at_random(call, 1, Error::out_of_memory);
    EXPECT_FALSE(pool_->allocate(150 * kPage, a_).ok());
    backend_.fail_at_random(call, 0, Error::out_of_memory);
    pool_->maintain(std::chrono::seconds(1));
    EXPECT_EQ(pool_->stats().held_bytes, 228 * kPage);
    free(outside);
    pool_->maintain(std::chrono::seconds(1));
    EXPECT_EQ(pool_->stats().held_bytes, 128 * kPage);
    EXPECT_EQ(pool_->stats().largest_free_block_bytes, 128 * kPage);
  }
}

// A cold pool knows by its first request that it will be a large one.
TEST_F(PoolRoomTest, TheHandlesOfAColdPoolAreAsLargeAsThoseOfAWarmOne) {
  SimulatedBackend device{{.capacity_bytes = std::uint64_t{64} << 30}};
  FaultyBackend backend{device};
  auto pool = Pool::create(backend, {}).value();
  const StreamRef stream = pool->adopt_stream(device.create_stream()).value();
  void* block = pool->allocate(std::size_t{60} << 30, stream).value();
  EXPECT_EQ(backend.call_count(BackendCall::create), 30'720u / 8);
  EXPECT_TRUE(pool->deallocate(block, stream));
}

TEST(PoolCapacityTest, WithVmmTheSimulatedDeviceHasAddressesForATebibyte) {
  constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;
  SimulatedBackend device({.capacity_bytes = 4 * kTiB, .charge_costs = false});
  PoolOptions options;
  options.capacity = kTiB;
  EXPECT_TRUE(Pool::create(device, options).ok());
  options.capacity = 2 * kTiB;
  const auto refused = Pool::create(device, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("2TiB"), std::string::npos) << refused.error().message;
  options.backing = Backing::cudamalloc;
  EXPECT_TRUE(Pool::create(device, options).ok());
}

}  // namespace
}  // namespace gpupool
