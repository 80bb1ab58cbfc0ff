// What the statistics say while threads run: no number that cannot be, no counter that falls, a
// peak that was.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

constexpr std::chrono::milliseconds kLong{800};

class SnapshotsTest : public testing::Test {
 protected:
  SnapshotsTest() { pool_ = Pool::create(device_, {}).value(); }
  void TearDown() override {
    device_.complete_all();
    pool_->check_invariants();
    pool_.reset();
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
  }

  /// Runs `program(stream, is_over)` on a thread that made the stream itself: whoever only looks
  /// has no part in the pool.
  template <class F>
  std::thread start(F program) {
    return std::thread([this, program] {
      const StreamRef stream = pool_->adopt_stream(device_.create_stream()).value();
      program(stream, is_over_);
    });
  }
  template <class F>
  void look(F check) {
    const auto end = std::chrono::steady_clock::now() + kLong;
    for (std::uint64_t round = 0; std::chrono::steady_clock::now() < end; ++round) {
      check(pool_->stats());
      if (round % 64 == 63) pool_->maintain();
    }
  }
  void expect(bool is_right, const std::string& text) {
    if (!is_right && wrong_.insert({text, 0}).second) ADD_FAILURE() << text;
  }

  SimulatedBackend device_{{.capacity_bytes = 4096 * kMiB, .charge_costs = false}};
  std::unique_ptr<Pool> pool_;
  std::atomic<bool> is_over_{false};
  std::map<std::string, int> wrong_;
};

TEST_F(SnapshotsTest, ALoneThreadsPeakIsExactWhoeverLooks) {
  for (const std::uint64_t bytes : {8 * kKiB, kMiB}) {
    pool_ = Pool::create(device_, {}).value();
    is_over_ = false;
    std::thread thread = start([&](StreamRef stream, const std::atomic<bool>& is_over) {
      while (!is_over) {
        void* const block = pool_->allocate(bytes, stream).value();
        EXPECT_TRUE(pool_->deallocate(block, stream));
      }
    });
    std::uint64_t peak = 0;
    look([&](const StatsV1& stats) {
      peak = std::max({peak, stats.peak_requested_bytes, stats.window_peak_requested_bytes});
      expect(stats.live_requested_bytes <= bytes, "live bytes that nobody had");
      expect(stats.live_blocks <= 1, "live blocks that nobody had");
    });
    is_over_ = true;
    thread.join();
    EXPECT_EQ(peak, bytes);
    EXPECT_EQ(pool_->stats().peak_requested_bytes, bytes);
    EXPECT_EQ(pool_->stats().window_peak_requested_bytes, bytes);
  }
}

TEST_F(SnapshotsTest, NorIsLessLiveThanAThreadKeeps) {
  constexpr std::uint64_t kBlocks = 10;
  constexpr std::uint64_t kBytes = 100 * kKiB;
  std::atomic<bool> has_blocks{false};
  std::thread thread = start([&](StreamRef stream, const std::atomic<bool>& is_over) {
    std::vector<void*> blocks;
    for (std::uint64_t i = 0; i < kBlocks; ++i) {
      blocks.push_back(pool_->allocate(kBytes, stream).value());
    }
    has_blocks = true;
    while (!is_over) pool_->deallocate(pool_->allocate(kBytes, stream).value(), stream);
    for (void* const block : blocks) EXPECT_TRUE(pool_->deallocate(block, stream));
  });
  while (!has_blocks) std::this_thread::yield();
  look([&](const StatsV1& stats) {
    expect(stats.live_requested_bytes >= kBlocks * kBytes, "fewer live bytes than there are");
    expect(stats.live_blocks >= kBlocks, "fewer live blocks than there are");
  });
  is_over_ = true;
  thread.join();
}

// Of one bin a moment is seen that was: not one block more than there were.
TEST_F(SnapshotsTest, NoMoreOfOneSizeAreLiveThanThreadsEverHad) {
  constexpr std::uint64_t kThreads = 3;
  constexpr std::uint64_t kBlocks = 8;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.push_back(start([&, i](StreamRef stream, const std::atomic<bool>& is_over) {
      const std::uint64_t bytes = (i + 1) * 10 * kKiB;
      std::mt19937 random(1);
      std::vector<void*> blocks;
      while (!is_over) {
        if (blocks.size() < kBlocks && random() % 2 == 0) {
          blocks.push_back(pool_->allocate(bytes, stream).value());
        } else if (!blocks.empty()) {
          EXPECT_TRUE(pool_->deallocate(blocks.back(), stream));
          blocks.pop_back();
        }
      }
      for (void* const block : blocks) EXPECT_TRUE(pool_->deallocate(block, stream));
    }));
  }
  look([&](const StatsV1& stats) {
    expect(stats.live_blocks <= kThreads * kBlocks, "live blocks that nobody had");
  });
  is_over_ = true;
  for (std::thread& thread : threads) thread.join();
}

// Several threads, each with blocks of its own: of each shard's bytes a moment is seen that was,
// and so of each of its bins. Where whoever looks is stopped between two bins, blocks of both may
// be seen that were there one after the other.
TEST_F(SnapshotsTest, NoMoreIsLiveThanThreadsEverHad) {
  constexpr std::uint64_t kThreads = 3;
  constexpr std::uint64_t kBlocks = 8;
  constexpr std::uint64_t kBytes = 64 * kKiB;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.push_back(start([&](StreamRef stream, const std::atomic<bool>& is_over) {
      std::mt19937 random(1);
      std::vector<void*> blocks;
      AllocationRequest request;
      while (!is_over) {
        if (blocks.size() < kBlocks && random() % 2 == 0) {
          request.bytes = 1 + random() % kBytes;
          request.tag = Tag(random() % 2);
          blocks.push_back(pool_->allocate(request, stream).value());
        } else if (!blocks.empty()) {
          EXPECT_TRUE(pool_->deallocate(blocks.back(), stream));
          blocks.pop_back();
        }
      }
      for (void* const block : blocks) EXPECT_TRUE(pool_->deallocate(block, stream));
    }));
  }
  look([&](const StatsV1& stats) {
    expect(stats.live_blocks <= 2 * kThreads * kBlocks, "live blocks that nobody had");
    expect(stats.live_requested_bytes <= kThreads * kBlocks * kBytes, "live bytes nobody had");
    expect(stats.peak_requested_bytes <= kThreads * kBlocks * kBytes, "a peak that never was");
    for (const std::uint64_t bytes : stats.tag_live_bytes) {
      expect(bytes <= kThreads * kBlocks * kBytes, "bytes of a tag that nobody had");
    }
  });
  is_over_ = true;
  for (std::thread& thread : threads) thread.join();
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.live_blocks, 0u);
  EXPECT_EQ(stats.live_requested_bytes, 0u);
  EXPECT_EQ(stats.tag_live_bytes[0], 0u);
  EXPECT_EQ(stats.tag_live_bytes[1], 0u);
}

// What one thread allocates and another frees: sums may be of different moments, but no number
// goes below zero.
TEST_F(SnapshotsTest, WhatGoesFromThreadToThreadIsNeverLessThanNothing) {
  constexpr std::uint64_t kBytes = 256 * kKiB;
  std::atomic<void*> slot{nullptr};
  AllocationRequest request;
  request.bytes = kBytes;
  request.tag = Tag(3);
  std::thread producer = start([&](StreamRef stream, const std::atomic<bool>& is_over) {
    while (!is_over) {
      void* const block = pool_->allocate(request, stream).value();
      void* none = nullptr;
      while (!slot.compare_exchange_weak(none, block) && !is_over) none = nullptr;
      if (slot != block && is_over) pool_->deallocate(block, stream);
    }
  });
  std::thread consumer = start([&](StreamRef stream, const std::atomic<bool>& is_over) {
    while (!is_over) {
      if (void* const block = slot.exchange(nullptr)) pool_->deallocate(block, stream);
    }
  });
  constexpr std::uint64_t kImpossible = std::uint64_t{1} << 40;
  look([&](const StatsV1& stats) {
    expect(stats.live_blocks < kImpossible, "live blocks below zero");
    expect(stats.live_requested_bytes < kImpossible, "live bytes below zero");
    expect(stats.tag_live_bytes[3] < kImpossible, "bytes of a tag below zero");
    expect(stats.waste_bytes < kImpossible, "waste below zero");
    expect(stats.cached_bytes < kImpossible, "cached below zero");
  });
  is_over_ = true;
  producer.join();
  consumer.join();
}

// Without caches there are no hits of theirs: what is seen of a request is all of it, or nothing.
TEST_F(SnapshotsTest, ARequestCountsTogetherWithItsTier) {
  PoolOptions options;
  options.cache_small_bytes = 0;
  options.cache_large_bytes = 0;
  pool_ = Pool::create(device_, options).value();
  std::vector<std::thread> threads;
  for (const std::uint64_t bytes : {512 * std::uint64_t{1}, 300 * kKiB}) {
    threads.push_back(start([&, bytes](StreamRef stream, const std::atomic<bool>& is_over) {
      while (!is_over) {
        void* const block = pool_->allocate(bytes, stream).value();
        EXPECT_TRUE(pool_->deallocate(block, stream));
      }
    }));
  }
  look([&](const StatsV1& stats) {
    const std::uint64_t hits = stats.hits_by_tier[static_cast<std::size_t>(Tier::cache)];
    expect(hits == 0, "a hit of a cache");
  });
  is_over_ = true;
  for (std::thread& thread : threads) thread.join();
}

/// Everything that only goes up.
std::vector<std::pair<std::string, std::uint64_t>> counters_of(const StatsV1& stats) {
  std::vector<std::pair<std::string, std::uint64_t>> counters = {
      {"requests", stats.requests},
      {"hits", stats.hits},
      {"misses", stats.misses},
      {"failures", stats.failures},
      {"frees", stats.frees},
      {"requested_bytes_total", stats.requested_bytes_total},
      {"driver_calls", stats.driver_calls},
      {"retries", stats.retries},
      {"epochs_closed", stats.epochs_closed},
      {"maintain_steps", stats.maintain_steps},
      {"peak_requested_bytes", stats.peak_requested_bytes},
      {"peak_held_bytes", stats.peak_held_bytes}};
  for (std::size_t i = 0; i < kTierCount; ++i) {
    counters.emplace_back("hits of tier " + std::to_string(i), stats.hits_by_tier[i]);
    for (std::size_t k = 0; k < kDurationBuckets; ++k) {
      counters.emplace_back("durations", stats.allocation_duration[i].count[k]);
    }
  }
  for (std::size_t i = 0; i < kSizeBuckets; ++i) {
    counters.emplace_back("requests of size " + std::to_string(i), stats.requests_by_size[i]);
  }
  return counters;
}

TEST_F(SnapshotsTest, NoCounterEverFallsWhileThreadsRunAndEnd) {
  const auto program = [&](StreamRef stream, std::uint64_t seed, std::uint64_t rounds,
                           const std::atomic<bool>& is_over) {
    std::mt19937_64 random(seed);
    std::vector<void*> blocks;
    for (std::uint64_t i = 0; i < rounds && !is_over; ++i) {
      if (blocks.size() < 50 && random() % 2 == 0) {
        AllocationRequest request;
        request.bytes = 1 + random() % (random() % 2 == 0 ? 64 * kKiB : 2 * kMiB);
        if (random() % 4 == 0) request.alignment = 4096;
        if (const auto block = pool_->allocate(request, stream); block.ok()) {
          blocks.push_back(block.value());
        }
      } else if (!blocks.empty()) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        EXPECT_TRUE(pool_->deallocate(blocks.back(), stream));
        blocks.pop_back();
      }
      if (random() % 512 == 0) pool_->drain_caches();
    }
    for (void* const block : blocks) EXPECT_TRUE(pool_->deallocate(block, stream));
  };
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 2; ++i) {
    threads.push_back(start([&, i](StreamRef stream, const std::atomic<bool>& is_over) {
      program(stream, i, ~std::uint64_t{0}, is_over);
    }));
  }
  threads.push_back(start([&](StreamRef stream, const std::atomic<bool>& is_over) {
    for (std::uint64_t i = 0; !is_over; ++i) {
      std::thread([&] { program(stream, i, 200, is_over); }).join();
    }
  }));
  StatsV1 last = pool_->stats();
  look([&](const StatsV1& stats) {
    const auto before = counters_of(last);
    const auto now = counters_of(stats);
    for (std::size_t i = 0; i < now.size(); ++i) {
      expect(now[i].second >= before[i].second, now[i].first + " fell");
    }
    const auto sum = [](const auto& values) {
      return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
    };
    expect(stats.requests == stats.hits + stats.misses, "requests are not hits and misses");
    expect(stats.hits == sum(stats.hits_by_tier), "hits are not those of the tiers");
    expect(stats.requests == sum(stats.requests_by_size), "requests are not those of all sizes");
    expect(stats.held_bytes == stats.live_requested_bytes + stats.waste_bytes + stats.cached_bytes +
                                   stats.pending_bytes + stats.free_bytes,
           "held is not its parts");
    last = stats;
  });
  is_over_ = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gpupool
