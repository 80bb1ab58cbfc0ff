// Threads that come and go: what they had is free again, what they counted stays.
#include <pthread.h>

#include <atomic>
#include <thread>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"
#include "tests/unit/worker.h"

namespace gpupool {
namespace {

constexpr std::array<std::uint64_t, 4> kThreadSizes = {512, 20 * kKiB, 100 * kKiB, kMiB};

class PoolThreadEndTest : public PoolFixture {
 protected:
  std::uint64_t cached() const { return pool_->stats().cached_bytes; }
  std::uint64_t hits_of_caches() const { return hits(Tier::cache); }

  /// Whether a request for all there is gets it.
  bool can_have_all(std::uint64_t bytes, StreamRef stream) {
    settle();
    const auto all = pool_->allocate(bytes, stream);
    if (!all.ok()) return false;
    free(all.value(), stream);
    settle();
    return true;
  }
};

TEST_F(PoolThreadEndTest, WhatAThreadHadInItsCachesIsFreeAgain) {
  make_pool_of(64 * kMiB);
  free(allocate(kMiB));
  const std::uint64_t before = cached();
  for (const std::uint64_t bytes : kThreadSizes) {
    std::thread([&] {
      for (const StreamRef stream : {a_, b_}) {
        void* const first = allocate(bytes, stream);
        free(allocate(bytes, stream), stream);
        free(first, stream);
      }
      EXPECT_GT(cached(), before);
    }).join();
    EXPECT_EQ(cached(), before);
  }
  EXPECT_TRUE(can_have_all(64 * kMiB, a_));
}

TEST_F(PoolThreadEndTest, WhatItHandedToOthersOfAStreamWaitsForThemAndThenGoesBack) {
  make_pool({});
  for (const std::uint64_t bytes : kThreadSizes) {
    std::vector<void*> blocks;
    for (int i = 0; i < 200; ++i) blocks.push_back(allocate(bytes));
    settle();
    std::thread([&] {
      for (void* const block : blocks) free(block);
    }).join();
    EXPECT_EQ(pool_->stats().thread_caches, 1u);
    EXPECT_GT(cached(), 0u) << bytes;
    EXPECT_LE(cached(), 4 * kMiB + 16 * kMiB);
    const std::uint64_t hits = hits_of_caches();
    void* const block = allocate(bytes);
    EXPECT_EQ(hits_of_caches(), hits + 1);
    free(block);
    for (int i = 0; i < 100; ++i) {
      device_.advance_ns(100'000'000);
      pool_->maintain();
    }
    EXPECT_EQ(cached(), 0u);
  }
}

TEST_F(PoolThreadEndTest, ThreadsInARowLeaveNothingBehind) {
  constexpr int kThreads = 400;
  std::uint64_t held = 0;
  std::uint64_t metadata = 0;
  std::uint64_t most = 0;
  for (int i = 0; i < kThreads; ++i) {
    std::thread([&] {
      for (const std::uint64_t bytes : kThreadSizes) {
        void* const first = allocate(bytes, a_);
        void* const second = allocate(bytes, b_);
        free(first, b_);
        free(second, a_);
      }
    }).join();
    const StatsV1 stats = pool_->stats();
    EXPECT_EQ(stats.thread_caches, 0u);
    EXPECT_EQ(stats.cached_bytes, 0u);
    EXPECT_EQ(stats.live_blocks, 0u);
    EXPECT_EQ(stats.requests, static_cast<std::uint64_t>(i + 1) * 8);
    EXPECT_EQ(stats.frees, stats.requests);
    // The next ones find their memory in other places than the first, which may take what caches
    // may hold more of the arena's end, once for all of them. Then nothing changes any more.
    if (i == 0) most = stats.held_bytes + PoolOptions().cache_large_bytes;
    EXPECT_LE(stats.held_bytes, most);
    EXPECT_LT(stats.metadata_bytes, 64 * kKiB);
    if (i < kThreads / 2) held = stats.held_bytes;
    if (i < kThreads / 2) metadata = stats.metadata_bytes;
    EXPECT_EQ(stats.held_bytes, held);
    EXPECT_EQ(stats.metadata_bytes, metadata);
  }
  EXPECT_EQ(pool_->trim(0), held);
}

/// Frees what it is given when its thread ends.
struct Keeper {
  ~Keeper() {
    for (void* const block : blocks) {
      if (!pool->deallocate(block, stream)) ++*refused;
    }
    if (pool != nullptr && also_allocates) {
      const auto block = pool->allocate(kMiB, stream);
      if (!block.ok() || !pool->deallocate(block.value(), stream)) ++*refused;
    }
  }
  Pool* pool = nullptr;
  StreamRef stream;
  std::vector<void*> blocks;
  std::atomic<int>* refused = nullptr;
  bool also_allocates = false;
};

TEST_F(PoolThreadEndTest, ObjectsOfTheThreadMayFreeInTheirDestructors) {
  std::atomic<int> refused{0};
  for (const bool is_made_first : {true, false}) {
    std::thread([&] {
      if (!is_made_first) free(allocate(512));
      thread_local Keeper keeper;
      keeper.pool = pool_.get();
      keeper.stream = a_;
      keeper.refused = &refused;
      keeper.also_allocates = true;
      for (const std::uint64_t bytes : kThreadSizes) {
        for (int i = 0; i < 20; ++i) keeper.blocks.push_back(allocate(bytes));
      }
    }).join();
    EXPECT_EQ(refused, 0);
    EXPECT_EQ(pool_->stats().live_blocks, 0u);
    EXPECT_EQ(pool_->stats().thread_caches, 0u);
    settle();
    EXPECT_EQ(cached(), 0u);  // what was handed over waits for others of the stream
  }
}

TEST_F(PoolThreadEndTest, SoMayWhatComesAfterTheThreadHasGivenItsCachesBack) {
  // Keys of a higher number are destroyed after the pool's, in glibc: such a thread has no cache.
  std::atomic<int> refused{0};
  Keeper keeper;
  keeper.pool = pool_.get();
  keeper.stream = a_;
  keeper.refused = &refused;
  keeper.also_allocates = true;
  for (const std::uint64_t bytes : kThreadSizes) keeper.blocks.push_back(allocate(bytes));
  pthread_key_t key{};
  ASSERT_EQ(::pthread_key_create(&key, [](void* value) { static_cast<Keeper*>(value)->~Keeper(); }),
            0);
  std::thread([&] {
    free(allocate(512));
    auto* const last = new (::operator new(sizeof(Keeper))) Keeper(keeper);
    ASSERT_EQ(::pthread_setspecific(key, last), 0);
  }).join();
  ::pthread_key_delete(key);
  keeper.blocks.clear();
  keeper.pool = nullptr;
  EXPECT_EQ(refused, 0);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.live_blocks, 0u);
  EXPECT_EQ(stats.requests, kThreadSizes.size() + 2);
  EXPECT_EQ(stats.frees, kThreadSizes.size() + 2);
  EXPECT_EQ(stats.thread_caches, 1u);  // of this thread
}

TEST_F(PoolThreadEndTest, AThreadOutlivesThePoolsItUsed) {
  Worker worker;
  for (int i = 0; i < 10; ++i) {
    make_pool_of(64 * kMiB);
    worker.run([&] { free(allocate(kMiB)); });
  }
  end_pool();
  // Its end is of no interest to anybody by now.
}

TEST_F(PoolThreadEndTest, ManyThreadsEndWhileThePoolIsAtWork) {
  constexpr int kThreads = 16;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const StreamRef stream = i % 2 == 0 ? a_ : b_;
        for (const std::uint64_t bytes : kThreadSizes) free(allocate(bytes, stream), stream);
      });
    }
    pool_->drain_caches();
    pool_->maintain();
    pool_->trim(0);
    for (std::thread& thread : threads) thread.join();
  }
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.requests, 20u * kThreads * kThreadSizes.size());
  EXPECT_EQ(stats.frees, stats.requests);
  EXPECT_EQ(stats.cached_bytes, 0u);
}

TEST_F(PoolThreadEndTest, AThreadsOwnStreamEndsWithItAndItsWorkIsWaitedFor) {
  PoolOptions options;
  options.capacity = 64 * kMiB;
  options.runtime.out_of_memory.wait_ns = 0;
  make_pool(options);
  void* block = nullptr;
  std::thread([&] {
    block = pool_->allocate(64 * kMiB, per_thread_stream()).value();
    SimulatedWork timed;
    timed.address = reinterpret_cast<DeviceAddress>(block);
    timed.bytes = 64 * kMiB;
    timed.duration_ns = 1'000'000'000;
    ASSERT_TRUE(device_.launch(per_thread_stream(), timed).ok());
    EXPECT_TRUE(pool_->deallocate(block, per_thread_stream()));
  }).join();
  EXPECT_FALSE(can_have_all(64 * kMiB, a_));
  device_.advance_ns(2'000'000'000);
  EXPECT_TRUE(can_have_all(64 * kMiB, a_));
  EXPECT_EQ(pool_->stats().streams, 2u);
}

// While a request is with the driver, which refuses it, what would serve it comes back from a cache
// by another way than the request's own look there.
TEST_F(PoolThreadEndTest, WhatAThreadLeavesServesARequestThatTheDriverRefuses) {
  constexpr std::size_t kBlocks = 4;
  auto owner = std::make_unique<Worker>();
  owner->run([&] {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < kBlocks; ++i) blocks.push_back(allocate(2 * kMiB));
    // Work that goes on, so that nothing becomes complete which would be looked at anyway.
    EXPECT_TRUE(work(raw_a_, blocks[0]));
    for (void* const block : blocks) free(block);
  });
  const StatsV1 stats = pool_->stats();
  ASSERT_EQ(stats.cached_bytes, kBlocks * 2 * kMiB);
  ASSERT_TRUE(device_.set_taken_by_others(1024 * kMiB - stats.held_bytes).ok());
  backend_.before(BackendCall::create, [&] { owner.reset(); });
  const auto block = pool_->allocate(kBlocks * 2 * kMiB, a_);
  backend_.clear();
  EXPECT_EQ(owner, nullptr);
  ASSERT_TRUE(block.ok()) << pool_->last_failure().text();
  free(block.value());
}

}  // namespace
}  // namespace gpupool
