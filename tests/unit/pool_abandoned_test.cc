// Streams that end without a word to the pool, and frees that still name them.
#include <functional>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolAbandonedTest : public PoolFixture {
 protected:
  void SetUp() override { make_pool_of(64 * kMiB); }
};

TEST_F(PoolAbandonedTest, ABlockWaitsForAStreamWhoseHandleIsAnothersByNow) {
  for (const std::uint64_t bytes : {20 * kMiB, 64 * kKiB, std::uint64_t{512}}) {
    const RawStream gone = device_.create_stream();
    void* const block = pool_->allocate(bytes, gone).value();
    EXPECT_TRUE(work(gone, block, bytes));
    device_.destroy_stream(gone);
    const RawStream next = device_.create_stream();
    ASSERT_EQ(next, gone) << "the device gives no handle again";
    // As PyTorch does, which remembers the handle.
    EXPECT_TRUE(pool_->deallocate(block, bytes, next));
    EXPECT_EQ(pool_->stats().live_blocks, 0u);
    void* const other = pool_->allocate(bytes, next).value();
    EXPECT_NE(other, block);
    EXPECT_TRUE(work(next, other, bytes)) << device_.last_violation();
    device_.complete_all();
    EXPECT_TRUE(pool_->deallocate(other, bytes, next));
    device_.destroy_stream(next);
  }
  EXPECT_EQ(device_.violation_count(), 0u);
}

TEST_F(PoolAbandonedTest, ABlockIsFreedByTheHandleOfAStreamThatIsGone) {
  const RawStream gone = device_.create_stream();
  void* const block = pool_->allocate(20 * kMiB, gone).value();
  device_.destroy_stream(gone);
  EXPECT_TRUE(pool_->deallocate(block, 20 * kMiB, gone));
  EXPECT_EQ(pool_->stats().live_blocks, 0u);
  EXPECT_EQ(count(Misuse::unknown_stream), 0u);
  // And by no other handle that names nobody.
  void* const mine = allocate(kMiB);
  EXPECT_FALSE(pool_->deallocate(mine, kMiB, gone));
  EXPECT_EQ(count(Misuse::unknown_stream), 1u);
  free(mine);
}

TEST_F(PoolAbandonedTest, WhatNoEventTellsOfIsThereForARequestThatWouldFail) {
  for (int round = 0; round < 20; ++round) {
    const RawStream raw = device_.create_stream();
    const auto block = pool_->allocate(40 * kMiB, raw);
    ASSERT_TRUE(block.ok()) << round << "\n" << pool_->last_failure().text();
    EXPECT_TRUE(pool_->deallocate(block.value(), raw));
    device_.destroy_stream(raw);
  }
  // Nor where the driver refused the last event.
  void* const block = allocate(40 * kMiB, b_);
  free(block, b_);
  backend_.fail_at_random(BackendCall::record_event, 1.0, Error::backend_failure);
  EXPECT_TRUE(pool_->release_stream(b_));
  backend_.clear();
  const auto served = pool_->allocate(40 * kMiB, a_);
  ASSERT_TRUE(served.ok()) << pool_->last_failure().text();
  free(served.value());
  pool_->check_invariants();
}

TEST_F(PoolAbandonedTest, AStreamWhoseEventsAreRefusedGoesOnAfterwards) {
  void* const first = allocate(20 * kMiB, b_);
  free(first, b_);
  settle();  // an event is under way, and another one refused
  void* const second = allocate(20 * kMiB, b_);
  free(second, b_);
  backend_.fail_at_random(BackendCall::record_event, 1.0, Error::backend_failure);
  settle();
  void* const all = pool_->allocate(60 * kMiB, a_).value();
  backend_.clear();
  free(all);
  settle();
  void* const after = allocate(40 * kMiB, b_);
  EXPECT_TRUE(work(raw_b_, after, 40 * kMiB));
  free(after, b_);
  EXPECT_FALSE(pool_->would_fit(60 * kMiB, a_) == Fit::now);
  device_.complete_all();
  EXPECT_TRUE(pool_->allocate(60 * kMiB, a_).ok());
  EXPECT_EQ(count(Misuse::unknown_stream), 0u);
  pool_->check_invariants();
}

// The pool is told that somebody uses the block, and cannot tell who: no event covers that work.
TEST_F(PoolAbandonedTest, AUseThatCannotBeToldHoldsTheBlockUntilTheDeviceIsDone) {
  const RawStream captured = device_.create_stream();
  device_.begin_capture(captured);
  const StreamRef stale = pool_->adopt_stream(captured).value();
  device_.destroy_graph(device_.end_capture(captured));
  const auto nobody = reinterpret_cast<RawStream>(std::uintptr_t{0x1234560});
  auto elsewhere = Pool::create(device_, {}).value();
  const StreamRef foreign = elsewhere->adopt_stream(raw_b_).value();
  ASSERT_TRUE(pool_->release_stream(b_));
  const std::vector<std::function<bool(void*)>> records = {
      [&](void* block) { return pool_->record_stream(block, stale); },
      [&](void* block) { return pool_->record_stream(block, b_); },
      [&](void* block) { return pool_->record_stream(block, foreign); },
      [&](void* block) { return pool_->record_stream(block, StreamRef()); },
      [&](void* block) { return pool_->record_stream(block, nobody); },
      [&](void* block) { return pool_->record_use(block, nobody); },
  };
  for (const std::uint64_t bytes : {20 * kMiB, 64 * kKiB, std::uint64_t{512}}) {
    for (std::size_t i = 0; i < records.size(); ++i) {
      const std::uint64_t before = count(Misuse::unknown_stream);
      void* const block = allocate(bytes);
      EXPECT_TRUE(work(captured, block, bytes));
      EXPECT_FALSE(records[i](block)) << i;
      EXPECT_EQ(count(Misuse::unknown_stream), before + 1) << i;
      free(block);
      void* const other = allocate(bytes);
      EXPECT_NE(other, block) << i;
      EXPECT_TRUE(work(raw_a_, other, bytes)) << device_.last_violation();
      device_.complete_all();
      free(other);
      EXPECT_GE(pool_->stats().pending_bytes, bytes) << i;
      // Nothing else is left: now it is waited for.
      void* const all = allocate(64 * kMiB);
      free(all);
      settle();
      EXPECT_EQ(pool_->stats().pending_bytes, 0u) << i;
    }
  }
  EXPECT_EQ(count(Misuse::double_free), 0u);
  pool_->check_invariants();
}

TEST_F(PoolAbandonedTest, APoolEndsAfterAUseThatCannotBeTold) {
  const auto nobody = reinterpret_cast<RawStream>(std::uintptr_t{0x1234560});
  void* const leaked = allocate(20 * kMiB);
  EXPECT_FALSE(pool_->record_stream(leaked, nobody));
  SimulatedWork timed;
  timed.address = reinterpret_cast<DeviceAddress>(leaked);
  timed.bytes = 20 * kMiB;
  timed.duration_ns = 5'000'000;
  EXPECT_TRUE(device_.launch(device_.create_stream(), timed).ok());
  pool_.reset();
  EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
}

TEST_F(PoolAbandonedTest, AHandleIsRecordedLikeAReference) {
  void* const block = allocate(20 * kMiB);
  EXPECT_TRUE(pool_->record_stream(block, raw_b_));
  EXPECT_TRUE(work(raw_b_, block, 20 * kMiB));
  free(block);
  void* const other = allocate(20 * kMiB);
  EXPECT_NE(other, block);
  EXPECT_TRUE(pool_->record_use(other, raw_b_));
  EXPECT_FALSE(pool_->record_use(block, raw_b_));
  EXPECT_EQ(count(Misuse::double_free), 1u);
  free(other);
  device_.complete_all();
  settle();
  EXPECT_EQ(pool_->stats().pending_bytes, 0u);
}

TEST_F(PoolAbandonedTest, ItIsNotThereWhileTheDeviceWorks) {
  const RawStream gone = device_.create_stream();
  void* const block = pool_->allocate(40 * kMiB, gone).value();
  SimulatedWork work;
  work.address = reinterpret_cast<DeviceAddress>(block);
  work.bytes = 40 * kMiB;
  work.duration_ns = 50'000'000;
  EXPECT_TRUE(device_.launch(gone, work).ok());
  EXPECT_TRUE(pool_->deallocate(block, gone));
  device_.destroy_stream(gone);
  const RawStream next = device_.create_stream();
  const std::uint64_t before = device_.clock().now_ns();
  void* const other = pool_->allocate(40 * kMiB, next).value();
  EXPECT_GE(device_.clock().now_ns() - before, 50'000'000u);
  EXPECT_TRUE(this->work(next, other, 40 * kMiB)) << device_.last_violation();
  device_.complete_all();
  EXPECT_TRUE(pool_->deallocate(other, next));
}

}  // namespace
}  // namespace gpupool
