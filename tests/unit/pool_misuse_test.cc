// What a program does wrong is told apart, counted, reported without a lock, and refused.
#include <array>
#include <cstdio>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolMisuseTest : public PoolFixture {
 protected:
  void expect_refused(void* pointer, StreamRef stream, Misuse kind) {
    const StatsV1 before = pool_->stats();
    const std::size_t reports = misuses_.size();
    EXPECT_FALSE(pool_->deallocate(pointer, stream));
    const StatsV1 after = pool_->stats();
    ASSERT_EQ(misuses_.size(), reports + 1);
    EXPECT_STREQ(to_string(misuses_.back().kind), to_string(kind));
    EXPECT_EQ(misuses_.back().pointer, pointer);
    EXPECT_EQ(after.misuses[static_cast<std::size_t>(kind)],
              before.misuses[static_cast<std::size_t>(kind)] + 1);
    EXPECT_EQ(after.frees, before.frees);
    EXPECT_EQ(after.live_blocks, before.live_blocks);
    EXPECT_EQ(after.live_requested_bytes, before.live_requested_bytes);
    EXPECT_EQ(after.cached_bytes, before.cached_bytes);
    EXPECT_EQ(after.pending_bytes, before.pending_bytes);
    EXPECT_EQ(after.free_bytes, before.free_bytes);
    pool_->check_invariants();
  }
};

// One size of each tier.
constexpr std::array<std::uint64_t, 4> kMisusedSizes = {512, 20 * kKiB, 100 * kKiB, 5 * kMiB};

TEST_F(PoolMisuseTest, ASecondFreeIsRefusedWhereverTheBlockIsByThen) {
  for (const std::uint64_t bytes : kMisusedSizes) {
    void* block = allocate(bytes);
    free(block);
    expect_refused(block, a_, Misuse::double_free);  // cached
    expect_refused(block, b_, Misuse::double_free);
    pool_->drain_caches();
    expect_refused(block, a_, Misuse::double_free);  // in the shared tiers, or its chunk is gone
    void* first = allocate(bytes);
    void* second = allocate(bytes);
    EXPECT_NE(first, second);
    free(first);
    free(second);
  }
  pool_->trim(0);
  void* block = allocate(5 * kMiB);
  free(block);
  pool_->trim(0);
  expect_refused(block, a_, Misuse::foreign_pointer);  // the driver's again
}

TEST_F(PoolMisuseTest, ASecondFreeOfAFallback) {
  AllocationRequest request;
  request.bytes = kMiB;
  request.allocation_class = AllocationClass::contiguous;
  void* block = pool_->allocate(request, a_).value();
  expect_refused(at(block, 512), a_, Misuse::interior_pointer);
  EXPECT_EQ(misuses_.back().block, block);
  free(block);
  expect_refused(block, a_, Misuse::double_free);
  pool_->maintain();
  expect_refused(block, a_, Misuse::foreign_pointer);
}

TEST_F(PoolMisuseTest, APointerIntoABlockIsNoBlock) {
  for (const std::uint64_t bytes : kMisusedSizes) {
    void* block = allocate(bytes);
    for (const std::uint64_t offset : {std::uint64_t{1}, bytes / 2, bytes - 1}) {
      expect_refused(at(block, offset), a_, Misuse::interior_pointer);
      EXPECT_EQ(misuses_.back().block, block);
      EXPECT_EQ(misuses_.back().block_bytes, bytes);
    }
    free(block);
  }
}

TEST_F(PoolMisuseTest, FreedSlotsAndUnitsBesideLiveOnes) {
  void* slot = allocate(512);
  void* next_slot = allocate(512);
  void* buddy = allocate(40 * kKiB);
  void* next_buddy = allocate(40 * kKiB);
  free(next_slot);
  free(next_buddy);
  pool_->drain_caches();
  expect_refused(next_slot, a_, Misuse::double_free);
  expect_refused(at(next_slot, 100), a_, Misuse::double_free);
  expect_refused(next_buddy, a_, Misuse::double_free);
  expect_refused(at(next_buddy, 5000), a_, Misuse::double_free);
  free(slot);
  free(buddy);
}

TEST_F(PoolMisuseTest, PointersOfOthers) {
  int local = 0;
  expect_refused(&local, a_, Misuse::foreign_pointer);
  expect_refused(reinterpret_cast<void*>(~std::uintptr_t{0}), a_, Misuse::foreign_pointer);
  expect_refused(reinterpret_cast<void*>(std::uintptr_t{1}), a_, Misuse::foreign_pointer);
  auto other = Pool::create(device_, {}).value();
  const StreamRef stream = other->adopt_stream(raw_a_).value();
  void* block = other->allocate(kMiB, stream).value();
  expect_refused(block, a_, Misuse::foreign_pointer);
  EXPECT_TRUE(other->deallocate(block, stream));
}

// Also of a pool whose device has the same number.
TEST_F(PoolMisuseTest, PointersOfAnotherDevice) {
  SimulatedBackend second{{.capacity_bytes = 1024 * kMiB}};
  auto other = Pool::create(second, {}).value();
  for (const std::uint64_t bytes : {std::uint64_t{512}, kMiB, 64 * kMiB}) {
    void* const mine = allocate(bytes);
    void* const block = other->allocate(bytes, RawStream{nullptr}).value();
    expect_refused(block, a_, Misuse::foreign_pointer);
    EXPECT_FALSE(other->find_size(mine).ok());
    free(mine);
    EXPECT_TRUE(other->deallocate(block, RawStream{nullptr}));
  }
}

TEST_F(PoolMisuseTest, StreamsOfOthersAndReleasedOnes) {
  void* block = allocate(kMiB);
  auto other = Pool::create(device_, {}).value();
  const StreamRef foreign = other->adopt_stream(raw_a_).value();
  expect_refused(block, foreign, Misuse::unknown_stream);
  expect_refused(block, StreamRef(), Misuse::unknown_stream);
  ASSERT_TRUE(pool_->release_stream(b_));
  expect_refused(block, b_, Misuse::unknown_stream);
  EXPECT_FALSE(pool_->release_stream(b_));
  EXPECT_FALSE(pool_->release_stream(foreign));
  EXPECT_FALSE(pool_->record_stream(block, b_));
  EXPECT_FALSE(pool_->record_use(block, b_));
  EXPECT_FALSE(pool_->note_dependency(a_, b_));
  EXPECT_EQ(count(Misuse::unknown_stream), 7u);
  EXPECT_EQ(misuses_.size(), 7u);
  free(block);
}

TEST_F(PoolMisuseTest, AnAllocationOnAnUnknownStreamIsReported) {
  ASSERT_TRUE(pool_->release_stream(b_));
  const auto block = pool_->allocate(512, b_);
  ASSERT_FALSE(block.ok());
  EXPECT_EQ(block.error(), Error::invalid_argument);
  ASSERT_EQ(misuses_.size(), 1u);
  EXPECT_EQ(misuses_[0].kind, Misuse::unknown_stream);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.requests, 1u);
  EXPECT_EQ(stats.failures, 1u);
  EXPECT_EQ(stats.misuses[static_cast<std::size_t>(Misuse::unknown_stream)], 1u);
}

TEST_F(PoolMisuseTest, AWrongSizeIsCountedAndIgnored) {
  for (const std::uint64_t bytes : kMisusedSizes) {
    void* block = allocate(bytes);
    misuses_.clear();
    EXPECT_TRUE(pool_->deallocate(block, bytes + 1, a_));
    ASSERT_EQ(misuses_.size(), 1u);
    EXPECT_EQ(misuses_[0].kind, Misuse::wrong_size);
    EXPECT_EQ(misuses_[0].block_bytes, bytes);
    EXPECT_EQ(misuses_[0].given, bytes + 1);
    EXPECT_EQ(pool_->stats().live_blocks, 0u);
  }
  void* block = allocate(100);
  misuses_.clear();
  EXPECT_TRUE(pool_->deallocate(block, 100, raw_b_));
  EXPECT_TRUE(misuses_.empty());
}

TEST_F(PoolMisuseTest, RecordingAUseOfWhatIsNoBlock) {
  void* block = allocate(kMiB);
  EXPECT_FALSE(pool_->record_stream(at(block, 1), b_));
  EXPECT_EQ(misuses_.back().kind, Misuse::interior_pointer);
  free(block);
  EXPECT_FALSE(pool_->record_use(block, b_));
  EXPECT_EQ(misuses_.back().kind, Misuse::double_free);
  EXPECT_FALSE(pool_->record_use(this, b_));
  EXPECT_EQ(misuses_.back().kind, Misuse::foreign_pointer);
}

TEST_F(PoolMisuseTest, TheFirstOfAKindSaysSo) {
  int local = 0;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(pool_->deallocate(&local, a_));
  void* block = allocate(512);
  EXPECT_FALSE(pool_->deallocate(at(block, 1), a_));
  free(block);
  ASSERT_EQ(misuses_.size(), 4u);
  EXPECT_TRUE(misuses_[0].first_of_kind);
  EXPECT_FALSE(misuses_[1].first_of_kind);
  EXPECT_FALSE(misuses_[2].first_of_kind);
  EXPECT_TRUE(misuses_[3].first_of_kind);
}

TEST_F(PoolMisuseTest, TheHandlerMayCallThePool) {
  end_pool();
  PoolOptions options;
  std::uint64_t seen = 0;
  Pool* pool = nullptr;
  options.misuse_handler = [&](const MisuseReport&) { seen = pool->stats().misuses[1]; };
  pool_ = Pool::create(backend_, options).value();
  pool = pool_.get();
  const StreamRef stream = pool_->adopt_stream(raw_a_).value();
  EXPECT_FALSE(pool_->deallocate(this, stream));
  EXPECT_EQ(seen, 1u);
  EXPECT_FALSE(pool_->release_stream(StreamRef()));
  EXPECT_FALSE(pool_->record_use(this, stream));
  EXPECT_EQ(seen, 2u);
}

using PoolMisuseDeathTest = PoolMisuseTest;

TEST_F(PoolMisuseDeathTest, AbortEndsTheProgramOnWhatIsRefusedAndOnNothingElse) {
  // From the start, as a forked child is refused a pool of its parent's.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  end_pool();
  PoolOptions options;
  options.on_misuse = OnMisuse::abort;
  options.misuse_handler = [](const MisuseReport& report) {
    std::fprintf(stderr, "misuse: %s\n", to_string(report.kind));
  };
  pool_ = Pool::create(backend_, options).value();
  const StreamRef stream = pool_->adopt_stream(raw_a_).value();
  void* block = pool_->allocate(512, stream).value();
  EXPECT_TRUE(pool_->deallocate(block, 5, stream));  // a hint
  EXPECT_DEATH((void)pool_->deallocate(block, stream), "misuse: double_free");
  EXPECT_DEATH((void)pool_->deallocate(&options, stream), "misuse: foreign_pointer");
  EXPECT_DEATH((void)pool_->allocate(512, StreamRef()), "misuse: unknown_stream");
}

TEST_F(PoolMisuseTest, BlocksStillLiveAtTheEndAreALeak) {
  allocate(1000);
  allocate(5 * kMiB);
  AllocationRequest request;
  request.bytes = 7;
  request.allocation_class = AllocationClass::contiguous;
  ASSERT_TRUE(pool_->allocate(request, a_).ok());
  end_pool();
  ASSERT_EQ(misuses_.size(), 1u);
  EXPECT_EQ(misuses_[0].kind, Misuse::leak);
  EXPECT_EQ(misuses_[0].given, 3u);
  EXPECT_EQ(misuses_[0].block_bytes, 1000 + 5 * kMiB + 7);
  EXPECT_EQ(device_.object_count(), 0u);  // the memory goes back all the same
}

}  // namespace
}  // namespace gpupool
