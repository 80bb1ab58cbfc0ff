// A thread that sits in a driver call for an event, as it does for milliseconds while another is
// in cudaFree, holds up no request that may be served without it: not out of the shared tiers, not
// by growth. What cannot be served otherwise waits for it, and is served then.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "gpupool/faulty_backend.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/gate.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kWorkers = 3;
constexpr int kEventRounds = 600;  // more than a thread frees before it closes its own epoch
/// Of one call, on a machine that does other things, too; the gate stays shut four times as long.
constexpr auto kLongestCall = Gate::kLongest / 4;

class SlowEventsTest : public testing::Test {
 protected:
  void SetUp() override { make_pool(false); }
  void TearDown() override {
    device_.complete_all();
    pool_->check_invariants();
    pool_.reset();
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
    EXPECT_EQ(device_.object_count(), 0u);
  }

  void make_pool(bool verify_streams) {
    PoolOptions options;
    options.capacity = 1024 * kMiB;
    // Every block goes through the shared tiers.
    options.cache_small_bytes = 0;
    options.cache_large_bytes = 0;
    options.verify_streams = verify_streams;
    pool_ = Pool::create(backend_, options).value();
    raw_ = device_.create_stream();
    slow_ = pool_->adopt_stream(raw_).value();
  }

  /// Something is freed, so that there is an epoch to close, and an event to ask.
  void leave_work(std::uint64_t bytes) {
    void* block = pool_->allocate(bytes, slow_).value();
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(block);
    work.bytes = bytes;
    work.until_completed = true;
    EXPECT_TRUE(device_.launch(raw_, work).ok());
    EXPECT_TRUE(pool_->deallocate(block, slow_));
  }

  /// The next driver call of `kind`, and no other, waits at the gate.
  void shut_gate(BackendCall kind) {
    backend_.before(kind, [this] {
      if (!is_taken_.exchange(true)) gate_.pass();
    });
  }

  void expect_waits_for_completed_work(AllocationClass kind);
  /// Allocates and frees, mostly on a stream of its own; returns how long the longest call took.
  std::chrono::nanoseconds run_worker(unsigned seed, RawStream raw, StreamRef stream);
  /// While `slow_call` sits in a driver call of `kind`, other threads' requests go on.
  template <class Call>
  void expect_requests_go_on(BackendCall kind, Call slow_call);

  SimulatedBackend device_{{.capacity_bytes = std::uint64_t{4} << 30, .charge_costs = false}};
  FaultyBackend backend_{device_};
  std::unique_ptr<Pool> pool_;
  RawStream raw_ = nullptr;
  StreamRef slow_;
  Gate gate_;
  std::atomic<bool> is_taken_{false};
};

std::chrono::nanoseconds SlowEventsTest::run_worker(unsigned seed, RawStream raw,
                                                    StreamRef stream) {
  constexpr std::uint64_t kSizes[] = {512, 20'000, 100'000, kMiB, 3 * kMiB};
  std::mt19937 random(seed);
  std::vector<void*> blocks;
  std::chrono::nanoseconds longest{0};
  const auto timed = [&](auto call) {
    const auto start = SteadyClock::now();
    call();
    longest = std::max<std::chrono::nanoseconds>(longest, SteadyClock::now() - start);
  };
  const auto free_one = [&] {
    void* block = blocks.back();
    blocks.pop_back();
    timed([&] {
      EXPECT_TRUE(stream.is_valid() ? pool_->deallocate(block, stream)
                                    : pool_->deallocate(block, raw));
    });
  };
  for (int i = 0; i < kEventRounds; ++i) {
    const std::uint64_t bytes = kSizes[random() % std::size(kSizes)];
    timed([&] {
      const auto block =
          stream.is_valid() ? pool_->allocate(bytes, stream) : pool_->allocate(bytes, raw);
      EXPECT_TRUE(block.ok());
      if (block.ok()) blocks.push_back(block.value());
    });
    while (blocks.size() > random() % 20) free_one();
    if (i % 50 == 0) timed([&] { pool_->maintain(); });
    if (i % 50 == 25) timed([&] { EXPECT_GT(pool_->stats().requests, 0u); });
  }
  while (!blocks.empty()) free_one();
  return longest;
}

template <class Call>
void SlowEventsTest::expect_requests_go_on(BackendCall kind, Call slow_call) {
  shut_gate(kind);
  std::atomic<bool> is_done{false};
  std::thread slow([&] {
    slow_call();
    is_done = true;
  });
  EXPECT_TRUE(gate_.wait_until_reached());
  std::vector<std::chrono::nanoseconds> longest(kWorkers);
  std::vector<std::thread> workers;
  std::atomic<int> finished{0};
  for (unsigned i = 0; i < kWorkers; ++i) {
    workers.emplace_back([&, i] {
      // One by its own default stream, which only it can close epochs of; the others by streams
      // that the pool learns of now.
      const RawStream raw = i == 0 ? per_thread_stream() : device_.create_stream();
      const StreamRef stream = i == 1 ? pool_->adopt_stream(raw).value() : StreamRef();
      longest[i] = run_worker(i + 1, raw, stream);
      // Not once they are joined: the end of a thread that used its default stream waits for the
      // event that covers what it freed last.
      if (++finished < kWorkers) return;
      EXPECT_FALSE(is_done) << "the call was not as slow as it had to be";
      gate_.open();
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (const std::chrono::nanoseconds time : longest) EXPECT_LT(time, kLongestCall);
  slow.join();
  backend_.clear();
}

void SlowEventsTest::expect_waits_for_completed_work(AllocationClass kind) {
  device_.complete_all();
  pool_.reset();
  make_pool(false);
  leave_work(800 * kMiB);
  device_.complete_all();
  const StreamRef other = pool_->adopt_stream(device_.create_stream()).value();
  Gate gate;
  std::atomic<bool> is_taken{false};
  backend_.before(BackendCall::query_event, [&] {
    if (!is_taken.exchange(true)) gate.pass();
  });
  std::thread slow([&] { pool_->maintain(); });
  EXPECT_TRUE(gate.wait_until_reached());
  std::atomic<bool> is_served{false};
  std::thread asking([&] {
    AllocationRequest request;
    request.bytes = 800 * kMiB;
    request.allocation_class = kind;
    void* block = pool_->allocate(request, other).value();
    is_served = true;
    EXPECT_TRUE(pool_->deallocate(block, other));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(is_served);
  // It does not hold up who can be served by growth.
  const auto start = SteadyClock::now();
  const StreamRef third = pool_->adopt_stream(device_.create_stream()).value();
  EXPECT_TRUE(pool_->deallocate(pool_->allocate(40 * kMiB, third).value(), third));
  EXPECT_LT(SteadyClock::now() - start, kLongestCall);
  EXPECT_FALSE(is_served);
  gate.open();
  slow.join();
  asking.join();
  backend_.clear();
  EXPECT_EQ(pool_->stats().failures, 0u);
  EXPECT_EQ(pool_->stats().misses, 3u);
}

TEST_F(SlowEventsTest, WhileAStreamIsAskedForItsIdentity) {
  leave_work(kMiB);
  expect_requests_go_on(BackendCall::stream_id, [&] { pool_->maintain(); });
}

TEST_F(SlowEventsTest, WhileAStreamIsAskedForItsCapture) {
  leave_work(kMiB);
  expect_requests_go_on(BackendCall::capture_state, [&] { pool_->drain_caches(); });
}

TEST_F(SlowEventsTest, WhileAnEventIsMade) {
  leave_work(kMiB);
  expect_requests_go_on(BackendCall::create_event, [&] { pool_->trim(0); });
}

TEST_F(SlowEventsTest, WhileAnEventIsRecorded) {
  leave_work(kMiB);
  expect_requests_go_on(BackendCall::record_event, [&] { pool_->maintain(); });
}

TEST_F(SlowEventsTest, WhileAnEventIsAsked) {
  leave_work(kMiB);
  expect_requests_go_on(BackendCall::query_event, [&] { pool_->maintain(); });
}

TEST_F(SlowEventsTest, WhileARequestLooksForCompletedWork) {
  leave_work(600 * kMiB);
  device_.complete_all();
  expect_requests_go_on(BackendCall::record_event, [&] {
    const StreamRef other = pool_->adopt_stream(device_.create_stream()).value();
    EXPECT_TRUE(pool_->deallocate(pool_->allocate(500 * kMiB, other).value(), other));
  });
}

TEST_F(SlowEventsTest, WhileAUseIsRecorded) {
  void* block = pool_->allocate(kMiB, slow_).value();
  expect_requests_go_on(BackendCall::record_event,
                        [&] { EXPECT_TRUE(pool_->record_use(block, slow_)); });
  EXPECT_TRUE(pool_->deallocate(block, slow_));
}

TEST_F(SlowEventsTest, WhileAStreamIsReleased) {
  leave_work(kMiB);
  expect_requests_go_on(BackendCall::record_event,
                        [&] { EXPECT_TRUE(pool_->release_stream(slow_)); });
}

TEST_F(SlowEventsTest, WhileAStreamIsVerified) {
  make_pool(true);
  void* block = pool_->allocate(kMiB, slow_).value();
  expect_requests_go_on(BackendCall::stream_id,
                        [&] { EXPECT_TRUE(pool_->deallocate(block, slow_)); });
}

TEST_F(SlowEventsTest, WhatOnlyCompletedWorkCanServeWaitsForIt) {
  for (const AllocationClass kind : {AllocationClass::normal, AllocationClass::contiguous}) {
    expect_waits_for_completed_work(kind);
  }
}

TEST_F(SlowEventsTest, AStreamIsNotReleasedWhileItsEventIsBeingRecorded) {
  leave_work(kMiB);
  shut_gate(BackendCall::record_event);
  std::thread slow([&] { pool_->maintain(); });
  EXPECT_TRUE(gate_.wait_until_reached());
  std::atomic<bool> is_released{false};
  std::thread releasing([&] {
    EXPECT_TRUE(pool_->release_stream(slow_));
    is_released = true;
    device_.destroy_stream(raw_);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(is_released);
  gate_.open();
  slow.join();
  releasing.join();
  backend_.clear();
  device_.complete_all();
  pool_->maintain();
  EXPECT_EQ(pool_->stats().pending_bytes, 0u);
}

}  // namespace
}  // namespace gpupool
