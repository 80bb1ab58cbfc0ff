// CrossStreamPolicy::wait: a stream is made to wait for what another has freed. The device refuses
// work that races.
#include <thread>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/policy_fixture.h"

namespace gpupool {
namespace {

class WaitPolicyTest : public PolicyFixture {
 protected:
  void SetUp() override { make_pool_with(CrossStreamPolicy::wait); }
};

TEST_F(WaitPolicyTest, AStreamIsMadeToWaitForWhatAnotherHasJustFreed) {
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block, 40 * kMiB));
  free(block);
  EXPECT_EQ(allocate(40 * kMiB, b_), block);
  EXPECT_TRUE(work(raw_b_, block, 40 * kMiB)) << device_.last_violation();
  EXPECT_FALSE(device_.is_idle(raw_a_));  // it is the device that waits
  EXPECT_EQ(reuses(CrossStreamReuse::waited), 1u);
  EXPECT_EQ(reuses(CrossStreamReuse::dependency), 0u);
  EXPECT_EQ(pool_->stats().stream_waits, 1u);
  free(block, b_);
  // And back, although none of it is complete.
  EXPECT_EQ(allocate(40 * kMiB), block);
  EXPECT_TRUE(work(raw_a_, block, 40 * kMiB)) << device_.last_violation();
  free(block);
}

TEST_F(WaitPolicyTest, SoAreThoseThatAskForSmallBlocks) {
  for (const std::uint64_t bytes : {std::uint64_t{512}, 30 * kKiB, 100 * kKiB}) {
    make_pool_with(CrossStreamPolicy::wait, 2 * kMiB);
    void* all = allocate(2 * kMiB);
    EXPECT_TRUE(work(raw_a_, all, 2 * kMiB));
    free(all);
    void* block = allocate(bytes, b_);
    EXPECT_TRUE(work(raw_b_, block, bytes)) << device_.last_violation();
    EXPECT_EQ(reuses(CrossStreamReuse::waited), 1u);
    free(block, b_);
    device_.complete_all();
    pool_->drain_caches();
    free(allocate(2 * kMiB, b_), b_);
  }
}

TEST_F(WaitPolicyTest, OnlyWhereNothingElseIsFree) {
  void* ready = allocate(20 * kMiB);
  void* block = allocate(20 * kMiB);
  free(ready);
  settle();
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  EXPECT_EQ(allocate(20 * kMiB, b_), ready);
  EXPECT_EQ(pool_->stats().stream_waits, 0u);
  free(ready, b_);
}

TEST_F(WaitPolicyTest, OneWaitIsForAllThatWasFreedBefore) {
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(allocate(10 * kMiB));
  for (void* block : blocks) EXPECT_TRUE(work(raw_a_, block));
  // Not neighbours, so that they do not join.
  free(blocks[0]);
  free(blocks[2]);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(work(raw_b_, allocate(10 * kMiB, b_), 10 * kMiB));
  EXPECT_EQ(pool_->stats().stream_waits, 1u);
  EXPECT_EQ(reuses(CrossStreamReuse::waited), 2u);
  free(blocks[1], b_);
  free(blocks[3], b_);
  free(blocks[0], b_);
  free(blocks[2], b_);
}

// By an event from before that, a stream does not wait for what the other was made to wait for
// since.
TEST_F(WaitPolicyTest, NotForWhatTheOtherWasMadeToWaitForLater) {
  const RawStream raw_c = device_.create_stream();
  const StreamRef c = pool_->adopt_stream(raw_c).value();
  void* x = allocate(10 * kMiB, a_);
  void* y = allocate(20 * kMiB, c);
  void* z = allocate(30 * kMiB, c);
  void* rest = allocate(4 * kMiB, b_);
  EXPECT_TRUE(work(raw_a_, x));
  free(x, a_);
  settle();  // the event of a
  EXPECT_TRUE(work(raw_c, y));
  EXPECT_TRUE(work(raw_c, z));
  free(y, c);
  pool_->drain_caches();
  free(z, c);
  pool_->drain_caches();
  void* of_a = allocate(20 * kMiB, a_);  // a waits for c
  EXPECT_TRUE(work(raw_a_, of_a)) << device_.last_violation();
  void* of_b = allocate(10 * kMiB, b_);  // b waits for a, as it was
  EXPECT_TRUE(work(raw_b_, of_b)) << device_.last_violation();
  void* next = allocate(20 * kMiB, b_);
  EXPECT_TRUE(work(raw_b_, next, 20 * kMiB)) << device_.last_violation();
  free(of_a, a_);
  for (void* block : {of_b, next, rest}) free(block, b_);
}

TEST_F(WaitPolicyTest, WhatTheDriverRefusesIsNotServedSo) {
  for (const BackendCall call :
       {BackendCall::create_event, BackendCall::record_event, BackendCall::wait_event}) {
    SetUp();
    void* block = allocate(40 * kMiB);
    EXPECT_TRUE(work(raw_a_, block));
    free(block);
    backend_.clear();
    backend_.fail_at_random(call, 1.0, Error::backend_failure);
    EXPECT_TRUE(is_refused(40 * kMiB, b_)) << to_string(call);
    EXPECT_EQ(pool_->stats().stream_waits, 0u);
    pool_->check_invariants();
    backend_.clear();
    EXPECT_EQ(allocate(40 * kMiB, b_), block);
    EXPECT_TRUE(work(raw_b_, block)) << device_.last_violation();
    free(block, b_);
    device_.complete_all();
  }
}

TEST_F(WaitPolicyTest, NotAcrossACapture) {
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  // The one that freed it: no event can be recorded.
  device_.begin_capture(raw_a_);
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  // Whoever is captured gets nothing that is in use, since its graph may be launched elsewhere.
  device_.begin_capture(raw_b_);
  EXPECT_FALSE(pool_->allocate(40 * kMiB, raw_b_).ok());
  device_.destroy_graph(device_.end_capture(raw_b_));
  // The legacy stream, which must be left alone.
  EXPECT_FALSE(pool_->allocate(40 * kMiB, static_cast<RawStream>(nullptr)).ok());
  EXPECT_EQ(device_.capture_state(raw_a_).value(), CaptureState::active);
  device_.destroy_graph(device_.end_capture(raw_a_));
  EXPECT_EQ(pool_->stats().stream_waits, 0u);
  EXPECT_EQ(allocate(40 * kMiB, b_), block);
  free(block, b_);
}

TEST_F(WaitPolicyTest, NotForWhatAGraphUses) {
  device_.begin_capture(raw_a_);
  void* block = pool_->allocate(40 * kMiB, raw_a_).value();
  EXPECT_TRUE(pool_->deallocate(block, raw_a_));
  device_.destroy_graph(device_.end_capture(raw_a_));
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  EXPECT_EQ(pool_->stats().stream_waits, 0u);
}

TEST_F(WaitPolicyTest, NotForTheOpenEpochOfAnotherThreadsOwnStream) {
  std::thread([&] {
    const RawStream own = per_thread_stream();
    void* block = pool_->allocate(40 * kMiB, own).value();
    EXPECT_TRUE(work(own, block));
    EXPECT_TRUE(pool_->deallocate(block, own));
    // An event recorded for it here would be of another stream.
    std::thread([&] {
      pool_->drain_caches();
      EXPECT_TRUE(is_refused(40 * kMiB, b_));
    }).join();
    EXPECT_EQ(pool_->stats().stream_waits, 0u);
    pool_->maintain();  // closes it
    std::thread([&] {
      EXPECT_EQ(allocate(40 * kMiB, b_), block);
      EXPECT_TRUE(work(raw_b_, block)) << device_.last_violation();
      free(block, b_);
    }).join();
  }).join();
}

TEST_F(WaitPolicyTest, AlsoForAStreamThatHasEnded) {
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  EXPECT_TRUE(pool_->release_stream(a_));
  device_.destroy_stream(raw_a_);
  EXPECT_EQ(allocate(40 * kMiB, b_), block);
  EXPECT_TRUE(work(raw_b_, block)) << device_.last_violation();
  free(block, b_);
}

TEST_F(WaitPolicyTest, ForEachOfSeveralUsers) {
  const RawStream raw = device_.create_stream();
  const StreamRef c = pool_->adopt_stream(raw).value();
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(pool_->record_stream(block, c));
  SimulatedWork part;
  part.address = reinterpret_cast<DeviceAddress>(block) + kMiB;
  part.bytes = kMiB;
  part.until_completed = true;
  EXPECT_TRUE(device_.launch(raw, part).ok());
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  EXPECT_EQ(allocate(40 * kMiB, b_), block);
  EXPECT_TRUE(work(raw_b_, block, 40 * kMiB)) << device_.last_violation();
  EXPECT_EQ(pool_->stats().stream_waits, 2u);
  free(block, b_);
}

}  // namespace
}  // namespace gpupool
