// Why memory went back to the driver: the bytes of all reasons are what the device got.
#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolReleaseTest : public PoolFixture {
 protected:
  std::uint64_t trimmed(TrimReason reason) const {
    return pool_->stats().trimmed_bytes_by_reason[static_cast<std::size_t>(reason)];
  }
  /// All reasons in their order.
  std::vector<std::uint64_t> mib_by_reason() const {
    std::vector<std::uint64_t> mib;
    for (const std::uint64_t bytes : pool_->stats().released_bytes_by_reason) {
      mib.push_back(bytes / kMiB);
    }
    return mib;
  }
};

using Mib = std::vector<std::uint64_t>;  // trim, rollback, fallback, retry

TEST_F(PoolReleaseTest, AGrowthThatFailsHalfWayGivesBackWhatItGot) {
  backend_.fail_nth(BackendCall::map, 20, Error::backend_failure);
  void* block = allocate(64 * kMiB);  // by an allocation of its own
  EXPECT_EQ(mib_by_reason(), (Mib{0, 40, 0, 0}));
  EXPECT_EQ(device_.held_bytes(), 64 * kMiB);
  free(block);
  EXPECT_EQ(pool_->trim(0), 64 * kMiB);
  EXPECT_EQ(mib_by_reason(), (Mib{0, 40, 64, 0}));
  // No empty memory was there to be trimmed.
  EXPECT_EQ(trimmed(TrimReason::api), 0u);
}

TEST_F(PoolReleaseTest, WhatTheDriverTakesAtAnotherTryIsNoTrimAndNoRollback) {
  free(allocate(64 * kMiB));
  for (std::uint64_t i = 1; i <= 10; ++i) {
    backend_.fail_nth(BackendCall::release, i, Error::backend_failure);
  }
  EXPECT_EQ(pool_->trim(0), 64 * kMiB);
  EXPECT_EQ(mib_by_reason(), (Mib{44, 0, 0, 20}));
  EXPECT_EQ(trimmed(TrimReason::api), 44 * kMiB);
  EXPECT_EQ(device_.held_bytes(), 0u);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.device_free_bytes, device_.memory_info().value().free_bytes);
}

TEST_F(PoolReleaseTest, ATrimCountsFallbacksAsThose) {
  AllocationRequest request;
  request.bytes = 6 * kMiB;
  request.allocation_class = AllocationClass::contiguous;
  const auto contiguous = pool_->allocate(request, a_);
  ASSERT_TRUE(contiguous.ok());
  free(allocate(8 * kMiB));
  free(contiguous.value());
  EXPECT_EQ(pool_->trim(0), 14 * kMiB);
  EXPECT_EQ(mib_by_reason(), (Mib{8, 0, 6, 0}));
  EXPECT_EQ(trimmed(TrimReason::api), 8 * kMiB);
}

TEST_F(PoolReleaseTest, EachTrimIsForItsReason) {
  PoolOptions options;
  options.capacity = 64 * kMiB;
  options.backing = Backing::cudamalloc;
  make_pool(options);
  void* first = allocate(32 * kMiB);
  void* second = allocate(32 * kMiB);
  free(first);
  free(second);
  settle();
  free(allocate(64 * kMiB));  // in whose place the two empty segments were
  EXPECT_EQ(trimmed(TrimReason::recycle), 64 * kMiB);
  settle();
  EXPECT_EQ(pool_->trim(0, TrimReason::pressure), 64 * kMiB);
  EXPECT_EQ(trimmed(TrimReason::pressure), 64 * kMiB);
  EXPECT_EQ(mib_by_reason(), (Mib{128, 0, 0, 0}));
}

}  // namespace
}  // namespace gpupool
