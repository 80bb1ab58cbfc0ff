// A stream that one thread is about to capture is left alone by the others: what they ask of it, or
// record for it, would come after the capture has begun.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "stream/stream_holds.h"
#include "tests/support/units.h"
#include "tests/unit/capture_fixture.h"
#include "tests/unit/worker.h"

namespace gpupool {
namespace {

using internal::StreamHolds;

TEST(StreamHoldsTest, APoolHoldsAllStreamsUntilItServesOneAndThenThose) {
  StreamHolds holds;
  EXPECT_FALSE(holds.is_held(3, 1));
  holds.begin(kGraph, 1);
  EXPECT_TRUE(holds.is_held(3, 2));
  EXPECT_FALSE(holds.is_held(3, 1));
  holds.note_served(kOther, 5);
  EXPECT_TRUE(holds.is_held(3, 2));
  holds.note_served(kGraph, 5);
  EXPECT_FALSE(holds.is_held(3, 2));
  EXPECT_TRUE(holds.is_held(5, 2));
  // Begun again it is the later one's.
  holds.begin(kGraph, 2);
  EXPECT_FALSE(holds.is_held(5, 2));
  EXPECT_TRUE(holds.is_held(5, 1));
  holds.end(kGraph);
  EXPECT_FALSE(holds.is_held(5, 1));
}

TEST(StreamHoldsTest, AnIndexThatEndsIsNobodysAndTheRestStays) {
  StreamHolds holds;
  holds.begin(kGraph, 1);
  holds.note_served(kGraph, 5);
  holds.announce(5, 1);
  holds.announce(6, 1);
  holds.forget(5);
  EXPECT_FALSE(holds.is_held(5, 2));
  EXPECT_FALSE(holds.is_held(7, 2));
  EXPECT_TRUE(holds.is_held(6, 2));
  holds.withdraw(6);
  EXPECT_FALSE(holds.is_held(6, 2));
}

class PoolHoldsTest : public CaptureFixture {
 protected:
  void SetUp() override { make_pool_of(64 * kMiB); }

  /// What a stream is asked for its identity, or an event recorded for, from now on, comes after
  /// a capture of raw_a_ has begun: the moment at which that does most harm.
  void capture_late() {
    const auto begin = [this] {
      if (device_.capture_state(raw_a_).value() == CaptureState::none)
        device_.begin_capture(raw_a_);
    };
    backend_.before(BackendCall::stream_id, begin);
    backend_.before(BackendCall::record_event, begin);
  }
  void stop() {
    backend_.before(BackendCall::stream_id, nullptr);
    backend_.before(BackendCall::record_event, nullptr);
  }
  void elsewhere(std::function<void()> work) { worker_.run(std::move(work)); }
  std::uint64_t recorded() const { return backend_.call_count(BackendCall::record_event); }
  std::uint64_t asked() const { return backend_.call_count(BackendCall::stream_id); }
  bool is_pending() const { return pool_->stats().pending_bytes > 0; }

  Worker worker_;
};

TEST_F(PoolHoldsTest, AnAnnouncedStreamsEpochStaysOpenUntilTheCaptureEnds) {
  free(allocate(4 * kMiB));
  const std::uint64_t before = recorded();
  ASSERT_TRUE(pool_->begin_capture(a_, kGraph).ok());
  capture_late();
  elsewhere([this] { settle(); });
  EXPECT_EQ(recorded(), before);
  EXPECT_EQ(device_.capture_state(raw_a_).value(), CaptureState::none);
  stop();
  // Others are looked at as ever.
  elsewhere([this] {
    free(allocate(kMiB, b_), b_);
    settle();
  });
  EXPECT_EQ(recorded(), before + 1);
  ASSERT_TRUE(pool_->end_capture(a_).ok());
  elsewhere([this] { settle(); });
  EXPECT_EQ(recorded(), before + 2);
  pool_->maintain();
  EXPECT_FALSE(is_pending());
}

TEST_F(PoolHoldsTest, APoolThatWasBegunAndHasServedNobodyMayBeForAnyStream) {
  ASSERT_TRUE(pool_->begin_allocate_to_pool(kGraph, only(raw_a_)).ok());
  free(allocate(4 * kMiB, b_), b_);
  const std::uint64_t before = recorded();
  elsewhere([this] { settle(); });
  EXPECT_EQ(recorded(), before);
  // The thread that captures knows what it does.
  settle();
  EXPECT_EQ(recorded(), before + 1);
  // From the first request that it serves on it is for that stream.
  void* const block = allocate_raw(kMiB, raw_a_);
  const std::uint64_t served = recorded();
  elsewhere([this] {
    free(allocate(4 * kMiB, b_), b_);
    settle();
  });
  EXPECT_GT(recorded(), served);
  free_raw(block, raw_a_);
  ASSERT_TRUE(pool_->end_allocate_to_pool(kGraph).ok());
  ASSERT_TRUE(pool_->release_pool(kGraph).ok());
}

TEST_F(PoolHoldsTest, TheStreamsThatItServesAreLeftAloneUntilItEnds) {
  void* const ordinary = allocate(8 * kMiB);
  ASSERT_TRUE(pool_->begin_allocate_to_pool(kGraph, only(raw_a_)).ok());
  void* const block = allocate_raw(kMiB, raw_a_);
  // Freed in the private pool's time, by the stream itself.
  ASSERT_TRUE(pool_->record_use(ordinary, a_));
  free(ordinary);
  const std::uint64_t before = recorded();
  capture_late();
  elsewhere([this] { settle(); });
  EXPECT_EQ(recorded(), before);
  EXPECT_EQ(device_.capture_state(raw_a_).value(), CaptureState::none);
  stop();
  free_raw(block, raw_a_);
  ASSERT_TRUE(pool_->end_allocate_to_pool(kGraph).ok());
  elsewhere([this] { settle(); });
  EXPECT_GT(recorded(), before);
  ASSERT_TRUE(pool_->release_pool(kGraph).ok());
}

TEST_F(PoolHoldsTest, NobodyElseAsksWhoTheStreamIs) {
  void* const by_handle = allocate(kMiB);
  void* const by_reference = allocate(kMiB);
  ASSERT_TRUE(pool_->begin_capture(a_, kGraph).ok());
  const std::uint64_t before = asked();
  capture_late();
  elsewhere([&] {
    free_raw(by_handle, raw_a_);
    free(by_reference);
    const auto block = pool_->allocate(kMiB, raw_a_);
    EXPECT_TRUE(block.ok() && pool_->record_stream(block.value(), a_));
    EXPECT_TRUE(block.ok() && pool_->deallocate(block.value(), raw_a_));
  });
  EXPECT_EQ(asked(), before);
  EXPECT_EQ(device_.capture_state(raw_a_).value(), CaptureState::none);
  stop();
  ASSERT_TRUE(pool_->end_capture(a_).ok());
  ASSERT_TRUE(pool_->release_pool(kGraph).ok());
  EXPECT_EQ(pool_->stats().live_blocks, 0u);
}

TEST_F(PoolHoldsTest, NobodyElseMakesItWait) {
  PoolOptions options;
  options.capacity = 64 * kMiB;
  options.runtime.policy = CrossStreamPolicy::wait;
  make_pool(options);
  void* const block = allocate(40 * kMiB, b_);
  ASSERT_TRUE(work(raw_b_, block));
  free(block, b_);
  settle();
  ASSERT_TRUE(pool_->begin_allocate_to_pool(kGraph, only(raw_b_)).ok());
  elsewhere([&] {
    const auto other = pool_->allocate(20 * kMiB, a_);
    EXPECT_TRUE(other.ok() && pool_->deallocate(other.value(), a_));
  });
  EXPECT_EQ(backend_.call_count(BackendCall::wait_event), 0u);
  ASSERT_TRUE(pool_->end_allocate_to_pool(kGraph).ok());
}

TEST_F(PoolHoldsTest, AStreamThatEndsMeanwhileIsRecordedForByWhoEndsIt) {
  void* const block = allocate(4 * kMiB, b_);
  ASSERT_TRUE(timed_work(raw_b_, block));
  free(block, b_);
  ASSERT_TRUE(pool_->begin_allocate_to_pool(kGraph, only(raw_a_)).ok());
  elsewhere([this] { EXPECT_TRUE(pool_->release_stream(b_)); });
  ASSERT_TRUE(pool_->end_allocate_to_pool(kGraph).ok());
  device_.advance_ns(10'000'000);
  pool_->maintain();
  EXPECT_FALSE(is_pending());
}

/// Who begins waits for a thread that is just then in that call of the driver.
class PoolBeginTest : public PoolHoldsTest {
 protected:
  /// Whether a begin came back while another thread was in `call`, which `reach` gets to.
  bool has_begun_inside(BackendCall call, const std::function<void()>& reach) {
    std::atomic<bool> is_inside{false};
    std::atomic<bool> has_begun{false};
    std::atomic<bool> was_begun_inside{false};
    backend_.before(call, [&] {
      is_inside = true;
      // Long enough for whoever does not wait.
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
      while (!has_begun && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      was_begun_inside = has_begun.load();
    });
    worker_.start(reach);
    while (!is_inside) std::this_thread::yield();
    EXPECT_TRUE(pool_->begin_allocate_to_pool(kOther, only(raw_a_)).ok());
    has_begun = true;
    worker_.wait();
    backend_.before(call, nullptr);
    EXPECT_TRUE(pool_->end_allocate_to_pool(kOther).ok());
    return was_begun_inside;
  }
};

TEST_F(PoolBeginTest, NoEventIsBeingRecordedWhenAPoolIsBegun) {
  free(allocate(4 * kMiB));
  EXPECT_FALSE(has_begun_inside(BackendCall::record_event, [this] { settle(); }));
}

TEST_F(PoolBeginTest, TheDeviceIsNotBeingWaitedForWhenAPoolIsBegun) {
  ASSERT_TRUE(pool_->begin_allocate_to_pool(kGraph, only(raw_a_)).ok());
  free_raw(allocate_raw(kMiB, raw_a_), raw_a_);
  ASSERT_TRUE(pool_->end_allocate_to_pool(kGraph).ok());
  ASSERT_TRUE(pool_->release_pool(kGraph).ok());
  EXPECT_FALSE(has_begun_inside(BackendCall::synchronize_device, [this] { pool_->trim(0); }));
}

}  // namespace
}  // namespace gpupool
