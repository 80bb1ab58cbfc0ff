#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

class SimulatedStreamsTest : public testing::Test {
 protected:
  SimulatedStreamsTest() {
    range_ = device_.reserve_address(8 * kPage, kPage).value();
    handle_ = device_.create(kPage).value();
    EXPECT_TRUE(device_.map(range_, kPage, handle_));
    EXPECT_TRUE(device_.set_access(range_, kPage));
  }

  /// Work on `bytes` at `offset` of the page that runs until the test completes it.
  Result<void> work(RawStream stream, std::uint64_t offset = 0, std::uint64_t bytes = 64) {
    return device_.launch(stream,
                          {.address = range_ + offset, .bytes = bytes, .until_completed = true});
  }
  EventHandle record(RawStream stream) {
    const EventHandle event = device_.create_event().value();
    EXPECT_TRUE(device_.record_event(event, stream));
    return event;
  }
  bool is_complete(EventHandle event) { return device_.query_event(event).value(); }

  SimulatedBackend device_{{.charge_costs = false}};
  const RawStream a_ = device_.create_stream();
  const RawStream b_ = device_.create_stream();
  const RawStream c_ = device_.create_stream();
  DeviceAddress range_ = 0;
  PhysicalHandle handle_;
};

TEST_F(SimulatedStreamsTest, RefusesUnorderedWorkOnTheSameBytes) {
  ASSERT_TRUE(work(a_, 0, 64));
  EXPECT_EQ(work(b_, 63, 64).error(), Error::backend_failure);
  EXPECT_EQ(device_.violation_count(), 1u);
  EXPECT_NE(device_.last_violation().find("nothing orders the two"), std::string::npos);
  EXPECT_TRUE(device_.is_idle(b_));  // the refused work was not given
  EXPECT_TRUE(work(b_, 64, 64));     // other bytes of the same page
  EXPECT_TRUE(work(a_, 0, 64));      // the same stream
  device_.complete(a_);
  EXPECT_TRUE(work(b_, 0, 64));
  EXPECT_EQ(device_.violation_count(), 1u);
}

TEST_F(SimulatedStreamsTest, SeesThroughAliases) {
  ASSERT_TRUE(device_.map(range_ + kPage, kPage, handle_));
  ASSERT_TRUE(device_.set_access(range_ + kPage, kPage));
  ASSERT_TRUE(work(a_, 100, 10));
  EXPECT_FALSE(work(b_, kPage + 100, 10));
  EXPECT_TRUE(work(b_, kPage + 110, 10));
}

TEST_F(SimulatedStreamsTest, AWaitOrdersWork) {
  ASSERT_TRUE(work(a_));
  const EventHandle event = record(a_);
  ASSERT_TRUE(device_.wait_event(b_, event));
  EXPECT_TRUE(work(b_));
  EXPECT_FALSE(work(c_));
  EXPECT_FALSE(device_.is_idle(b_));
  EXPECT_FALSE(device_.complete_next(c_));
  device_.complete(a_);
  EXPECT_FALSE(device_.is_idle(b_));  // its own work runs now
  EXPECT_TRUE(device_.complete_next(b_));
  EXPECT_TRUE(device_.is_idle(b_));
}

TEST_F(SimulatedStreamsTest, AWaitCoversOnlyWhatWasGivenBeforeTheEvent) {
  ASSERT_TRUE(work(a_, 0));
  const EventHandle event = record(a_);
  ASSERT_TRUE(work(a_, 1024));
  ASSERT_TRUE(device_.wait_event(b_, event));
  EXPECT_TRUE(work(b_, 0));
  EXPECT_FALSE(work(b_, 1024));
}

TEST_F(SimulatedStreamsTest, OrderIsTransitive) {
  ASSERT_TRUE(work(a_));
  ASSERT_TRUE(device_.wait_event(b_, record(a_)));
  ASSERT_TRUE(device_.wait_event(c_, record(b_)));
  EXPECT_TRUE(work(c_));
  // The event of b is complete only when what b waited for is.
  const EventHandle of_b = record(b_);
  EXPECT_FALSE(is_complete(of_b));
  device_.complete(a_);
  EXPECT_TRUE(is_complete(of_b));
}

TEST_F(SimulatedStreamsTest, AnEventTakenBeforeAWaitKnowsNothingOfIt) {
  ASSERT_TRUE(work(a_, 0));
  ASSERT_TRUE(work(b_, 1024));
  const EventHandle early = record(b_);
  ASSERT_TRUE(device_.wait_event(b_, record(a_)));
  ASSERT_TRUE(device_.wait_event(c_, early));
  EXPECT_TRUE(work(c_, 1024));
  EXPECT_FALSE(work(c_, 0));
}

TEST_F(SimulatedStreamsTest, CompletingAStreamCompletesWhatItWaitsFor) {
  ASSERT_TRUE(work(a_, 0));
  ASSERT_TRUE(work(a_, 1024));
  ASSERT_TRUE(device_.wait_event(b_, record(a_)));
  ASSERT_TRUE(work(a_, 2048));
  ASSERT_TRUE(work(b_, 0));
  device_.complete(b_);
  EXPECT_TRUE(device_.is_idle(b_));
  EXPECT_FALSE(device_.is_idle(a_));  // what came after the event is not done
  EXPECT_TRUE(device_.complete_next(a_));
  EXPECT_FALSE(device_.complete_next(a_));
}

TEST_F(SimulatedStreamsTest, CompleteNextGoesInOrder) {
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(
        device_.launch(a_, {.until_completed = true, .body = [&order, i] { order.push_back(i); }}));
  }
  EXPECT_TRUE(device_.complete_next(a_));
  EXPECT_EQ(order, std::vector<int>({0}));
  device_.complete_all();
  EXPECT_EQ(order, std::vector<int>({0, 1, 2}));
}

TEST_F(SimulatedStreamsTest, LongChainsOfWaitsComplete) {
  ASSERT_TRUE(work(a_));
  const EventHandle event = device_.create_event().value();
  for (int i = 0; i < 20000; ++i) {
    const RawStream from = i % 2 == 0 ? a_ : b_;
    const RawStream to = i % 2 == 0 ? b_ : a_;
    ASSERT_TRUE(device_.record_event(event, from));
    ASSERT_TRUE(device_.wait_event(to, event));
  }
  device_.complete(a_);
  EXPECT_TRUE(device_.is_idle(a_));
  EXPECT_TRUE(device_.is_idle(b_));
}

TEST_F(SimulatedStreamsTest, RefusesToUnmapUnderWork) {
  ASSERT_TRUE(device_.map(range_ + kPage, kPage, handle_));
  ASSERT_TRUE(device_.set_access(range_ + kPage, kPage));
  ASSERT_TRUE(work(a_));
  EXPECT_EQ(device_.unmap(range_, kPage).error(), Error::backend_failure);
  EXPECT_EQ(device_.violation_count(), 1u);
  EXPECT_TRUE(device_.unmap(range_ + kPage, kPage));  // nothing runs through this one
  device_.complete(a_);
  EXPECT_TRUE(device_.launch(a_, {.address = range_, .bytes = 8}));  // still mapped
  EXPECT_TRUE(device_.unmap(range_, kPage));
}

TEST_F(SimulatedStreamsTest, RefusesToFreeUnderWorkThatDoesNotEnd) {
  const DeviceAddress plain = device_.allocate(4096).value();
  ASSERT_TRUE(work(b_));  // elsewhere: does not matter
  ASSERT_TRUE(device_.launch(a_, {.address = plain, .bytes = 8, .until_completed = true}));
  EXPECT_EQ(device_.deallocate(plain).error(), Error::backend_failure);
  EXPECT_EQ(device_.violation_count(), 1u);
  device_.complete(a_);
  EXPECT_TRUE(device_.deallocate(plain));
}

TEST_F(SimulatedStreamsTest, HandlesAreReusedAndIdentitiesAreNot) {
  std::set<std::uint64_t> ids;
  RawStream last = device_.create_stream();
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(ids.insert(device_.stream_id(last).value()).second);
    device_.destroy_stream(last);
    EXPECT_EQ(device_.stream_id(last).error(), Error::invalid_argument);
    const RawStream next = device_.create_stream();
    EXPECT_EQ(next, last);
    last = next;
  }
  const RawStream other = device_.create_stream();
  device_.destroy_stream(last);
  device_.destroy_stream(other);
  EXPECT_EQ(device_.create_stream(), other);  // the last destroyed is the first given
  EXPECT_EQ(device_.create_stream(), last);
}

TEST_F(SimulatedStreamsTest, WorkOutlivesItsStream) {
  ASSERT_TRUE(work(a_));
  const EventHandle event = record(a_);
  device_.destroy_stream(a_);
  const RawStream reused = device_.create_stream();
  ASSERT_EQ(reused, a_);
  EXPECT_TRUE(device_.is_idle(reused));
  EXPECT_FALSE(is_complete(event));
  EXPECT_FALSE(work(reused));  // a new stream: nothing orders it after the old one's work
  device_.complete(reused);
  EXPECT_FALSE(is_complete(event));
  device_.complete_all();
  EXPECT_TRUE(is_complete(event));
}

TEST_F(SimulatedStreamsTest, DefaultStreams) {
  const auto legacy = device_.stream_id(nullptr).value();
  EXPECT_EQ(device_.stream_id(reinterpret_cast<RawStream>(std::uintptr_t{1})).value(), legacy);
  const auto mine = device_.stream_id(per_thread_stream()).value();
  EXPECT_NE(mine, legacy);
  EXPECT_EQ(device_.stream_id(per_thread_stream()).value(), mine);
  std::uint64_t others = 0;
  std::thread([&] { others = device_.stream_id(per_thread_stream()).value(); }).join();
  EXPECT_NE(others, mine);
  EXPECT_NE(others, legacy);
}

// An event that another thread records for this thread's stream marks the wrong stream.
TEST_F(SimulatedStreamsTest, OnlyTheOwnerMarksItsPerThreadStream) {
  ASSERT_TRUE(work(per_thread_stream()));
  const EventHandle event = device_.create_event().value();
  std::thread([&] { EXPECT_TRUE(device_.record_event(event, per_thread_stream())); }).join();
  EXPECT_TRUE(is_complete(event));
  ASSERT_TRUE(device_.record_event(event, per_thread_stream()));
  EXPECT_FALSE(is_complete(event));
}

TEST_F(SimulatedStreamsTest, UnknownStreamsAndEventsAreErrors) {
  const auto unknown = reinterpret_cast<RawStream>(std::uintptr_t{0x1234560});
  EXPECT_EQ(device_.launch(unknown, {}).error(), Error::invalid_argument);
  EXPECT_EQ(device_.stream_id(unknown).error(), Error::invalid_argument);
  EXPECT_EQ(device_.capture_state(unknown).error(), Error::invalid_argument);
  const EventHandle event = device_.create_event().value();
  EXPECT_EQ(device_.record_event(event, unknown).error(), Error::invalid_argument);
  EXPECT_EQ(device_.wait_event(unknown, event).error(), Error::invalid_argument);
  ASSERT_TRUE(device_.destroy_event(event));
  const EventHandle next = device_.create_event().value();
  EXPECT_FALSE(next == event);  // the slot is used again, the handle is not
  EXPECT_EQ(device_.query_event(event).error(), Error::invalid_argument);
  EXPECT_EQ(device_.record_event(event, a_).error(), Error::invalid_argument);
  EXPECT_EQ(device_.destroy_event(event).error(), Error::invalid_argument);
  EXPECT_EQ(device_.query_event(EventHandle{}).error(), Error::invalid_argument);
  EXPECT_EQ(device_.violation_count(), 0u);
  device_.destroy_stream(unknown);
  EXPECT_EQ(device_.violation_count(), 1u);
}

TEST_F(SimulatedStreamsTest, SynchronizeWaitsForAnotherThreadToComplete) {
  ASSERT_TRUE(work(a_));
  const EventHandle event = record(a_);
  std::thread completer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    device_.complete(a_);
  });
  EXPECT_TRUE(device_.synchronize_event(event));
  EXPECT_TRUE(device_.is_idle(a_));
  completer.join();
}

TEST_F(SimulatedStreamsTest, ViolationHandlerMayAskTheDevice) {
  std::uint64_t seen = 0;
  SimulatedBackend* asked = nullptr;
  SimulatedBackend device(
      {.on_violation = [&](const std::string&) { seen = asked->violation_count(); }});
  asked = &device;
  EXPECT_FALSE(device.launch(nullptr, {.address = 64, .bytes = 1}));
  EXPECT_EQ(seen, 1u);
}

}  // namespace
}  // namespace gpupool
