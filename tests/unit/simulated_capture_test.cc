#include <gtest/gtest.h>

#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

class SimulatedCaptureTest : public testing::Test {
 protected:
  CaptureState state(RawStream stream) { return device_.capture_state(stream).value(); }

  SimulatedBackend device_;
  const RawStream a_ = device_.create_stream();
  const RawStream b_ = device_.create_stream();
  const EventHandle event_ = device_.create_event().value();
};

TEST_F(SimulatedCaptureTest, StatesOfAllStreams) {
  EXPECT_EQ(state(a_), CaptureState::none);
  EXPECT_EQ(state(nullptr), CaptureState::none);
  device_.begin_capture(a_);
  EXPECT_EQ(state(a_), CaptureState::active);
  EXPECT_EQ(state(b_), CaptureState::none);
  EXPECT_EQ(state(nullptr), CaptureState::implicit);
  device_.end_capture(a_);
  device_.end_capture(a_);  // nothing is left to end
  EXPECT_EQ(state(a_), CaptureState::none);
  EXPECT_EQ(state(nullptr), CaptureState::none);
  EXPECT_EQ(device_.violation_count(), 0u);
}

TEST_F(SimulatedCaptureTest, BeginTwiceOrOnTheLegacyStreamIsAViolation) {
  device_.begin_capture(nullptr);
  EXPECT_EQ(device_.violation_count(), 1u);
  EXPECT_EQ(state(nullptr), CaptureState::none);
  device_.begin_capture(a_);
  device_.begin_capture(a_);
  EXPECT_EQ(device_.violation_count(), 2u);
  EXPECT_EQ(state(a_), CaptureState::active);
}

TEST_F(SimulatedCaptureTest, RefusesToQueryAnEventOfACapture) {
  device_.begin_capture(a_);
  ASSERT_TRUE(device_.record_event(event_, a_));
  EXPECT_EQ(device_.query_event(event_).error(), Error::backend_failure);
  EXPECT_EQ(device_.synchronize_event(event_).error(), Error::backend_failure);
  EXPECT_EQ(device_.violation_count(), 2u);
  EXPECT_EQ(state(a_), CaptureState::invalidated);
  device_.end_capture(a_);
  EXPECT_FALSE(device_.query_event(event_));  // until it is recorded anew
  ASSERT_TRUE(device_.record_event(event_, a_));
  EXPECT_TRUE(device_.query_event(event_).value());
}

TEST_F(SimulatedCaptureTest, RefusesTheLegacyStreamWhileAnotherIsCaptured) {
  ASSERT_TRUE(device_.record_event(event_, nullptr));
  device_.begin_capture(a_);
  EXPECT_EQ(device_.record_event(event_, nullptr).error(), Error::backend_failure);
  EXPECT_EQ(state(a_), CaptureState::invalidated);
  EXPECT_EQ(device_.wait_event(nullptr, event_).error(), Error::backend_failure);
  EXPECT_EQ(device_.launch(nullptr, {}).error(), Error::backend_failure);
  EXPECT_EQ(device_.launch(a_, {}).error(), Error::backend_failure);  // it is invalidated
  EXPECT_EQ(device_.violation_count(), 4u);
  device_.end_capture(a_);
  EXPECT_TRUE(device_.record_event(event_, nullptr));
}

TEST_F(SimulatedCaptureTest, EventsOfOtherStreamsAreNotDisturbed) {
  ASSERT_TRUE(device_.launch(b_, {.until_completed = true}));
  ASSERT_TRUE(device_.record_event(event_, b_));
  device_.begin_capture(a_);
  EXPECT_FALSE(device_.query_event(event_).value());
  device_.complete(b_);
  EXPECT_TRUE(device_.query_event(event_).value());
  EXPECT_TRUE(device_.create(kPage));
  EXPECT_EQ(state(a_), CaptureState::active);
  EXPECT_EQ(device_.violation_count(), 0u);
}

TEST_F(SimulatedCaptureTest, AWaitAcrossTheEdgeInvalidates) {
  ASSERT_TRUE(device_.record_event(event_, b_));
  device_.begin_capture(a_);
  EXPECT_EQ(device_.wait_event(a_, event_).error(), Error::backend_failure);
  EXPECT_EQ(state(a_), CaptureState::invalidated);
}

TEST_F(SimulatedCaptureTest, AStreamJoinsByWaitingForACapturedEvent) {
  device_.begin_capture(a_);
  ASSERT_TRUE(device_.record_event(event_, a_));
  ASSERT_TRUE(device_.wait_event(b_, event_));
  EXPECT_EQ(state(b_), CaptureState::active);
  device_.end_capture(a_);
  EXPECT_EQ(state(b_), CaptureState::none);
  EXPECT_EQ(device_.wait_event(b_, event_).error(), Error::backend_failure);  // it has ended
}

TEST_F(SimulatedCaptureTest, CapturedWorkIsCheckedAndDoesNotRun) {
  const DeviceAddress range = device_.reserve_address(kPage, kPage).value();
  const PhysicalHandle handle = device_.create(kPage).value();
  ASSERT_TRUE(device_.map(range, kPage, handle));
  ASSERT_TRUE(device_.set_access(range, kPage));
  bool has_run = false;
  device_.begin_capture(a_);
  EXPECT_FALSE(device_.launch(a_, {.address = range + kPage, .bytes = 1}));
  ASSERT_TRUE(device_.launch(a_, {.address = range, .bytes = 64, .body = [&] { has_run = true; }}));
  EXPECT_TRUE(device_.is_idle(a_));
  EXPECT_EQ(device_.violation_count(), 1u);
  EXPECT_FALSE(device_.unmap(range, kPage));  // the capture can see it
  EXPECT_EQ(device_.violation_count(), 2u);
  device_.end_capture(a_);
  EXPECT_FALSE(has_run);
  EXPECT_TRUE(device_.unmap(range, kPage));
}

TEST_F(SimulatedCaptureTest, AGraphTouchesTheAddressesThatWereCaptured) {
  const DeviceAddress range = device_.reserve_address(kPage, kPage).value();
  const PhysicalHandle handle = device_.create(kPage).value();
  ASSERT_TRUE(device_.map(range, kPage, handle));
  ASSERT_TRUE(device_.set_access(range, kPage));
  int runs = 0;
  device_.begin_capture(a_);
  const std::uint64_t id = device_.capture_id(a_).value();
  ASSERT_TRUE(device_.record_event(event_, a_));
  ASSERT_TRUE(device_.wait_event(b_, event_));
  EXPECT_EQ(device_.capture_id(b_).value(), id);
  for (const RawStream stream : {a_, b_}) {
    ASSERT_TRUE(
        device_.launch(stream, {.address = range, .bytes = 64, .body = [&] { ++runs; }}).ok());
  }
  const SimulatedGraph graph = device_.end_capture(a_);
  EXPECT_FALSE(device_.capture_id(a_));
  const RawStream c = device_.create_stream();
  ASSERT_TRUE(device_.launch_graph(graph, c));
  ASSERT_TRUE(device_.launch_graph(graph, c));
  device_.complete_all();
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(device_.violation_count(), 0u);
  // Work that nothing orders before it, then a page that is gone, then a graph that is.
  ASSERT_TRUE(device_.launch(b_, {.address = range, .bytes = 1, .until_completed = true}));
  EXPECT_FALSE(device_.launch_graph(graph, c));
  EXPECT_EQ(device_.violation_count(), 1u);
  device_.complete_all();
  ASSERT_TRUE(device_.unmap(range, kPage));
  EXPECT_FALSE(device_.launch_graph(graph, c));
  EXPECT_EQ(device_.violation_count(), 2u);
  EXPECT_TRUE(device_.is_idle(c));
  device_.destroy_graph(graph);
  EXPECT_EQ(device_.launch_graph(graph, c).error(), Error::invalid_argument);
  device_.begin_capture(a_);
  ASSERT_TRUE(device_.record_event(event_, a_));
  EXPECT_FALSE(device_.query_event(event_));
  EXPECT_EQ(device_.end_capture(a_).value, 0u);  // it was invalidated
}

TEST_F(SimulatedCaptureTest, ADeviceIsWaitedForButNotInACapture) {
  ASSERT_TRUE(device_.launch(a_, {.duration_ns = 1000}));
  ASSERT_TRUE(device_.launch(b_, {.duration_ns = 5000}));
  EXPECT_TRUE(device_.synchronize_device());
  EXPECT_TRUE(device_.is_idle(a_) && device_.is_idle(b_));
  ASSERT_TRUE(device_.launch(b_, {.until_completed = true}));
  EXPECT_FALSE(device_.synchronize_device());  // it would be for ever
  EXPECT_EQ(device_.violation_count(), 0u);
  device_.complete_all();
  device_.begin_capture(a_);
  EXPECT_EQ(device_.synchronize_device().error(), Error::backend_failure);
  EXPECT_EQ(device_.violation_count(), 1u);
  EXPECT_EQ(state(a_), CaptureState::invalidated);
}

TEST_F(SimulatedCaptureTest, RefusesToFreeWhatACaptureUses) {
  const DeviceAddress plain = device_.allocate(512).value();
  device_.begin_capture(a_);
  ASSERT_TRUE(device_.launch(a_, {.address = plain, .bytes = 64}));
  EXPECT_EQ(device_.deallocate(plain).error(), Error::backend_failure);
  device_.destroy_stream(a_);  // ends the capture
  EXPECT_TRUE(device_.deallocate(plain));
}

}  // namespace
}  // namespace gpupool
