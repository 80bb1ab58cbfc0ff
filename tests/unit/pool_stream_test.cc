// Stream order: who gets memory when, by what the device says is done.
#include <thread>

#include "gpupool/forwarding_backend.h"
#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolStreamTest : public PoolFixture {
 protected:
  void SetUp() override { make_pool_of(64 * kMiB); }

  /// Whether a request for all there is gets it; what it got is given back.
  bool can_have_all(StreamRef stream) {
    settle();
    const auto block = pool_->allocate(64 * kMiB, stream);
    if (!block.ok()) return false;
    EXPECT_TRUE(pool_->deallocate(block.value(), stream));
    settle();
    return true;
  }
};

/// Counts what is asked about streams, each of which is a call of the driver.
class AskedDevice final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  Result<std::uint64_t> stream_id(RawStream stream) override {
    ++ids;
    return ForwardingBackend::stream_id(stream);
  }
  Result<CaptureState> capture_state(RawStream stream) override {
    ++states;
    return ForwardingBackend::capture_state(stream);
  }

  int ids = 0;
  int states = 0;
};

TEST_F(PoolStreamTest, TheLegacyStreamIsAskedForItsIdentityOnce) {
  AskedDevice device(backend_);
  auto pool = Pool::create(device, {}).value();
  // The thread knows the stream from when it keeps blocks for it.
  for (int i = 0; i < 4; ++i) {
    for (const std::uint64_t bytes : {std::uint64_t{512}, 10 * kMiB}) {
      EXPECT_TRUE(
          pool->deallocate(pool->allocate(bytes, RawStream{nullptr}).value(), RawStream{nullptr}));
    }
  }
  device.ids = device.states = 0;
  for (int i = 0; i < 10; ++i) {
    for (const std::uint64_t bytes : {std::uint64_t{512}, 10 * kMiB}) {
      void* const block = pool->allocate(bytes, RawStream{nullptr}).value();
      // A request asks whether it may take memory from the driver just now; a free needs nothing.
      EXPECT_TRUE(pool->deallocate(block, RawStream{nullptr}));
    }
  }
  EXPECT_EQ(device.ids, 0);
  EXPECT_EQ(device.states, 20);
  // Other handles may name another stream by now.
  EXPECT_TRUE(pool->deallocate(pool->allocate(512, raw_a_).value(), raw_a_));
  EXPECT_EQ(device.ids, 2);
}

TEST_F(PoolStreamTest, FreedMemoryIsItsOwnStreamsAtOnceAndOthersWhenDone) {
  for (const std::uint64_t bytes : {std::uint64_t{512}, 30 * kKiB, 100 * kKiB, 10 * kMiB}) {
    void* block = allocate(bytes);
    EXPECT_TRUE(work(raw_a_, block));
    free(block);
    EXPECT_EQ(allocate(bytes), block);
    free(block);
    settle();
    void* other = allocate(bytes, b_);
    EXPECT_NE(other, block);
    EXPECT_TRUE(work(raw_b_, other));
    device_.complete_all();
    free(other, b_);
    EXPECT_TRUE(can_have_all(b_));
  }
}

TEST_F(PoolStreamTest, RecordStreamHoldsABlockForTheOtherStreamsWork) {
  void* block = allocate(64 * kMiB);
  EXPECT_TRUE(pool_->record_stream(block, b_));
  EXPECT_TRUE(pool_->record_stream(block, b_));  // twice is once
  EXPECT_TRUE(work(raw_b_, block));
  free(block);
  EXPECT_EQ(pool_->stats().cached_bytes, 0u);
  EXPECT_FALSE(can_have_all(a_));
  device_.complete(raw_b_);
  EXPECT_TRUE(can_have_all(a_));
}

TEST_F(PoolStreamTest, WorkGivenAfterAFreeIsNotWaitedFor) {
  void* block = allocate(64 * kMiB);
  EXPECT_TRUE(pool_->record_stream(block, b_));
  EXPECT_TRUE(work(raw_b_, block));
  free(block);
  EXPECT_TRUE(device_.launch(raw_b_, {.until_completed = true}).ok());
  EXPECT_FALSE(can_have_all(a_));
  EXPECT_TRUE(device_.complete_next(raw_b_));
  EXPECT_TRUE(can_have_all(a_)) << "though the device is at other work of that stream";
  device_.complete_all();
}

TEST_F(PoolStreamTest, RecordStreamCoversWorkGivenAfterIt) {
  void* block = allocate(64 * kMiB);
  EXPECT_TRUE(pool_->record_stream(block, b_));
  device_.complete_all();
  settle();
  EXPECT_TRUE(work(raw_b_, block));
  free(block);
  EXPECT_FALSE(can_have_all(a_));
  device_.complete(raw_b_);
  EXPECT_TRUE(can_have_all(a_));
}

TEST_F(PoolStreamTest, RecordUseCoversWhatWasGivenByThen) {
  void* block = allocate(64 * kMiB);
  EXPECT_TRUE(work(raw_b_, block));
  EXPECT_TRUE(pool_->record_use(block, b_));
  EXPECT_TRUE(work(raw_b_, nullptr, 0));  // other work, given later
  free(block);
  EXPECT_FALSE(can_have_all(a_));
  EXPECT_TRUE(device_.complete_next(raw_b_));
  EXPECT_TRUE(can_have_all(a_));  // the later work holds nothing up
}

TEST_F(PoolStreamTest, UsesByManyStreams) {
  std::vector<RawStream> raws;
  void* block = allocate(64 * kMiB);
  const auto address = reinterpret_cast<DeviceAddress>(block);
  for (std::uint64_t i = 0; i < 8; ++i) {
    raws.push_back(device_.create_stream());
    const StreamRef stream = pool_->adopt_stream(raws.back()).value();
    SimulatedWork part;
    part.address = address + i * kMiB;
    part.bytes = kMiB;
    part.until_completed = true;
    EXPECT_TRUE(device_.launch(raws.back(), part).ok());
    EXPECT_TRUE(pool_->record_stream(block, stream));
  }
  free(block);
  for (const RawStream raw : raws) {
    EXPECT_FALSE(can_have_all(a_));
    device_.complete(raw);
  }
  EXPECT_TRUE(can_have_all(a_));
}

TEST_F(PoolStreamTest, AReleasedStreamsPendingMemoryStaysSafe) {
  void* block = allocate(64 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  EXPECT_TRUE(pool_->release_stream(a_));
  device_.destroy_stream(raw_a_);
  const RawStream raw = device_.create_stream();
  EXPECT_EQ(raw, raw_a_);  // the handle is given again
  const StreamRef again = pool_->adopt_stream(raw).value();
  EXPECT_FALSE(again == a_);
  EXPECT_FALSE(can_have_all(again));
  EXPECT_FALSE(can_have_all(b_));
  device_.complete_all();
  EXPECT_TRUE(can_have_all(b_));
}

// The event of a stream's end is the last that can be recorded for it.
TEST_F(PoolStreamTest, ACallThatTheDriverRefusesAtAStreamsEndStrandsNothing) {
  for (const BackendCall call : {BackendCall::stream_id, BackendCall::capture_state,
                                 BackendCall::create_event, BackendCall::record_event}) {
    SetUp();
    free(allocate(64 * kMiB, b_), b_);
    backend_.clear();
    backend_.fail_nth(call, 1, Error::backend_failure);
    EXPECT_TRUE(pool_->release_stream(b_));
    device_.destroy_stream(raw_b_);
    EXPECT_TRUE(can_have_all(a_)) << to_string(call);
  }
}

TEST_F(PoolStreamTest, ARecordedStreamThatIsReleasedBeforeTheFree) {
  void* block = allocate(64 * kMiB);
  EXPECT_TRUE(pool_->record_stream(block, b_));
  EXPECT_TRUE(work(raw_b_, block));
  EXPECT_TRUE(pool_->release_stream(b_));
  device_.destroy_stream(raw_b_);
  const StreamRef next = pool_->adopt_stream(device_.create_stream()).value();
  free(block);
  EXPECT_FALSE(can_have_all(a_));
  EXPECT_FALSE(can_have_all(next));
  device_.complete_all();
  EXPECT_TRUE(can_have_all(a_));
}

TEST_F(PoolStreamTest, IndicesAreUsedAgain) {
  for (int i = 0; i < 300; ++i) {
    const RawStream raw = device_.create_stream();
    const StreamRef stream = pool_->adopt_stream(raw).value();
    void* block = allocate(kMiB, stream);
    free(block, stream);
    EXPECT_TRUE(pool_->release_stream(stream));
    device_.destroy_stream(raw);
    pool_->maintain();
  }
  EXPECT_LE(pool_->stats().thread_caches, 4u);  // one for each index
  EXPECT_EQ(pool_->stats().streams, 2u);
  EXPECT_TRUE(can_have_all(a_));
}

TEST_F(PoolStreamTest, AStreamEndsSafelyWithMoreWorkInFlightThanEvents) {
  for (int i = 0; i < 100; ++i) {
    void* block = allocate(100 * kKiB);
    EXPECT_TRUE(work(raw_a_, block));
    free(block);
    settle();
  }
  EXPECT_TRUE(pool_->release_stream(a_));
  device_.destroy_stream(raw_a_);
  EXPECT_FALSE(can_have_all(b_));
  device_.complete_all();
  EXPECT_TRUE(can_have_all(b_));  // nothing is pending for ever
}

TEST_F(PoolStreamTest, RawHandlesAreStreams) {
  void* block = pool_->allocate(10 * kMiB, raw_a_).value();
  EXPECT_TRUE(work(raw_a_, block));
  EXPECT_TRUE(pool_->deallocate(block, raw_a_));
  EXPECT_EQ(pool_->allocate(10 * kMiB, a_).value(), block);  // the same stream
  free(block);
  EXPECT_EQ(pool_->adopt_stream(raw_a_).value(), a_);
  EXPECT_EQ(pool_->stats().streams, 2u);
}

TEST_F(PoolStreamTest, ADestroyedHandleThatCameBackGetsNothingOfItsFormerStreams) {
  for (const bool is_cached : {true, false}) {
    make_pool_of(64 * kMiB);
    const RawStream raw = device_.create_stream();
    std::vector<std::pair<void*, std::uint64_t>> blocks;
    for (const std::uint64_t bytes : {std::uint64_t{512}, 100 * kKiB, kMiB}) {
      blocks.emplace_back(pool_->allocate(bytes, raw).value(), bytes);
      EXPECT_TRUE(work(raw, blocks.back().first, bytes));
    }
    if (!is_cached) pool_->drain_caches();
    for (const auto& [block, bytes] : blocks) EXPECT_TRUE(pool_->deallocate(block, raw));
    device_.destroy_stream(raw);
    ASSERT_EQ(device_.create_stream(), raw);
    // An event by the handle would be its new stream's, which has nothing to do.
    if (!is_cached) pool_->maintain();
    const RawStream first = is_cached ? raw : raw_b_;
    for (const auto& [block, bytes] : blocks) {
      for (const RawStream stream : {first, raw_b_, raw}) {
        const auto next = pool_->allocate(bytes, stream);
        ASSERT_TRUE(next.ok());
        EXPECT_TRUE(work(stream, next.value(), bytes)) << device_.last_violation();
        EXPECT_TRUE(pool_->deallocate(next.value(), stream));
      }
    }
    EXPECT_EQ(pool_->stats().stream_mismatches, 1u);
  }
}

TEST_F(PoolStreamTest, AHandleThatIsNoStreamIsRefused) {
  const RawStream gone = device_.create_stream();
  device_.destroy_stream(gone);
  EXPECT_EQ(pool_->allocate(512, gone).error(), Error::backend_failure);
  void* block = allocate(512);
  EXPECT_FALSE(pool_->deallocate(block, gone));
  EXPECT_EQ(count(Misuse::unknown_stream), 1u);
  EXPECT_FALSE(pool_->adopt_stream(gone).ok());
  free(block);
}

TEST_F(PoolStreamTest, EachThreadsDefaultStreamIsItsOwn) {
  void* block = pool_->allocate(64 * kMiB, per_thread_stream()).value();
  EXPECT_TRUE(work(per_thread_stream(), block));
  EXPECT_TRUE(pool_->deallocate(block, per_thread_stream()));
  std::thread([&] {
    EXPECT_FALSE(pool_->allocate(64 * kMiB, per_thread_stream()).ok());
    pool_->maintain();
    EXPECT_FALSE(pool_->allocate(64 * kMiB, per_thread_stream()).ok());
  }).join();
  EXPECT_EQ(pool_->allocate(64 * kMiB, per_thread_stream()).value(), block);
  EXPECT_TRUE(pool_->deallocate(block, per_thread_stream()));
}

TEST_F(PoolStreamTest, AThreadThatEndedIsNotTakenForItsSuccessor) {
  std::thread([&] {
    void* block = pool_->allocate(64 * kMiB, per_thread_stream()).value();
    EXPECT_TRUE(work(per_thread_stream(), block));
    EXPECT_TRUE(pool_->deallocate(block, per_thread_stream()));
  }).join();
  // The system gives the same thread id again; an event recorded now is of another stream.
  for (int i = 0; i < 3; ++i) {
    std::thread([&] {
      settle();
      const auto block = pool_->allocate(64 * kMiB, per_thread_stream());
      EXPECT_FALSE(block.ok());
    }).join();
  }
}

TEST_F(PoolStreamTest, NothingIsRecordedInACapture) {
  void* block = allocate(64 * kMiB);
  device_.begin_capture(raw_a_);
  free(block);
  settle();
  EXPECT_FALSE(can_have_all(b_));
  EXPECT_EQ(device_.capture_state(raw_a_).value(), CaptureState::active);
  device_.end_capture(raw_a_);
  EXPECT_TRUE(can_have_all(b_));
}

TEST_F(PoolStreamTest, VerifiedStreamsNoticeAStreamThatWasDestroyedUnannounced) {
  PoolOptions options;
  options.capacity = 64 * kMiB;
  options.verify_streams = true;
  make_pool(options);
  void* block = allocate(kMiB);
  device_.destroy_stream(raw_a_);
  ASSERT_EQ(device_.create_stream(), raw_a_);
  EXPECT_EQ(pool_->allocate(kMiB, a_).error(), Error::invalid_argument);
  EXPECT_FALSE(pool_->deallocate(block, a_));
  EXPECT_EQ(count(Misuse::unknown_stream), 2u);
  EXPECT_GE(pool_->stats().stream_mismatches, 2u);
  free(block, b_);
}

TEST_F(PoolStreamTest, OneEventAnEpoch) {
  for (int i = 0; i < 1000; ++i) free(allocate(512));
  EXPECT_EQ(backend_.call_count(BackendCall::record_event), 0u);
  settle();
  EXPECT_EQ(backend_.call_count(BackendCall::record_event), 1u);
  EXPECT_EQ(pool_->stats().events_recorded, 1u);
  EXPECT_EQ(pool_->stats().epochs_closed, 1u);
}

TEST_F(PoolStreamTest, ADependencyClosesTheSourcesEpoch) {
  PoolOptions options;
  options.capacity = 64 * kMiB;
  options.cache_large_bytes = 0;
  make_pool(options);
  free(allocate(kMiB));
  const std::uint64_t epochs = pool_->stats().epochs_closed;
  EXPECT_TRUE(pool_->note_dependency(a_, b_));
  EXPECT_EQ(pool_->stats().epochs_closed, epochs + 1);
}

TEST_F(PoolStreamTest, APoolWaitsAtItsEndForWorkOnItsMemory) {
  enum class Ending { cached, pending, leaked };
  for (const Ending ending : {Ending::cached, Ending::pending, Ending::leaked}) {
    make_pool_of(64 * kMiB);
    for (const std::uint64_t bytes : {std::uint64_t{512}, 20 * kMiB}) {
      void* block = allocate(bytes);
      SimulatedWork timed;
      timed.address = reinterpret_cast<DeviceAddress>(block);
      timed.bytes = bytes;
      timed.duration_ns = 5'000'000;
      ASSERT_TRUE(device_.launch(raw_a_, timed).ok());
      if (ending != Ending::leaked) free(block);
      if (ending == Ending::pending) pool_->drain_caches();
    }
    pool_.reset();
    EXPECT_TRUE(device_.is_idle(raw_a_));
    EXPECT_EQ(device_.object_count(), 0u);
  }
  ASSERT_EQ(misuses_.size(), 1u);
  EXPECT_EQ(misuses_[0].kind, Misuse::leak);
}

TEST_F(PoolStreamTest, ReuseOfCompleteWorkIsCountedWhereAnotherStreamIsTheFirst) {
  const auto reuses = [this] {
    return pool_->stats().cross_stream_reuse[static_cast<std::size_t>(CrossStreamReuse::completed)];
  };
  for (const std::uint64_t bytes : {std::uint64_t{512}, 100 * kKiB, 60 * kMiB}) {
    const std::uint64_t before = reuses();
    // Its own, whether the work is complete or not, and memory that nobody has had.
    void* block = allocate(bytes);
    free(block);
    settle();
    settle();
    EXPECT_EQ(allocate(bytes), block);
    EXPECT_EQ(reuses(), before);
    free(block);
    settle();
    settle();
    // Another's: once, and what is left of the same memory is nobody's any more.
    void* const other = allocate(bytes, b_);
    EXPECT_EQ(reuses(), before + 1) << bytes;
    void* const next = allocate(kMiB, b_);
    EXPECT_EQ(reuses(), before + 1);
    free(other, b_);
    free(next, b_);
    settle();
    settle();
    pool_->trim(0);
  }
}

}  // namespace
}  // namespace gpupool
