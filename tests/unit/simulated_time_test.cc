#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "backend/cost_model.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

using internal::modelled_cost_ns;

std::uint64_t now(const SimulatedBackend& device) { return device.clock().now_ns(); }

TEST(SimulatedTimeTest, CallsMoveTheClockByTheirModelledCost) {
  SimulatedBackend device;
  std::uint64_t expected = 0;
  EXPECT_EQ(now(device), expected);
  const DeviceAddress range = device.reserve_address(8 * kPage, kPage).value();
  expected += modelled_cost_ns(BackendCall::reserve_address, 8 * kPage);
  EXPECT_EQ(now(device), expected);
  std::vector<PhysicalHandle> handles;
  for (std::uint64_t i = 0; i < 3; ++i) {
    handles.push_back(device.create(kPage).value());
    ASSERT_TRUE(device.map(range + i * kPage, kPage, handles.back()));
    expected += 10600 + 1000;
  }
  EXPECT_EQ(now(device), expected);
  ASSERT_TRUE(device.set_access(range, 3 * kPage));
  expected += 24000 + 2 * 27000;
  EXPECT_EQ(now(device), expected);
  ASSERT_TRUE(device.unmap(range + kPage, 2 * kPage));
  expected += 16000 + 18000;
  EXPECT_EQ(now(device), expected);
  ASSERT_TRUE(device.release(handles[2]));
  expected += 12000;
  EXPECT_EQ(now(device), expected);
  const DeviceAddress plain = device.allocate(1).value();
  ASSERT_TRUE(device.deallocate(plain));
  expected += 41000 + 35000;
  EXPECT_EQ(now(device), expected);
  const EventHandle event = device.create_event().value();
  ASSERT_TRUE(device.record_event(event, nullptr));
  EXPECT_TRUE(device.query_event(event).value());
  expected += 300 + 420 + 350;
  EXPECT_EQ(now(device), expected);
}

TEST(SimulatedTimeTest, BackgroundCallsTakeTimeBesideTheCaller) {
  SimulatedBackend device;
  device.advance_ns(1000);
  const std::uint64_t create_ns = modelled_cost_ns(BackendCall::create, kPage);
  device.begin_background();
  ASSERT_TRUE(device.create(kPage));
  EXPECT_EQ(now(device), 1000 + create_ns);
  device.end_background();
  EXPECT_EQ(now(device), 1000u);
  ASSERT_TRUE(device.create(kPage));
  EXPECT_EQ(now(device), 1000 + create_ns);
  device.begin_background();  // goes on where its last call ended, or now
  EXPECT_EQ(now(device), 1000 + create_ns);
  ASSERT_TRUE(device.create(kPage));
  ASSERT_TRUE(device.create(kPage));
  const std::uint64_t end = now(device);
  EXPECT_EQ(end, 1000 + 3 * create_ns);
  device.end_background();
  device.begin_background();
  EXPECT_EQ(now(device), end);
  device.end_background();
  device.wait_until(end);
  EXPECT_EQ(now(device), end);
  device.wait_until(5);
  EXPECT_EQ(now(device), end);
}

TEST(SimulatedTimeTest, WrongCallsCostNothingAndFullOnesDo) {
  SimulatedBackend device({.capacity_bytes = 4 * kPage});
  EXPECT_FALSE(device.create(1));
  EXPECT_FALSE(device.unmap(64, kPage));
  EXPECT_EQ(now(device), 0u);
  EXPECT_EQ(device.create(8 * kPage).error(), Error::out_of_memory);
  EXPECT_EQ(now(device), modelled_cost_ns(BackendCall::create, 8 * kPage));
}

TEST(SimulatedTimeTest, CostsCanBeLeftOut) {
  SimulatedBackend device({.charge_costs = false});
  EXPECT_TRUE(device.create(kPage));
  EXPECT_TRUE(device.allocate(kPage));
  EXPECT_EQ(now(device), 0u);
  device.advance_ns(5);
  EXPECT_EQ(now(device), 5u);
}

class TimedWork : public testing::Test {
 protected:
  Result<void> work(RawStream stream, std::uint64_t duration_ns, int name) {
    return device_.launch(
        stream, {.duration_ns = duration_ns, .body = [this, name] { done_.push_back(name); }});
  }

  SimulatedBackend device_{{.charge_costs = false}};
  const RawStream a_ = device_.create_stream();
  const RawStream b_ = device_.create_stream();
  std::vector<int> done_;
};

TEST_F(TimedWork, CompletesWhenItsTimeHasCome) {
  ASSERT_TRUE(work(a_, 1000, 1));
  device_.advance_ns(999);
  EXPECT_FALSE(device_.is_idle(a_));
  device_.advance_ns(1);
  EXPECT_TRUE(device_.is_idle(a_));
  EXPECT_EQ(done_, std::vector<int>({1}));
  ASSERT_TRUE(work(a_, 0, 2));
  EXPECT_TRUE(device_.is_idle(a_));
}

TEST_F(TimedWork, RunsOneAfterTheOtherInAStreamAndSideBySideInTwo) {
  ASSERT_TRUE(work(a_, 1000, 1));
  ASSERT_TRUE(work(a_, 1000, 2));
  ASSERT_TRUE(work(b_, 1500, 3));
  device_.advance_ns(1999);
  EXPECT_EQ(done_, std::vector<int>({1, 3}));
  device_.advance_ns(1);
  EXPECT_EQ(done_, std::vector<int>({1, 3, 2}));
}

TEST_F(TimedWork, AWaitStartsWorkWhenTheEventIsDone) {
  ASSERT_TRUE(work(a_, 1000, 1));
  const EventHandle event = device_.create_event().value();
  ASSERT_TRUE(device_.record_event(event, a_));
  ASSERT_TRUE(device_.wait_event(b_, event));
  ASSERT_TRUE(work(b_, 500, 2));
  // One long step: b's work started at 1000 all the same, not when the step ended.
  device_.advance_ns(1499);
  EXPECT_FALSE(device_.is_idle(b_));
  device_.advance_ns(1);
  EXPECT_TRUE(device_.is_idle(b_));
  EXPECT_EQ(done_, std::vector<int>({1, 2}));
}

TEST_F(TimedWork, StartsWhenUntilCompletedWorkBeforeItIsCompleted) {
  ASSERT_TRUE(device_.launch(a_, {.until_completed = true}));
  ASSERT_TRUE(work(a_, 100, 1));
  device_.advance_ns(5000);
  EXPECT_TRUE(done_.empty());
  EXPECT_TRUE(device_.complete_next(a_));
  device_.advance_ns(99);
  EXPECT_TRUE(done_.empty());
  device_.advance_ns(1);
  EXPECT_EQ(done_, std::vector<int>({1}));
}

TEST_F(TimedWork, SynchronizeMovesTheClock) {
  ASSERT_TRUE(work(a_, 1000, 1));
  ASSERT_TRUE(work(a_, 2000, 2));
  const EventHandle event = device_.create_event().value();
  ASSERT_TRUE(device_.record_event(event, a_));
  ASSERT_TRUE(work(a_, 4000, 3));
  ASSERT_TRUE(device_.synchronize_event(event));
  EXPECT_EQ(now(device_), 3000u);
  EXPECT_EQ(done_, std::vector<int>({1, 2}));
}

TEST_F(TimedWork, DeallocateWaitsForTheDevice) {
  const DeviceAddress plain = device_.allocate(512).value();
  ASSERT_TRUE(device_.launch(a_, {.address = plain, .bytes = 8, .duration_ns = 1000}));
  ASSERT_TRUE(work(b_, 7000, 1));  // not there, but cudaFree waits for all of the device
  ASSERT_TRUE(device_.deallocate(plain));
  EXPECT_EQ(now(device_), 7000u);
  EXPECT_EQ(device_.violation_count(), 0u);
}

TEST(SimulatedTimeTest, DriverCallsLetWorkComplete) {
  SimulatedBackend device;
  const RawStream stream = device.create_stream();
  ASSERT_TRUE(device.launch(stream, {.duration_ns = 10000}));
  EXPECT_FALSE(device.is_idle(stream));
  ASSERT_TRUE(device.create(kPage));  // takes 10.6 us
  EXPECT_TRUE(device.is_idle(stream));
}

TEST(SimulatedTimeTest, RealTimeReallyPasses) {
  SimulatedBackend device({.time = SimulatedTime::real_time});
  EXPECT_EQ(&device.clock(), &steady_clock());
  const auto start = std::chrono::steady_clock::now();
  const PhysicalHandle handle = device.create(std::uint64_t{1} << 30).value();
  ASSERT_TRUE(device.release(handle));  // 97 us and 516 us
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::microseconds(613));
  const RawStream stream = device.create_stream();
  const EventHandle event = device.create_event().value();
  const std::uint64_t launched_ns = now(device);
  ASSERT_TRUE(device.launch(stream, {.duration_ns = 3'000'000}));
  ASSERT_TRUE(device.record_event(event, stream));
  const bool was_complete = device.query_event(event).value();
  // On a busy machine the thread may have slept longer than the work takes; only then may it be.
  const bool has_slept = now(device) - launched_ns >= 3'000'000u;
  EXPECT_TRUE(has_slept || !was_complete);
  ASSERT_TRUE(device.synchronize_event(event));
  EXPECT_GE(now(device) - launched_ns, 3'000'000u);
  EXPECT_TRUE(device.query_event(event).value());
  device.advance_ns(1'000'000'000'000);  // moves virtual time only
  EXPECT_LT(now(device) - launched_ns, 1'000'000'000'000u);
}

// The same calls give the same times and the same completions, whatever came before.
TEST(SimulatedTimeTest, RunsRepeat) {
  std::vector<std::uint64_t> first;
  for (int run = 0; run < 2; ++run) {
    std::vector<std::uint64_t> times;
    SimulatedBackend device;
    std::vector<RawStream> streams;
    streams.reserve(8);
    for (int i = 0; i < 8; ++i) streams.push_back(device.create_stream());
    const EventHandle event = device.create_event().value();
    for (std::size_t i = 0; i < 500; ++i) {
      const auto record_time = [&times, &device] { times.push_back(now(device)); };
      ASSERT_TRUE(
          device.launch(streams[i * 5 % 8], {.duration_ns = i * 37 % 1000, .body = record_time}));
      ASSERT_TRUE(device.record_event(event, streams[i % 8]));
      ASSERT_TRUE(device.wait_event(streams[i * 3 % 8], event));
    }
    device.advance_ns(1'000'000'000);
    EXPECT_EQ(times.size(), 500u);
    if (run == 0) first = times;
    EXPECT_EQ(times, first);
  }
}

}  // namespace
}  // namespace gpupool
