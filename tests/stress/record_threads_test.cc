// Recordings that begin and end while threads allocate, free what others allocated, come and go:
// each file is a trace, and has what happened in its order.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/stress/stress_time.h"
#include "tests/support/basket.h"
#include "tests/support/recorded_trace.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

constexpr std::uint64_t kRecordThreads = 4;

class RecordThreadsTest : public testing::Test {
 protected:
  RecordThreadsTest() {
    PoolOptions options;
    options.misuse_handler = [this](const MisuseReport&) { ++misuses_; };
    pool_ = Pool::create(device_, options).value();
    for (StreamRef& stream : streams_) {
      stream = pool_->adopt_stream(device_.create_stream()).value();
    }
  }
  void TearDown() override {
    void* block = nullptr;
    while (basket_.take(block)) EXPECT_TRUE(pool_->deallocate(block, streams_[0]));
    device_.complete_all();
    pool_->check_invariants();
    EXPECT_EQ(pool_->stats().live_blocks, 0u);
    pool_.reset();
    EXPECT_EQ(misuses_, 0u);
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
  }

  /// Allocates and frees: half of what it frees comes from others, on a stream of its own.
  void run_rounds(std::uint64_t self, std::uint64_t rounds, const std::atomic<bool>& is_over) {
    std::mt19937_64 random(self);
    const StreamRef stream = streams_[self % streams_.size()];
    std::vector<void*> own;
    for (std::uint64_t i = 0; i < rounds && !is_over; ++i) {
      if (own.size() < 20 && random() % 2 == 0) {
        const std::uint64_t limit = random() % 4 == 0 ? 4 * kMiB : 64 << 10;
        void* const block = pool_->allocate(1 + random() % limit, stream).value();
        if (random() % 2 == 0 || given_away_ >= kMostGivenAway) {
          own.push_back(block);
        } else {
          ++given_away_;
          basket_.put(block);
        }
      } else if (void* other = nullptr; random() % 2 == 0 && basket_.take(other)) {
        --given_away_;
        EXPECT_TRUE(pool_->deallocate(other, stream));
      } else if (!own.empty()) {
        EXPECT_TRUE(pool_->deallocate(own.back(), stream));
        own.pop_back();
      }
    }
    for (void* const block : own) EXPECT_TRUE(pool_->deallocate(block, stream));
  }

  SimulatedBackend device_{{.capacity_bytes = 8192 * kMiB, .charge_costs = false}};
  std::unique_ptr<Pool> pool_;
  std::array<StreamRef, 3> streams_;
  static constexpr int kMostGivenAway = 100;
  Basket<void*> basket_;
  std::atomic<int> given_away_{0};
  std::atomic<std::uint64_t> misuses_{0};
  ScratchFile file_;
};

TEST_F(RecordThreadsTest, ARecordingMayBeginAndEndAtAnyTime) {
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (std::uint64_t self = 0; self + 1 < kRecordThreads; ++self) {
    threads.emplace_back([&, self] { run_rounds(self, ~std::uint64_t{0}, is_over); });
  }
  // And one after the other that ends at once.
  threads.emplace_back([&] {
    while (!is_over) std::thread([&] { run_rounds(kRecordThreads, 100, is_over); }).join();
  });
  std::uint64_t recordings = 0;
  std::uint64_t events = 0;
  const auto end = std::chrono::steady_clock::now() + stress_time(800ms);
  while (std::chrono::steady_clock::now() < end) {
    ASSERT_TRUE(pool_->record(file_.path()).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(recordings % 12));
    pool_->maintain();
    if (recordings % 8 == 0) pool_->trim(0);
    const auto report = pool_->stop_recording();
    ASSERT_TRUE(report.ok()) << report.error().message;
    const RecordedTrace trace = read_recorded_trace(file_.path());
    ASSERT_EQ(trace.fault, "");
    // What was just being handed out when it began, one block a thread.
    EXPECT_LE(report.value().left_out, kRecordThreads);
    EXPECT_EQ(report.value().end, RecordEnd::stopped);
    EXPECT_EQ(trace.count('a'), report.value().allocations + report.value().live_at_start);
    EXPECT_EQ(trace.count('f'), report.value().frees);
    events += trace.events.size();
    ++recordings;
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(recordings, 2u);
  EXPECT_GT(events, 1000u);
}

TEST_F(RecordThreadsTest, EverythingIsThereAndInItsOrder) {
  constexpr std::uint64_t kRounds = 20'000;
  ASSERT_TRUE(pool_->record(file_.path()).ok());
  std::vector<std::thread> threads;
  for (std::uint64_t self = 0; self < kRecordThreads; ++self) {
    // Each thread's sizes say whose they are, and how many it had before. What one frees the others
    // get next: were a free noted after its block was had again, the block would be there twice.
    threads.emplace_back([&, self] {
      const StreamRef stream = streams_[self % 2];
      for (std::uint64_t i = 0; i < kRounds; ++i) {
        basket_.put(pool_->allocate(i * kRecordThreads + self + 1, stream).value());
        void* block = nullptr;
        if (!basket_.take(block)) continue;
        EXPECT_TRUE(pool_->deallocate(block, stream));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto report = pool_->stop_recording();
  ASSERT_TRUE(report.ok()) << report.error().message;
  const RecordedTrace trace = read_recorded_trace(file_.path());
  ASSERT_EQ(trace.fault, "");
  EXPECT_EQ(report.value().left_out, 0u);
  EXPECT_EQ(report.value().allocations, kRecordThreads * kRounds);
  EXPECT_EQ(trace.live, pool_->stats().live_blocks);
  std::array<std::uint64_t, kRecordThreads> next{};
  std::uint64_t last_us = 0;
  for (const RecordedEvent& event : trace.events) {
    EXPECT_GE(event.time_us, last_us);
    last_us = event.time_us;
    if (event.kind != 'a') continue;
    const std::uint64_t self = (event.bytes - 1) % kRecordThreads;
    ASSERT_EQ((event.bytes - 1) / kRecordThreads, next[self]++);
    ASSERT_EQ(event.stream, self % 2 + 1);
  }
}

// Threads that only look, or begin and end at the same time, get an answer and no half.
TEST_F(RecordThreadsTest, OneOfSeveralBeginsIt) {
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> ended{0};
  std::vector<std::thread> threads;
  for (std::uint64_t self = 0; self < kRecordThreads; ++self) {
    threads.emplace_back([&] {
      const ScratchFile file;
      for (int i = 0; i < 50; ++i) {
        if (pool_->record(file.path()).ok()) ++begun;
        EXPECT_TRUE(pool_->deallocate(pool_->allocate(512, streams_[0]).value(), streams_[0]));
        if (pool_->stop_recording().ok()) ++ended;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(begun, 50u);
  EXPECT_EQ(begun, ended + (pool_->stop_recording().ok() ? 1 : 0));
}

}  // namespace
}  // namespace gpupool
