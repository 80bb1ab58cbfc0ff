// What a graph uses stays where it is, mapped and nobody else's, until the graph is gone; whether
// its capture was announced or not.
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/capture_fixture.h"

namespace gpupool {
namespace {

class PoolCaptureTest : public CaptureFixture {};

TEST_F(PoolCaptureTest, WhatACaptureFreesItsStreamReusesAtOnceAndNobodyElse) {
  for (const std::uint64_t bytes : {std::uint64_t{512}, 30 * kKiB, 100 * kKiB, 10 * kMiB}) {
    begin(raw_a_);
    void* block = allocate_raw(bytes, raw_a_);
    EXPECT_TRUE(work(raw_a_, block));
    free_raw(block, raw_a_);
    EXPECT_EQ(allocate_raw(bytes, raw_a_), block);
    free_raw(block, raw_a_);
    const SimulatedGraph graph = end(raw_a_);
    settle();
    // Neither of the same stream, outside of a capture, nor of another.
    void* ours = allocate_raw(bytes, raw_a_);
    void* others = allocate_raw(bytes, raw_b_);
    EXPECT_NE(ours, block);
    EXPECT_NE(others, block);
    free_raw(ours, raw_a_);
    free_raw(others, raw_b_);
    // The next capture of the same private pool gets it again.
    begin(raw_a_);
    EXPECT_EQ(allocate_raw(bytes, raw_a_), block);
    free_raw(block, raw_a_);
    device_.destroy_graph(end(raw_a_));
    device_.destroy_graph(graph);
    EXPECT_TRUE(pool_->release_pool(kGraph).ok());
    settle();
    EXPECT_TRUE(can_have(64 * kMiB, b_));
  }
}

TEST_F(PoolCaptureTest, AReplayFindsItsMemoryAfterOthersAllocated) {
  for (const Recycling recycling : {Recycling::off, Recycling::eager}) {
    for (const AliasReuse alias : {AliasReuse::wait, AliasReuse::same_stream}) {
      PoolOptions options;
      options.capacity = 64 * kMiB;
      options.runtime.recycling = recycling;
      options.runtime.alias_reuse = alias;
      make_pool(options);
      begin(raw_a_);
      std::vector<void*> blocks;
      for (const std::uint64_t bytes : {6 * kMiB, 512 * kKiB, 20 * kKiB}) {
        blocks.push_back(allocate_raw(bytes, raw_a_));
        EXPECT_TRUE(work(raw_a_, blocks.back(), bytes));
      }
      for (void* block : blocks) free_raw(block, raw_a_);
      const SimulatedGraph graph = end(raw_a_);
      settle();
      pool_->trim(0);
      // All that can be had, with work that is never done while the graph runs.
      std::vector<void*> others;
      for (const std::uint64_t bytes : {20 * kMiB, 10 * kMiB, 4 * kMiB, kMiB, 100 * kKiB}) {
        for (const RawStream raw : {raw_a_, raw_b_}) {
          const auto block = pool_->allocate(bytes, raw);
          if (!block.ok()) continue;
          EXPECT_TRUE(work(raw, block.value(), bytes));
          free_raw(block.value(), raw);
          if (const auto again = pool_->allocate(bytes, raw); again.ok()) {
            others.push_back(again.value());
          }
        }
      }
      ASSERT_GE(others.size(), 4u);
      const RawStream unknown = device_.create_stream();
      EXPECT_TRUE(device_.launch_graph(graph, unknown).ok()) << device_.last_violation();
      EXPECT_TRUE(device_.launch_graph(graph, unknown).ok()) << device_.last_violation();
      device_.complete_all();
      for (void* block : others) EXPECT_TRUE(pool_->deallocate(block, b_));
      device_.destroy_graph(graph);
    }
  }
}

TEST_F(PoolCaptureTest, APrivatePoolGrowsInACaptureAndTheCaptureGoesOn) {
  begin(raw_a_);
  void* block = allocate_raw(30 * kMiB, raw_a_);
  settle();
  pool_->trim(0);
  EXPECT_EQ(device_.capture_state(raw_a_).value(), CaptureState::active);
  EXPECT_TRUE(work(raw_a_, block, 30 * kMiB));
  free_raw(block, raw_a_);
  end(raw_a_);
}

TEST_F(PoolCaptureTest, WhatIsPendingOnTheStreamIsNotForItsCapture) {
  void* block = allocate_raw(40 * kMiB, raw_a_);
  EXPECT_TRUE(work(raw_a_, block));
  free_raw(block, raw_a_);
  settle();  // by an event from before the capture
  begin(raw_a_);
  // A graph may be launched on another stream, before that work is done.
  EXPECT_EQ(pool_->allocate(40 * kMiB, raw_a_).error(), Error::out_of_memory);
  device_.complete(raw_a_);
  void* now = allocate_raw(40 * kMiB, raw_a_);
  free_raw(now, raw_a_);
  end(raw_a_);
}

TEST_F(PoolCaptureTest, ReleasedMemoryComesBackWhenTheDeviceIsDone) {
  begin(raw_a_);
  void* block = allocate_raw(50 * kMiB, raw_a_);
  EXPECT_TRUE(work(raw_a_, block));
  free_raw(block, raw_a_);
  const SimulatedGraph graph = end(raw_a_);
  const RawStream unknown = device_.create_stream();
  EXPECT_TRUE(device_.launch_graph(graph, unknown).ok());
  EXPECT_FALSE(can_have(50 * kMiB, b_));
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  device_.destroy_graph(graph);
  // It still runs, on a stream that the pool has never seen.
  EXPECT_FALSE(can_have(50 * kMiB, b_));
  EXPECT_GT(pinned(), 0u);
  device_.complete_all();
  EXPECT_TRUE(can_have(50 * kMiB, b_));
  EXPECT_EQ(pinned(), 0u);
}

// Nobody maintains this pool.
TEST_F(PoolCaptureTest, ARequestThatWouldBeRefusedWaitsForTheDeviceInstead) {
  begin(raw_a_);
  void* block = allocate_raw(50 * kMiB, raw_a_);
  free_raw(block, raw_a_);
  end(raw_a_);
  EXPECT_FALSE(pool_->allocate(50 * kMiB, b_).ok());
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  EXPECT_EQ(backend_.call_count(BackendCall::synchronize_device), 0u);
  free(allocate(50 * kMiB, b_), b_);
  EXPECT_EQ(backend_.call_count(BackendCall::synchronize_device), 1u);
}

TEST_F(PoolCaptureTest, TrimEndsWhatWasReleased) {
  begin(raw_a_);
  free_raw(allocate_raw(50 * kMiB, raw_a_), raw_a_);
  end(raw_a_);
  pool_->trim(0);
  EXPECT_GE(device_.held_bytes(), 50 * kMiB);
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  pool_->trim(0);
  EXPECT_EQ(device_.held_bytes(), 0u);
}

TEST_F(PoolCaptureTest, TheDeviceIsNotWaitedForWhileAnythingIsCaptured) {
  begin(raw_a_);
  free_raw(allocate_raw(30 * kMiB, raw_a_), raw_a_);
  end(raw_a_);
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  const RawStream unknown = device_.create_stream();
  for (const RawStream captured : {raw_b_, unknown}) {
    device_.begin_capture(captured);
    settle();
    pool_->trim(0);
    EXPECT_FALSE(pool_->allocate(60 * kMiB, a_).ok());
    EXPECT_EQ(device_.capture_state(captured).value(), CaptureState::active);
    device_.destroy_graph(device_.end_capture(captured));
  }
  // Somebody may capture on a stream that is not known, which need not be a blocking one.
  EXPECT_TRUE(pool_->begin_allocate_to_pool(kOther, only(nullptr)).ok());
  settle();
  EXPECT_EQ(backend_.call_count(BackendCall::synchronize_device), 0u);
  EXPECT_TRUE(pool_->end_allocate_to_pool(kOther).ok());
  settle();
  EXPECT_EQ(backend_.call_count(BackendCall::synchronize_device), 1u);
  EXPECT_TRUE(can_have(60 * kMiB, a_));
}

TEST_F(PoolCaptureTest, AReleaseInACaptureWaitsForItsEnd) {
  begin(raw_a_);
  void* block = allocate_raw(30 * kMiB, raw_a_);
  EXPECT_TRUE(work(raw_a_, block));
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  settle();
  EXPECT_FALSE(pool_->allocate(60 * kMiB, b_).ok());
  free_raw(block, raw_a_);
  // The id has begun anew.
  void* next = allocate_raw(10 * kMiB, raw_a_);
  EXPECT_NE(next, block);
  free_raw(next, raw_a_);
  device_.destroy_graph(end(raw_a_));
  settle();
  EXPECT_FALSE(can_have(60 * kMiB, b_));
  EXPECT_TRUE(can_have(48 * kMiB, b_));  // all but that of the second
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  EXPECT_TRUE(can_have(60 * kMiB, b_));
}

TEST_F(PoolCaptureTest, LiveBlocksOfAReleasedPrivatePoolGoBackAsTheyAreFreed) {
  begin(raw_a_);
  std::vector<void*> blocks;
  for (const std::uint64_t bytes : {std::uint64_t{512}, 100 * kKiB, 30 * kMiB}) {
    blocks.push_back(allocate_raw(bytes, raw_a_));
  }
  device_.destroy_graph(end(raw_a_));
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  settle();
  EXPECT_EQ(pinned(), 0u);
  // They are ordinary blocks now, in the order of whoever frees them.
  for (void* block : blocks) {
    EXPECT_TRUE(work(raw_b_, block));
    free_raw(block, raw_b_);
  }
  EXPECT_FALSE(can_have(64 * kMiB, a_));
  device_.complete_all();
  EXPECT_TRUE(can_have(64 * kMiB, a_));
}

// torch.cuda.use_mem_pool
// Fork and join within a capture: graphs of one private pool are launched one after the other.
TEST_F(PoolCaptureTest, ABlockThatABranchUsesIsForTheNextCapture) {
  for (const bool is_recorded : {true, false}) {
    make_pool_of(64 * kMiB);
    const auto both = [this](RawStream raw) { return raw == raw_a_ || raw == raw_b_; };
    EXPECT_TRUE(pool_->begin_allocate_to_pool(kGraph, both).ok());
    const auto fork = [&] {
      const EventHandle event = device_.create_event().value();
      EXPECT_TRUE(device_.record_event(event, raw_a_).ok());
      EXPECT_TRUE(device_.wait_event(raw_b_, event).ok());
      EXPECT_TRUE(device_.destroy_event(event).ok());
    };
    device_.begin_capture(raw_a_);
    void* block = allocate_raw(40 * kMiB, raw_a_);
    fork();
    EXPECT_TRUE(work(raw_b_, block));
    if (is_recorded) {
      EXPECT_TRUE(pool_->record_stream(block, b_));
      free_raw(block, raw_a_);
    } else {
      free_raw(block, raw_b_);
    }
    // Not in the same capture, where nothing orders the branches.
    EXPECT_FALSE(pool_->allocate(40 * kMiB, raw_a_).ok());
    device_.destroy_graph(device_.end_capture(raw_a_));
    settle();
    device_.begin_capture(raw_a_);
    EXPECT_EQ(allocate_raw(40 * kMiB, raw_a_), block);
    free_raw(block, raw_a_);
    device_.destroy_graph(device_.end_capture(raw_a_));
    EXPECT_TRUE(pool_->end_allocate_to_pool(kGraph).ok());
    EXPECT_FALSE(can_have(40 * kMiB, a_));
    EXPECT_TRUE(pool_->release_pool(kGraph).ok());
    EXPECT_TRUE(can_have(40 * kMiB, a_));
  }
}

TEST_F(PoolCaptureTest, AnOrdinaryBlockFreedInACaptureIsItsStreamsAndPendsForOthers) {
  void* block = allocate(40 * kMiB);
  device_.begin_capture(raw_a_);
  free_raw(block, raw_a_);
  settle();
  EXPECT_FALSE(pool_->allocate(40 * kMiB, b_).ok());
  device_.destroy_graph(device_.end_capture(raw_a_));
  EXPECT_EQ(allocate(40 * kMiB), block);
  free(block);
  EXPECT_TRUE(can_have(64 * kMiB, b_));
}

TEST_F(PoolCaptureTest, ABlockThatAGraphUsesIsPinnedByIt) {
  for (const bool at_free : {true, false}) {
    make_pool_of(64 * kMiB);
    void* block = allocate(40 * kMiB, b_);
    begin(raw_a_);
    EXPECT_TRUE(work(raw_a_, block, 40 * kMiB));
    EXPECT_TRUE(at_free ? pool_->record_stream(block, a_) : pool_->record_use(block, a_));
    const SimulatedGraph graph = end(raw_a_);
    free(block, b_);
    EXPECT_FALSE(can_have(40 * kMiB, a_));
    EXPECT_FALSE(can_have(40 * kMiB, b_));
    EXPECT_TRUE(device_.launch_graph(graph, raw_b_).ok());
    device_.complete_all();
    EXPECT_TRUE(pool_->release_pool(kGraph).ok());
    EXPECT_TRUE(can_have(64 * kMiB, a_));
  }
}

TEST_F(PoolCaptureTest, WhatGraphsKeepIsNoPendingWorkAndWhatAStreamHoldsIs) {
  // Live and free memory of a graph, more of the one than a stream that hangs holds.
  begin(raw_a_);
  void* live = allocate_raw(40 * kMiB, raw_a_);
  void* freed = allocate_raw(6 * kMiB, raw_a_);
  void* small = allocate_raw(20 * kKiB, raw_a_);
  free_raw(freed, raw_a_);
  free_raw(small, raw_a_);
  const SimulatedGraph graph = end(raw_a_);
  settle();
  EXPECT_GE(pool_->stats().pending_bytes, 6 * kMiB);
  EXPECT_EQ(pool_->stats().unpinned_pending_bytes, 0u);
  void* hung = allocate_raw(10 * kMiB, raw_b_);
  EXPECT_TRUE(work(raw_b_, hung, 10 * kMiB));
  free_raw(hung, raw_b_);
  pool_->maintain();
  const StatsV1 stats = pool_->stats();
  EXPECT_LT(stats.pending_bytes, stats.pinned_bytes);
  EXPECT_EQ(stats.unpinned_pending_bytes, 10 * kMiB);
  device_.complete_all();
  settle();
  EXPECT_EQ(pool_->stats().unpinned_pending_bytes, 0u);
  free_raw(live, raw_a_);
  device_.destroy_graph(graph);
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  settle();
  settle();
  EXPECT_EQ(pool_->stats().pending_bytes, 0u);
}

TEST_F(PoolCaptureTest, ACaptureThatNobodyAnnouncedHasAPrivatePoolOfItsOwn) {
  void* cached = allocate_raw(20 * kMiB, raw_a_);
  free_raw(cached, raw_a_);
  device_.begin_capture(raw_a_);
  const std::uint64_t capture = device_.capture_id(raw_a_).value();
  void* block = allocate_raw(20 * kMiB, raw_a_);
  EXPECT_NE(block, cached);
  EXPECT_TRUE(work(raw_a_, block, 20 * kMiB));
  free_raw(block, raw_a_);
  EXPECT_EQ(allocate_raw(20 * kMiB, raw_a_), block);
  free_raw(block, raw_a_);
  const SimulatedGraph graph = device_.end_capture(raw_a_);
  EXPECT_EQ(pool_->stats().stream_mismatches, 0u);  // a handle says what it is
  settle();
  EXPECT_FALSE(can_have(60 * kMiB, a_));
  // The next one has another.
  device_.begin_capture(raw_a_);
  void* next = allocate_raw(20 * kMiB, raw_a_);
  EXPECT_NE(next, block);
  free_raw(next, raw_a_);
  device_.destroy_graph(device_.end_capture(raw_a_));
  EXPECT_TRUE(device_.launch_graph(graph, raw_b_).ok());
  device_.complete_all();
  EXPECT_TRUE(pool_->release_pool(unannounced_capture(capture)).ok());
  EXPECT_TRUE(can_have(40 * kMiB, a_));
  EXPECT_FALSE(can_have(60 * kMiB, a_));
}

// The legacy stream may be met first while another one is captured, when it cannot be asked.
TEST_F(PoolCaptureTest, TheLegacyStreamFirstMadeKnownInACaptureIsTheSameAfterIt) {
  const auto named = reinterpret_cast<RawStream>(std::uintptr_t{1});  // cudaStreamLegacy
  device_.begin_capture(raw_b_);
  const StreamRef legacy = pool_->adopt_stream(named).value();
  EXPECT_EQ(pool_->adopt_stream(nullptr).value(), legacy);
  void* const block = allocate(20 * kMiB);
  EXPECT_TRUE(pool_->record_use(block, legacy));
  device_.destroy_graph(device_.end_capture(raw_b_));
  EXPECT_EQ(pool_->adopt_stream(nullptr).value(), legacy);
  EXPECT_EQ(pool_->adopt_stream(named).value(), legacy);
  EXPECT_TRUE(pool_->record_stream(block, legacy));
  EXPECT_TRUE(work(named, block, 20 * kMiB));
  free(block);
  void* const other = allocate(20 * kMiB);
  EXPECT_NE(other, block);
  EXPECT_TRUE(work(raw_a_, other, 20 * kMiB)) << device_.last_violation();
  // An event tells of its work, as of any other's.
  device_.complete_all();
  settle();
  EXPECT_EQ(pool_->stats().pending_bytes, 0u);
  EXPECT_EQ(pool_->stats().stream_mismatches, 0u);
  free(other);
}

// Whoever makes a reference announces captures; the way below the caches looks all the same.
TEST_F(PoolCaptureTest, AnUnannouncedCaptureOfAReferenceIsAMismatchAndSafe) {
  device_.begin_capture(raw_a_);
  void* block = allocate(40 * kMiB);
  EXPECT_EQ(pool_->stats().stream_mismatches, 1u);
  EXPECT_GT(pinned(), 0u);
  free(block);
  device_.destroy_graph(device_.end_capture(raw_a_));
  EXPECT_FALSE(can_have(40 * kMiB, a_));
}

TEST_F(PoolCaptureTest, VerifiedStreamsNoticeAnUnannouncedCaptureAtEachCall) {
  PoolOptions options;
  options.capacity = 64 * kMiB;
  options.verify_streams = true;
  make_pool(options);
  free(allocate(512));
  device_.begin_capture(raw_a_);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    void* block = allocate(512);
    EXPECT_EQ(pool_->stats().stream_mismatches, 2 * i - 1);
    free(block);
    EXPECT_EQ(pool_->stats().stream_mismatches, 2 * i);
  }
  EXPECT_GT(pinned(), 0u);
  device_.destroy_graph(device_.end_capture(raw_a_));
}

TEST_F(PoolCaptureTest, AnAnnouncedCaptureOfAReferenceIsServedPrivately) {
  free(allocate(512));
  EXPECT_TRUE(pool_->begin_capture(a_, kGraph).ok());
  device_.begin_capture(raw_a_);
  void* block = allocate(512);  // nor by the cache, which has one
  EXPECT_TRUE(work(raw_a_, block));
  EXPECT_GT(pinned(), 0u);
  free(block);
  EXPECT_EQ(allocate(512), block);
  free(block);
  const SimulatedGraph graph = device_.end_capture(raw_a_);
  EXPECT_TRUE(pool_->end_capture(a_).ok());
  EXPECT_EQ(pool_->stats().stream_mismatches, 0u);
  for (int i = 0; i < 300; ++i) EXPECT_NE(allocate(512), block);
  EXPECT_TRUE(device_.launch_graph(graph, raw_b_).ok());
  device_.complete_all();
  pool_.reset();
  EXPECT_EQ(misuses_.size(), 1u);  // the 300 leak
}

TEST_F(PoolCaptureTest, AStreamThatEndsTakesItsAnnouncementAlong) {
  EXPECT_TRUE(pool_->begin_capture(a_, kGraph).ok());
  EXPECT_TRUE(pool_->release_stream(a_));
  EXPECT_FALSE(pool_->end_capture(a_).ok());
  const std::uint64_t cached = hits(Tier::cache);
  free(allocate(512, b_), b_);
  free(allocate(512, b_), b_);
  EXPECT_GT(hits(Tier::cache), cached);
  EXPECT_EQ(pinned(), 0u);
}

// Waiting does not help, whatever the books call it.
TEST_F(PoolCaptureTest, NothingIsRecordedOrQueriedInACapture) {
  free(allocate(64 * kMiB));
  device_.begin_capture(raw_a_);
  settle();
  EXPECT_EQ(backend_.call_count(BackendCall::record_event), 0u);
  EXPECT_EQ(device_.capture_state(raw_a_).value(), CaptureState::active);
  device_.destroy_graph(device_.end_capture(raw_a_));
  EXPECT_TRUE(can_have(64 * kMiB, b_));
}

// One thread captures while others allocate and free on their own streams.

}  // namespace
}  // namespace gpupool
