// What one stream has freed and another may have: by CrossStreamPolicy, and by the order that the
// program notes. The device refuses work that races.
#include <chrono>
#include <thread>
#include <vector>

#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PolicyFixture : public PoolFixture {
 protected:
  void make_pool_with(CrossStreamPolicy policy, std::uint64_t capacity = 64 * kMiB,
                      Recycling recycling = Recycling::eager) {
    PoolOptions options;
    options.capacity = capacity;
    options.runtime.policy = policy;
    options.runtime.recycling = recycling;
    make_pool(options);
  }
  /// As a program orders two streams.
  void order(RawStream earlier, RawStream later) {
    const EventHandle event = device_.create_event().value();
    EXPECT_TRUE(device_.record_event(event, earlier).ok());
    EXPECT_TRUE(device_.wait_event(later, event).ok());
    EXPECT_TRUE(device_.destroy_event(event).ok());
  }
  void depend(RawStream source, StreamRef from, RawStream destination, StreamRef to) {
    order(source, destination);
    EXPECT_TRUE(pool_->note_dependency(from, to));
  }
  std::uint64_t reuses(CrossStreamReuse how) {
    return pool_->stats().cross_stream_reuse[static_cast<std::size_t>(how)];
  }
  bool is_refused(std::uint64_t bytes, StreamRef stream) {
    const auto block = pool_->allocate(bytes, stream);
    if (!block.ok()) return true;
    EXPECT_TRUE(pool_->deallocate(block.value(), stream));
    return false;
  }
};

// Waiting.

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

// Dependencies.

class DependencyTest : public PolicyFixture {
 protected:
  void SetUp() override { make_pool_with(CrossStreamPolicy::when_done); }
};

TEST_F(DependencyTest, WhatTheSourceFreedByThenIsTheDestinations) {
  for (const std::uint64_t bytes : {40 * kMiB, 64 * kMiB}) {
    SetUp();
    void* block = allocate(bytes);
    EXPECT_TRUE(work(raw_a_, block, bytes));
    free(block);
    EXPECT_TRUE(is_refused(bytes, b_));
    depend(raw_a_, a_, raw_b_, b_);
    EXPECT_EQ(pool_->stats().cached_bytes, 0u);
    EXPECT_EQ(allocate(bytes, b_), block);
    EXPECT_TRUE(work(raw_b_, block, bytes)) << device_.last_violation();
    EXPECT_EQ(reuses(CrossStreamReuse::dependency), 1u);
    EXPECT_EQ(pool_->stats().stream_waits, 0u);
    free(block, b_);
    // Not the other way round.
    EXPECT_TRUE(is_refused(bytes, a_));
    device_.complete_all();
  }
}

TEST_F(DependencyTest, SmallBlocksToo) {
  for (const std::uint64_t bytes : {std::uint64_t{512}, 30 * kKiB, 100 * kKiB}) {
    make_pool_with(CrossStreamPolicy::when_done, 2 * kMiB);
    std::vector<void*> blocks;
    for (std::uint64_t i = 0; i < 16; ++i) {
      blocks.push_back(allocate(128 * kKiB));
      EXPECT_TRUE(work(raw_a_, blocks.back(), 128 * kKiB));
    }
    for (void* block : blocks) free(block);
    EXPECT_TRUE(is_refused(bytes, b_));
    depend(raw_a_, a_, raw_b_, b_);
    void* block = allocate(bytes, b_);
    EXPECT_TRUE(work(raw_b_, block, bytes)) << device_.last_violation();
    free(block, b_);
    device_.complete_all();
  }
}

TEST_F(DependencyTest, WhatIsFreedLaterIsNot) {
  void* first = allocate(20 * kMiB);
  void* second = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, first));
  free(first);
  depend(raw_a_, a_, raw_b_, b_);
  EXPECT_TRUE(work(raw_a_, second));
  free(second);
  pool_->drain_caches();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  // Nor what has joined it, beyond what its pages are known for.
  if (const auto block = pool_->allocate(20 * kMiB, b_); block.ok()) {
    EXPECT_TRUE(work(raw_b_, block.value(), 20 * kMiB)) << device_.last_violation();
    free(block.value(), b_);
  }
}

TEST_F(DependencyTest, WhatComesAfterTheDestinationComesAfterTheSource) {
  const RawStream raw_c = device_.create_stream();
  const StreamRef c = pool_->adopt_stream(raw_c).value();
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  depend(raw_a_, a_, raw_b_, b_);
  EXPECT_TRUE(is_refused(40 * kMiB, c));
  depend(raw_b_, b_, raw_c, c);
  EXPECT_EQ(allocate(40 * kMiB, c), block);
  EXPECT_TRUE(work(raw_c, block)) << device_.last_violation();
  free(block, c);
}

TEST_F(DependencyTest, BlocksOfOnesOwnThatTheSourceFreed) {
  make_pool_with(CrossStreamPolicy::when_done, 2 * kMiB);
  // All there is, in chunks of b.
  std::vector<void*> blocks;
  for (std::uint64_t i = 0; i < 32; ++i) blocks.push_back(allocate(64 * kKiB, b_));
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    EXPECT_TRUE(work(raw_a_, blocks[i], 64 * kKiB));
    free(blocks[i], a_);
  }
  pool_->drain_caches();
  EXPECT_TRUE(is_refused(64 * kKiB, b_));
  depend(raw_a_, a_, raw_b_, b_);
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    blocks[i] = allocate(64 * kKiB, b_);
    EXPECT_TRUE(work(raw_b_, blocks[i], 64 * kKiB)) << device_.last_violation();
  }
  for (void* block : blocks) free(block, b_);
}

TEST_F(DependencyTest, AnotherStreamOfTheSameIndexComesAfterNothing) {
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  depend(raw_a_, a_, raw_b_, b_);
  EXPECT_TRUE(pool_->release_stream(b_));
  const StreamRef next = pool_->adopt_stream(device_.create_stream()).value();
  EXPECT_TRUE(is_refused(40 * kMiB, next));
}

TEST_F(DependencyTest, NoneIsNotedInACapture) {
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  for (const RawStream captured : {raw_a_, raw_b_}) {
    device_.begin_capture(captured);
    EXPECT_FALSE(pool_->note_dependency(a_, b_));
    device_.destroy_graph(device_.end_capture(captured));
    EXPECT_TRUE(is_refused(40 * kMiB, b_));
  }
  EXPECT_FALSE(pool_->note_dependency(a_, StreamRef()));
  EXPECT_FALSE(pool_->note_dependency(StreamRef(), b_));
  EXPECT_TRUE(pool_->note_dependency(a_, a_));
}

TEST_F(DependencyTest, NotOfAnotherThreadsOwnStream) {
  std::thread([&] {
    const StreamRef own = pool_->adopt_stream(per_thread_stream()).value();
    void* block = allocate(40 * kMiB, own);
    EXPECT_TRUE(work(per_thread_stream(), block));
    free(block, own);
    std::thread([&] {
      // What it frees meanwhile would fall into the same epoch.
      EXPECT_FALSE(pool_->note_dependency(own, b_));
      EXPECT_TRUE(is_refused(40 * kMiB, b_));
    }).join();
    order(per_thread_stream(), raw_b_);
    EXPECT_TRUE(pool_->note_dependency(own, b_));
  }).join();
  void* block = allocate(40 * kMiB, b_);
  EXPECT_TRUE(work(raw_b_, block)) << device_.last_violation();
  free(block, b_);
}

TEST_F(DependencyTest, OfManyStreamsTheOldestIsForgotten) {
  make_pool_of(512 * kMiB);
  for (int i = 0; i < 100; ++i) {
    const RawStream raw = device_.create_stream();
    const StreamRef stream = pool_->adopt_stream(raw).value();
    void* block = allocate(4 * kMiB, stream);
    EXPECT_TRUE(work(raw, block));
    free(block, stream);
    depend(raw, stream, raw_b_, b_);
  }
  std::vector<void*> blocks;
  for (int i = 0; i < 128; ++i) {
    const auto block = pool_->allocate(4 * kMiB, b_);
    if (!block.ok()) break;
    blocks.push_back(block.value());
    EXPECT_TRUE(work(raw_b_, blocks.back(), 4 * kMiB)) << device_.last_violation();
  }
  EXPECT_GE(reuses(CrossStreamReuse::dependency), 20u);
  EXPECT_GE(blocks.size(), 48u);
  for (void* block : blocks) free(block, b_);
}

// Never.

class NeverPolicyTest : public PolicyFixture {
 protected:
  void SetUp() override { make_pool_with(CrossStreamPolicy::never, 64 * kMiB, Recycling::off); }
};

TEST_F(NeverPolicyTest, WhatAStreamHasFreedIsItsAloneAlsoWhenItIsDone) {
  for (const std::uint64_t bytes : {std::uint64_t{512}, 100 * kKiB, 40 * kMiB}) {
    SetUp();
    void* block = allocate(bytes);
    free(block);
    settle();
    void* other = allocate(20 * kMiB, b_);
    free(other, b_);
    settle();
    EXPECT_TRUE(is_refused(40 * kMiB, b_) || bytes < kMiB);
    EXPECT_EQ(allocate(bytes), block);
    free(block);
  }
  EXPECT_EQ(reuses(CrossStreamReuse::dependency), 0u);
}

TEST_F(NeverPolicyTest, ADependencyChangesNothing) {
  free(allocate(40 * kMiB));
  depend(raw_a_, a_, raw_b_, b_);
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
}

TEST_F(NeverPolicyTest, ItIsEverybodysOnceTheStreamIsReleasedAndDone) {
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  settle();
  EXPECT_TRUE(pool_->release_stream(a_));
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  device_.complete_all();
  settle();
  EXPECT_EQ(allocate(40 * kMiB, b_), block);
  free(block, b_);
}

TEST_F(NeverPolicyTest, WhatIsTrimmedOthersGetAnew) {
  free(allocate(40 * kMiB));
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  EXPECT_EQ(pool_->trim(0), 40 * kMiB);
  free(allocate(40 * kMiB, b_), b_);
}

TEST_F(NeverPolicyTest, PagesOnWhichAnythingLiesAreNotTrimmed) {
  make_pool_with(CrossStreamPolicy::never);
  void* kept = allocate(kMiB);
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  pool_->trim(0);
  EXPECT_EQ(device_.held_bytes(), 42 * kMiB);
  device_.complete_all();
  pool_->trim(0);
  EXPECT_EQ(device_.held_bytes(), 2 * kMiB);
  // What is left of that page is still the stream's.
  EXPECT_TRUE(is_refused(63 * kMiB, b_));
  free(kept);
}

TEST_F(NeverPolicyTest, APageThatStreamsShareIsTrimmedOnceAllAreDone) {
  make_pool_with(CrossStreamPolicy::never);
  std::vector<void*> blocks;
  for (const StreamRef stream : {a_, b_, a_, b_}) {
    blocks.push_back(allocate(512 * kKiB, stream));
    EXPECT_TRUE(work(stream == a_ ? raw_a_ : raw_b_, blocks.back()));
  }
  free(blocks[0], a_);
  free(blocks[2], a_);
  free(blocks[1], b_);
  free(blocks[3], b_);
  device_.complete(raw_a_);
  EXPECT_EQ(pool_->trim(0), 0u);
  device_.complete(raw_b_);
  EXPECT_EQ(pool_->trim(0), 2 * kMiB);
}

TEST_F(NeverPolicyTest, WholePagesThatAreDoneGoWhereThePoolWouldGrow) {
  make_pool_with(CrossStreamPolicy::never);
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  device_.complete_all();
  void* other = allocate(40 * kMiB, b_);
  EXPECT_EQ(device_.held_bytes(), 40 * kMiB);
  free(other, b_);
}

TEST_F(NeverPolicyTest, WhatOthersUsedComesBackToWhoFreedIt) {
  void* block = allocate(64 * kMiB);
  EXPECT_TRUE(pool_->record_stream(block, b_));
  EXPECT_TRUE(work(raw_b_, block));
  free(block);
  settle();
  EXPECT_TRUE(is_refused(64 * kMiB, a_));
  device_.complete_all();
  settle();
  EXPECT_TRUE(is_refused(64 * kMiB, b_));
  EXPECT_EQ(allocate(64 * kMiB), block);
  free(block);
  // Parts of a chunk go back to the chunk's stream.
  make_pool_with(CrossStreamPolicy::never, 2 * kMiB, Recycling::off);
  std::vector<void*> parts;
  for (int i = 0; i < 32; ++i) parts.push_back(allocate(64 * kKiB));
  for (void* part : parts) free(part, b_);
  settle();
  for (void*& part : parts) part = allocate(64 * kKiB);
  for (void* part : parts) free(part);
}

TEST_F(NeverPolicyTest, NothingIsSaidToBePendingForAnother) {
  free(allocate(64 * kMiB));
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  EXPECT_NE(pool_->last_failure().reason, MissReason::pending) << pool_->last_failure().text();
  EXPECT_EQ(pool_->would_fit(40 * kMiB, b_), Fit::no);
  EXPECT_EQ(pool_->would_fit(40 * kMiB, a_), Fit::now);
}

TEST_F(NeverPolicyTest, ThePolicyMayChange) {
  void* block = allocate(40 * kMiB);
  free(block);
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  RuntimeOptions options = pool_->runtime_options();
  options.policy = CrossStreamPolicy::when_done;
  EXPECT_TRUE(pool_->reconfigure(options).ok());
  EXPECT_EQ(allocate(40 * kMiB, b_), block);
  free(block, b_);
  settle();
  options.policy = CrossStreamPolicy::never;
  EXPECT_TRUE(pool_->reconfigure(options).ok());
  EXPECT_EQ(allocate(40 * kMiB), block);  // what was everybody's still is
  free(block);
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  options.policy = CrossStreamPolicy::wait;
  EXPECT_TRUE(pool_->reconfigure(options).ok());
  EXPECT_EQ(allocate(40 * kMiB, b_), block);
  free(block, b_);
}

// Whose work is done.

class OwnWorkTest : public PolicyFixture {};

TEST_F(OwnWorkTest, ABlockWhoseOwnWorkIsDoneIsReusableWhateverWasFreedBesideItLater) {
  make_pool_of(64 * kMiB);
  void* first = allocate(20 * kMiB);
  void* second = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, first));
  free(first);
  settle();  // an event, after that work
  EXPECT_TRUE(work(raw_a_, second));
  free(second);  // its neighbour, which joins it
  settle();
  EXPECT_TRUE(is_refused(20 * kMiB, b_));
  EXPECT_TRUE(device_.complete_next(raw_a_));
  void* other = allocate(20 * kMiB, b_);
  EXPECT_TRUE(work(raw_b_, other, 20 * kMiB)) << device_.last_violation();
  EXPECT_FALSE(device_.is_idle(raw_a_));
  free(other, b_);
}

TEST_F(OwnWorkTest, OfOneStreamNothingHoldsUpAnother) {
  make_pool_of(64 * kMiB);
  const RawStream raw_c = device_.create_stream();
  const StreamRef c = pool_->adopt_stream(raw_c).value();
  void* first = allocate(20 * kMiB);
  void* second = allocate(40 * kMiB, b_);
  EXPECT_TRUE(work(raw_a_, first));
  EXPECT_TRUE(work(raw_b_, second));
  free(first);
  settle();  // its event is the older one
  free(second, b_);
  settle();
  device_.complete(raw_b_);
  EXPECT_EQ(allocate(40 * kMiB, c), second);
  EXPECT_FALSE(device_.is_idle(raw_a_));
  free(second, c);
}

TEST_F(OwnWorkTest, EventsAreUsedAgain) {
  make_pool_of(64 * kMiB);
  for (int i = 0; i < 500; ++i) {
    void* block = allocate(kMiB);
    EXPECT_TRUE(work(raw_a_, block));
    free(block);
    pool_->drain_caches();
    pool_->maintain();
    device_.complete_all();
    pool_->maintain();
  }
  EXPECT_GE(backend_.call_count(BackendCall::record_event), 400u);
  EXPECT_LE(backend_.call_count(BackendCall::create_event), 4u);
  EXPECT_EQ(backend_.call_count(BackendCall::destroy_event), 0u);
}

TEST_F(OwnWorkTest, AHitAsksNoEvent) {
  make_pool_of(64 * kMiB);
  free(allocate(512));
  free(allocate(kMiB));
  const std::uint64_t calls = backend_.call_count();
  for (int i = 0; i < 1000; ++i) {
    free(allocate(512));
    free(allocate(kMiB));
  }
  EXPECT_EQ(backend_.call_count(), calls);
}

// The device judges each piece of work; each stream is used by one thread, as its order is.
TEST_F(OwnWorkTest, ManyThreadsUnderEachPolicy) {
  for (const auto policy :
       {CrossStreamPolicy::wait, CrossStreamPolicy::never, CrossStreamPolicy::when_done}) {
    make_pool_with(policy, 48 * kMiB);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const RawStream raw = device_.create_stream();
        const StreamRef stream = pool_->adopt_stream(raw).value();
        for (std::uint64_t i = 1; i <= 400; ++i) {
          const std::uint64_t bytes = i * (t + 1) * 7919 % (6 * kMiB) + 1;
          const auto block = pool_->allocate(bytes, stream);
          if (!block.ok()) continue;
          SimulatedWork timed;
          timed.address = reinterpret_cast<DeviceAddress>(block.value());
          timed.bytes = bytes;
          timed.duration_ns = 50'000;
          EXPECT_TRUE(device_.launch(raw, timed).ok()) << device_.last_violation();
          EXPECT_TRUE(pool_->deallocate(block.value(), stream));
          if (i % 50 == 0) {
            order(raw, raw_b_);
            EXPECT_TRUE(pool_->note_dependency(stream, b_));
          }
          if (i % 64 == 0) pool_->maintain();
        }
        EXPECT_TRUE(pool_->release_stream(stream));
      });
    }
    for (std::thread& thread : threads) thread.join();
    pool_->check_invariants();
  }
}

}  // namespace
}  // namespace gpupool
