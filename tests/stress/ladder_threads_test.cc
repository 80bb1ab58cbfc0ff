// Threads that wait for pending work while others allocate, free and trim: with room for all that
// is live, each request is served, and no memory is handed out before its work is complete.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

constexpr std::size_t kLadderThreads = 4;
constexpr std::uint64_t kLongest = 14 * kMiB;  // all of them at once fit

class LadderThreadsTest : public testing::TestWithParam<Recycling> {
 protected:
  void start(std::uint64_t cache_bytes) {
    PoolOptions options;
    options.capacity = 64 * kMiB;
    options.cache_small_bytes = cache_bytes;
    options.cache_large_bytes = cache_bytes;
    options.runtime.recycling = GetParam();
    options.out_of_memory_handler = [this](const FailureReport& report) {
      EXPECT_FALSE(report.text().empty());
      EXPECT_FALSE(report.json().empty());
      ++handled_;
      return false;
    };
    pool_ = Pool::create(device_, options).value();
    for (std::size_t i = 0; i < kLadderThreads; ++i) {
      raw_.push_back(device_.create_stream());
      streams_.push_back(pool_->adopt_stream(raw_.back()).value());
    }
  }
  void TearDown() override {
    device_.complete_all();
    pool_->check_invariants();
    pool_.reset();
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
    EXPECT_EQ(device_.object_count(), 0u);
  }

  /// Each block under work of up to `longest_work_ns_` when it is freed, and each on another stream
  /// than the one before, whose memory is not the next one's so soon.
  void allocate_and_free(std::size_t thread, int rounds) {
    std::mt19937_64 random(thread + 1);
    for (int i = 0; i < rounds; ++i) {
      const std::uint64_t bytes = kMiB + random() % (kLongest - kMiB);
      const std::size_t stream = (thread + static_cast<std::size_t>(i)) % kLadderThreads;
      const auto block = pool_->allocate(bytes, streams_[stream]);
      if (!block.ok()) {
        ++failed_;
        continue;
      }
      SimulatedWork work;
      work.address = reinterpret_cast<DeviceAddress>(block.value());
      work.bytes = bytes;
      work.duration_ns = random() % longest_work_ns_;
      EXPECT_TRUE(device_.launch(raw_[stream], work).ok());
      EXPECT_TRUE(pool_->deallocate(block.value(), streams_[stream]));
    }
  }
  /// All threads, and one that asks and trims beside them.
  void run(int rounds) {
    std::atomic<bool> is_over{false};
    std::thread beside([&] {
      while (!is_over) {
        pool_->maintain();
        static_cast<void>(pool_->stats());
        static_cast<void>(pool_->last_failure().text());
        static_cast<void>(pool_->would_fit(kLongest, streams_[0]));
        pool_->trim(32 * kMiB);
      }
    });
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kLadderThreads; ++i) {
      threads.emplace_back([this, i, rounds] { allocate_and_free(i, rounds); });
    }
    for (std::thread& thread : threads) thread.join();
    is_over = true;
    beside.join();
  }

  SimulatedBackend device_{
      {.capacity_bytes = 1024 * kMiB, .time = SimulatedTime::real_time, .charge_costs = false}};
  std::unique_ptr<Pool> pool_;
  std::vector<RawStream> raw_;
  std::vector<StreamRef> streams_;
  std::uint64_t longest_work_ns_ = 500'000;
  std::atomic<std::uint64_t> failed_{0};
  std::atomic<std::uint64_t> handled_{0};
};

TEST_P(LadderThreadsTest, WhoWaitsIsServedWhateverOthersDo) {
  start(0);
  run(150);
  const auto waits = [this] {
    return pool_->stats().ladder_successes[static_cast<std::size_t>(LadderRung::wait)];
  };
  // Threads that are slow, on a busy machine or instrumented, find work done that fast ones wait
  // for.
  for (int turn = 0; turn < 8 && waits() == 0; ++turn) {
    longest_work_ns_ *= 2;
    run(150);
  }
  EXPECT_EQ(failed_, 0u) << pool_->last_failure().text();
  EXPECT_GT(waits(), 0u);
}

TEST_P(LadderThreadsTest, TheBooksAreRightWhereCachesAreInBetween) {
  start(32 * kMiB);
  run(150);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.failures, failed_);
  EXPECT_EQ(stats.requests, kLadderThreads * 150);
  for (std::size_t i = 0; i < kLadderRungCount; ++i) {
    EXPECT_LE(stats.ladder_successes[i], stats.ladder_tries[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LadderThreadsTest,
                         testing::Values(Recycling::eager, Recycling::pressure, Recycling::off),
                         [](const auto& policy) { return std::string(to_string(policy.param)); });

}  // namespace
}  // namespace gpupool
