// The pool's mutex: one at a time, nobody sleeps for ever, whoever tries does not wait.
#include "base/mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace gpupool::internal {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(MutexTest, OneAtATime) {
  Mutex mutex;
  std::uint64_t count = 0;
  constexpr int kThreads = 4;
  constexpr int kRounds = 50'000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const MutexLock lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, std::uint64_t{kThreads} * kRounds);
}

TEST(MutexTest, WhoTriesDoesNotWait) {
  Mutex mutex;
  ASSERT_TRUE(mutex.try_lock());
  std::thread([&] {
    EXPECT_FALSE(mutex.try_lock());
    EXPECT_FALSE(mutex.try_lock_for(microseconds(0)));
    const auto start = steady_clock::now();
    EXPECT_FALSE(mutex.try_lock_for(milliseconds(5)));
    EXPECT_GE(steady_clock::now() - start, milliseconds(5));
  }).join();
  mutex.unlock();
  std::thread([&] {
    EXPECT_TRUE(mutex.try_lock_for(microseconds(0)));
    mutex.unlock();
  }).join();
}

TEST(MutexTest, LetsGoForAScope) {
  Mutex mutex;
  const MutexLock lock(mutex);
  {
    const MutexUnlock unlock(mutex);
    std::thread([&] {
      EXPECT_TRUE(mutex.try_lock());
      mutex.unlock();
    }).join();
  }
  std::thread([&] { EXPECT_FALSE(mutex.try_lock()); }).join();
}

// A wake-up that is lost would leave a sleeper where it is: all of these end by themselves.
TEST(MutexTest, EverySleeperIsWoken) {
  Mutex mutex;
  constexpr int kSleepers = 6;
  for (int round = 0; round < 60; ++round) {
    std::atomic<int> through{0};
    std::vector<std::thread> threads;
    mutex.lock();
    for (int i = 0; i < kSleepers; ++i) {
      threads.emplace_back([&] {
        const MutexLock lock(mutex);
        ++through;
      });
    }
    // Some rounds unlock while they begin to sleep, others when all of them do.
    if (round % 3 != 0) std::this_thread::sleep_for(microseconds(round % 3 * 500));
    mutex.unlock();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(through, kSleepers);
    EXPECT_TRUE(mutex.try_lock());
    mutex.unlock();
  }
}

TEST(MutexTest, HandsBetweenTwoThatSleepEachTime) {
  Mutex mutex;
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> turns{0};
  const auto run = [&] {
    while (!is_over) {
      const MutexLock lock(mutex);
      ++turns;
      // Longer than the other spins.
      std::this_thread::sleep_for(microseconds(50));
    }
  };
  std::thread first(run);
  std::thread second(run);
  std::this_thread::sleep_for(milliseconds(200));
  is_over = true;
  first.join();
  second.join();
  EXPECT_GT(turns, 20u);
}

// Nobody is served in order; but a thread that takes the lock again at once, all the time, keeps
// nobody out for long.
TEST(MutexTest, OneThatIsGreedyStarvesNobody) {
  Mutex mutex;
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> greedy_turns{0};
  std::thread greedy([&] {
    while (!is_over) {
      const MutexLock lock(mutex);
      ++greedy_turns;
    }
  });
  while (greedy_turns == 0) std::this_thread::yield();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int turns = 0;
  for (; turns < 200 && std::chrono::steady_clock::now() < end; ++turns) {
    const MutexLock lock(mutex);
  }
  is_over = true;
  greedy.join();
  EXPECT_EQ(turns, 200);
}

}  // namespace
}  // namespace gpupool::internal
