// The most that was requested at once: exact with one thread, near enough with several.
#include <algorithm>
#include <random>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"
#include "tests/unit/worker.h"

namespace gpupool {
namespace {

constexpr std::uint64_t kStep = 4 * kMiB;

class PoolPeaksTest : public PoolFixture {
 protected:
  std::uint64_t peak() const { return pool_->stats().peak_requested_bytes; }
  std::uint64_t window_peak() const { return pool_->stats().window_peak_requested_bytes; }
};

TEST_F(PoolPeaksTest, OneThreadsIsExactWhateverItDoes) {
  std::mt19937_64 random(1);
  std::vector<std::pair<void*, std::uint64_t>> blocks;
  std::uint64_t live = 0;
  std::uint64_t highest = 0;
  for (int i = 0; i < 5000; ++i) {
    if (blocks.size() < 40 && random() % 2 == 0) {
      const std::uint64_t bytes = 1 + random() % (random() % 2 == 0 ? 4096 : 8 * kMiB);
      blocks.emplace_back(allocate(bytes, random() % 2 == 0 ? a_ : b_), bytes);
      live += bytes;
      highest = std::max(highest, live);
    } else if (!blocks.empty()) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      live -= blocks.back().second;
      free(blocks.back().first);
      blocks.pop_back();
    }
    if (random() % 50 == 0) {
      ASSERT_EQ(peak(), highest);
    }
    if (random() % 200 == 0) pool_->maintain();
  }
  EXPECT_EQ(peak(), highest);
  for (const auto& [block, bytes] : blocks) free(block);
  EXPECT_EQ(peak(), highest);
}

TEST_F(PoolPeaksTest, StartsAgainFromWhatIs) {
  void* const kept = allocate(3 * kMiB);
  free(allocate(20 * kMiB));
  EXPECT_EQ(peak(), 23 * kMiB);
  pool_->reset_peaks();
  EXPECT_EQ(peak(), 3 * kMiB);
  free(allocate(kMiB));
  EXPECT_EQ(peak(), 4 * kMiB);
  free(kept);
  pool_->reset_peaks();
  EXPECT_EQ(peak(), 0u);
}

TEST_F(PoolPeaksTest, TheWindowIsTheLastMinute) {
  free(allocate(20 * kMiB));
  pool_->maintain();
  for (int second = 1; second < 59; ++second) {
    device_.advance_ns(kSecondNs);
    free(allocate(kMiB));
    pool_->maintain();
    EXPECT_EQ(window_peak(), 20 * kMiB) << second;
  }
  for (int second = 59; second < 63; ++second) {
    device_.advance_ns(kSecondNs);
    free(allocate(kMiB));
    pool_->maintain();
  }
  EXPECT_EQ(window_peak(), kMiB);
  EXPECT_EQ(peak(), 20 * kMiB);
  // A reset concerns the peaks since the start alone.
  free(allocate(5 * kMiB));
  pool_->reset_peaks();
  EXPECT_EQ(window_peak(), 5 * kMiB);
  EXPECT_EQ(peak(), 0u);
}

TEST_F(PoolPeaksTest, SeveralThreadsWithinAStepEach) {
  make_pool({});
  constexpr std::size_t kThreads = 4;
  std::vector<std::unique_ptr<Worker>> threads;
  for (std::size_t i = 0; i < kThreads; ++i) threads.push_back(std::make_unique<Worker>());
  std::mt19937_64 random(2);
  std::vector<std::pair<void*, std::uint64_t>> blocks;
  std::uint64_t live = 0;
  std::uint64_t highest = 0;
  for (int i = 0; i < 3000; ++i) {
    Worker& thread = *threads[random() % kThreads];
    if (blocks.size() < 60 && random() % 100 < 52) {
      const std::uint64_t bytes = 1 + random() % (2 * kMiB);
      thread.run([&] { blocks.emplace_back(allocate(bytes), bytes); });
      live += bytes;
      highest = std::max(highest, live);
    } else if (!blocks.empty()) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      thread.run([&] { free(blocks.back().first); });
      live -= blocks.back().second;
      blocks.pop_back();
    }
    ASSERT_EQ(pool_->stats().live_requested_bytes, live);
    // stats() itself takes the sum: so look seldom.
    if (i % 500 == 499) {
      ASSERT_LE(peak(), highest);
      ASSERT_GE(peak() + (kThreads + 1) * kStep, highest);
    }
  }
  for (const auto& [block, bytes] : blocks) free(block);
}

TEST_F(PoolPeaksTest, SeveralThreadsThatNobodyLooksAt) {
  make_pool({});
  constexpr std::uint64_t kThreads = 3;
  constexpr std::uint64_t kBytes = 300 * kKiB;
  constexpr std::uint64_t kBlocks = 100;
  std::vector<std::unique_ptr<Worker>> threads;
  std::vector<std::vector<void*>> blocks(kThreads);
  for (std::size_t i = 0; i < kThreads; ++i) threads.push_back(std::make_unique<Worker>());
  for (std::uint64_t k = 0; k < kBlocks; ++k) {
    for (std::size_t i = 0; i < kThreads; ++i) {
      threads[i]->run([&] { blocks[i].push_back(allocate(kBytes)); });
    }
  }
  // Freed by others than allocated them.
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads[i]->run([&] {
      for (void* const block : blocks[(i + 1) % kThreads]) free(block);
    });
  }
  constexpr std::uint64_t kHighest = kThreads * kBlocks * kBytes;
  EXPECT_LE(peak(), kHighest);
  EXPECT_GE(peak() + (kThreads + 1) * kStep, kHighest);
}

// A thread may rise unseen by a part of the peak: of the one that is, not of one that was reset.
TEST_F(PoolPeaksTest, AfterAResetStepsAreThoseOfTheNewPeak) {
  SimulatedBackend device({.capacity_bytes = 160 * kGiB, .charge_costs = false});
  const auto pool = Pool::create(device, {}).value();
  const StreamRef stream = pool->adopt_stream(device.create_stream()).value();
  Worker other;
  const auto on_both = [&](auto work) {
    work();
    other.run(work);
  };
  on_both([&] { pool->deallocate(pool->allocate(512, stream).value(), stream); });
  on_both([&] { pool->deallocate(pool->allocate(100 * kGiB, stream).value(), stream); });
  pool->reset_peaks();
  std::vector<void*> blocks;
  on_both([&] {
    for (int i = 0; i < 50; ++i) blocks.push_back(pool->allocate(kMiB, stream).value());
  });
  for (void* const block : blocks) EXPECT_TRUE(pool->deallocate(block, stream));
  constexpr std::uint64_t kShards = 3;
  EXPECT_GE(pool->stats().peak_requested_bytes + 2 * kShards * kStep, 100 * kMiB);
}

TEST_F(PoolPeaksTest, AThreadThatIsAloneAgainIsExactAgain) {
  make_pool({});
  {
    Worker other;
    void* block = nullptr;
    other.run([&] { block = allocate(10 * kMiB); });
    free(block);
  }
  pool_->reset_peaks();
  for (std::uint64_t bytes = 1; bytes < 3000; bytes += 100) {
    free(allocate(bytes));
    ASSERT_EQ(peak(), bytes);
  }
  // Another one comes and goes; what this one had by then is not forgotten.
  void* const block = allocate(7777);
  free(allocate(kMiB));
  {
    Worker other;
    other.run([&] { free(allocate(512)); });
    EXPECT_EQ(peak(), kMiB + 7777);
  }
  EXPECT_EQ(peak(), kMiB + 7777);
  free(block);
}

}  // namespace
}  // namespace gpupool
