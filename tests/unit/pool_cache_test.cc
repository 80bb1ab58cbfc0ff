// Caches of several threads: claimed when memory is needed, ended with their streams, bounded.
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "base/hot_slot.h"
#include "cache/thread_caches.h"
#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"
#include "tests/unit/worker.h"

namespace gpupool {
namespace {

constexpr std::array<std::uint64_t, 4> kCachedSizes = {512, 20 * kKiB, 100 * kKiB, kMiB};

class PoolCacheTest : public PoolFixture {
 protected:
  void SetUp() override { make_pool_of(64 * kMiB); }

  /// Blocks of `bytes`, so that they are in the calling thread's cache of `stream` afterwards.
  void fill(std::uint64_t bytes, int blocks, StreamRef stream) {
    std::vector<void*> held;
    for (int i = 0; i < blocks; ++i) held.push_back(allocate(bytes, stream));
    for (void* const block : held) free(block, stream);
  }
  std::uint64_t cached() const { return pool_->stats().cached_bytes; }
  std::uint64_t caches() const { return pool_->stats().thread_caches; }
};

TEST_F(PoolCacheTest, ASleepingThreadsBlocksServeOthersWhenMemoryIsNeeded) {
  for (const std::uint64_t bytes : kCachedSizes) {
    make_pool_of(64 * kMiB);
    Worker sleeper;
    sleeper.run([&] { fill(bytes, 16, b_); });
    EXPECT_GT(cached(), 0u);
    void* const all = allocate(64 * kMiB);  // all there is
    EXPECT_EQ(cached(), 0u);
    EXPECT_EQ(pool_->stats().failures, 0u);
    free(all);
    // The sleeper wakes and goes on, with a cache that is its own again.
    sleeper.run([&] {
      fill(bytes, 4, b_);
      void* const block = allocate(bytes, b_);
      free(block, b_);
      EXPECT_EQ(allocate(bytes, b_), block);
      free(block, b_);
    });
    pool_->check_invariants();
  }
}

TEST_F(PoolCacheTest, WhatWasClaimedKeepsItsTickets) {
  for (const std::uint64_t bytes : kCachedSizes) {
    make_pool_of(64 * kMiB);
    Worker sleeper;
    void* block = nullptr;
    sleeper.run([&] {
      block = allocate(bytes, b_);
      EXPECT_TRUE(work(raw_b_, block, bytes));
      free(block, b_);
    });
    pool_->drain_caches();
    EXPECT_EQ(cached(), 0u);
    EXPECT_GT(pool_->stats().pending_bytes, 0u);
    EXPECT_FALSE(pool_->allocate(64 * kMiB, a_).ok());
    for (int i = 0; i < 8; ++i) {
      void* const other = allocate(bytes, a_);
      EXPECT_TRUE(work(raw_a_, other, bytes)) << device_.last_violation();
      free(other, a_);
    }
    device_.complete_all();
    settle();
    void* const all = allocate(64 * kMiB);
    free(all);
  }
}

// The owner may have been stopped by the scheduler inside its cache: nobody waits for it as long as
// there is another way, and nobody fails on its account.
TEST_F(PoolCacheTest, AnOwnerThatIsStoppedInsideIsWaitedForBeforeARequestFails) {
  Worker owner;
  owner.run([&] { fill(kMiB, 8, b_); });
  std::atomic<bool> is_inside{false};
  owner.start([&] {
    internal::ThreadCache& cache = *internal::hot_slot.cache;
    ASSERT_TRUE(cache.claim.enter());
    is_inside = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cache.claim.leave();
  });
  while (!is_inside) std::this_thread::yield();
  void* const some = allocate(20 * kMiB);  // there is another way
  free(some);
  const auto all = pool_->allocate(64 * kMiB, a_);
  ASSERT_TRUE(all.ok()) << pool_->last_failure().text();
  free(all.value());
  owner.wait();
}

// Of many busy threads some are always inside: to wait until none is would be to wait for ever.
TEST_F(PoolCacheTest, WhoWaitsForAnOwnerDoesNotWaitForOneThatComesInsideMeanwhile) {
  Worker first;
  Worker second;
  void* held = nullptr;
  first.run([&] { fill(kMiB, 8, b_); });
  second.run([&] {
    held = allocate(512, b_);
    fill(512, 4, b_);
  });
  const std::uint64_t of_both = cached();
  const auto stay_inside = [](std::atomic<bool>& is_inside, const auto& may_leave) {
    internal::ThreadCache& cache = *internal::hot_slot.cache;
    ASSERT_TRUE(cache.claim.enter());
    is_inside = true;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (!may_leave() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    cache.claim.leave();
  };
  const auto wait_until = [](const auto& is_so) {
    while (!is_so()) std::this_thread::yield();
  };
  std::atomic<bool> first_is_inside{false};
  std::atomic<bool> second_is_inside{false};
  std::atomic<bool> is_over{false};
  first.start([&] { stay_inside(first_is_inside, [&] { return second_is_inside.load(); }); });
  wait_until([&] { return first_is_inside.load(); });
  Worker drainer;
  drainer.start([&] {
    pool_->drain_caches();
    is_over = true;
  });
  // The second's blocks are gone: its cache was empty once, since the call began.
  wait_until([&] { return cached() < of_both; });
  second.start([&] {
    free(held, b_);
    stay_inside(second_is_inside, [&] { return is_over.load(); });
    EXPECT_TRUE(is_over);
  });
  drainer.wait();
  first.wait();
  second.wait();
  EXPECT_GT(cached(), 0u);
}

TEST_F(PoolCacheTest, AnOwnerThatIsWaitedForIsNotLetInAgainBeforeItsCacheIsEmpty) {
  Worker owner;
  owner.run([&] { fill(kMiB, 8, b_); });
  std::atomic<bool> is_inside{false};
  owner.start([&] {
    internal::Claim& claim = internal::hot_slot.cache->claim;
    ASSERT_TRUE(claim.enter());
    is_inside = true;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (!claim.is_shut() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_TRUE(claim.is_shut());
    claim.leave();
  });
  while (!is_inside) std::this_thread::yield();
  EXPECT_EQ(pool_->drain_caches(), 8 * kMiB);
  owner.wait();
  owner.run([&] {
    EXPECT_FALSE(internal::hot_slot.cache->claim.is_shut());
    fill(kMiB, 2, b_);
  });
  EXPECT_EQ(cached(), 2 * kMiB);
}

TEST_F(PoolCacheTest, NobodyElseWaitsMeanwhile) {
  Worker owner;
  owner.run([&] { fill(kMiB, 8, b_); });
  std::atomic<bool> is_inside{false};
  std::atomic<bool> may_leave{false};
  owner.start([&] {
    internal::ThreadCache& cache = *internal::hot_slot.cache;
    ASSERT_TRUE(cache.claim.enter());
    is_inside = true;
    while (!may_leave) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    cache.claim.leave();
  });
  while (!is_inside) std::this_thread::yield();
  Worker asker;
  asker.start([&] {
    const auto all = pool_->allocate(64 * kMiB, a_);
    EXPECT_TRUE(all.ok()) << pool_->last_failure().text();
    if (all.ok()) free(all.value());
  });
  // Each takes the pool's lock; the owner leaves only when all have had it.
  for (int i = 0; i < 20; ++i) {
    pool_->stats();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  may_leave = true;
  owner.wait();
  asker.wait();
}

TEST_F(PoolCacheTest, AStreamThatEndsEndsEveryThreadsCacheOfIt) {
  for (const std::uint64_t bytes : kCachedSizes) {
    make_pool_of(64 * kMiB);
    Worker other;
    void* held = nullptr;
    other.run([&] {
      held = allocate(bytes, b_);
      fill(bytes, 4, b_);
    });
    fill(bytes, 4, b_);
    EXPECT_TRUE(pool_->release_stream(b_));
    EXPECT_EQ(cached(), 0u);
    other.run([&] {
      EXPECT_EQ(pool_->allocate(bytes, b_).error(), Error::invalid_argument);
      EXPECT_FALSE(pool_->deallocate(held, b_));
      EXPECT_FALSE(pool_->deallocate(held, bytes, b_));
    });
    EXPECT_EQ(count(Misuse::unknown_stream), 3u);
    EXPECT_EQ(pool_->find_size(held).value(), bytes);  // nothing is lost
    other.run([&] { free(held, a_); });
    device_.complete_all();
    settle();
    void* const all = allocate(64 * kMiB);
    free(all);
  }
}

// While a request has the driver grow the arena its stream ends, and another gets its index and has
// memory with unfinished work there: that is not the first one's to take.
TEST_F(PoolCacheTest, AStreamThatEndsWhileItsRequestGrowsGetsNothing) {
  free(allocate(4 * kMiB, b_), b_);
  settle();
  settle();
  bool has_ended = false;
  RawStream next_raw = nullptr;
  StreamRef next;
  backend_.before(BackendCall::map, [&] {
    if (std::exchange(has_ended, true)) return;
    EXPECT_TRUE(pool_->release_stream(a_));
    next_raw = device_.create_stream();
    next = pool_->adopt_stream(next_raw).value();
    void* const block = allocate(4 * kMiB, next);
    EXPECT_TRUE(work(next_raw, block, 4 * kMiB));
    free(block, next);
    pool_->drain_caches();
  });
  const auto block = pool_->allocate(6 * kMiB, a_);
  backend_.clear();
  EXPECT_TRUE(has_ended);
  EXPECT_TRUE(!block.ok() || work(raw_a_, block.value(), 6 * kMiB)) << device_.last_violation();
  ASSERT_FALSE(block.ok());
  EXPECT_EQ(block.error(), Error::invalid_argument);
  EXPECT_EQ(count(Misuse::unknown_stream), 1u);
  EXPECT_EQ(pool_->stats().failures, 1u);
}

TEST_F(PoolCacheTest, AnEndedStreamsIndexServesItsSuccessorWithACacheOfItsOwn) {
  Worker other;
  StreamRef stream = b_;
  RawStream raw = raw_b_;
  for (int i = 0; i < 100; ++i) {
    other.run([&] { fill(kMiB, 2, stream); });
    fill(512, 2, stream);
    EXPECT_TRUE(pool_->release_stream(stream));
    device_.destroy_stream(raw);
    settle();
    raw = device_.create_stream();
    stream = pool_->adopt_stream(raw).value();
    // What the other has at hand is of the stream before.
    other.run([&] {
      void* const block = allocate(kMiB, stream);
      EXPECT_TRUE(work(raw, block, kMiB));
      device_.complete_all();
      free(block, stream);
    });
  }
  EXPECT_LE(caches(), 6u);
  EXPECT_EQ(pool_->stats().streams, 2u);
  pool_->check_invariants();
}

TEST_F(PoolCacheTest, WhatNobodyTookForAWhileGoesBack) {
  Worker sleeper;
  for (const std::uint64_t bytes : kCachedSizes) {
    sleeper.run([&] { fill(bytes, 8, b_); });
    fill(bytes, 8, a_);
  }
  EXPECT_GT(cached(), 0u);
  pool_->maintain();
  for (int i = 0; i < 100; ++i) {
    device_.advance_ns(100'000'000);
    pool_->maintain();
  }
  EXPECT_EQ(cached(), 0u);
}

TEST_F(PoolCacheTest, WhatIsInUseStays) {
  void* const block = allocate(kMiB);
  free(block);
  for (int i = 0; i < 100; ++i) {
    device_.advance_ns(100'000'000);
    pool_->maintain();
    EXPECT_EQ(allocate(kMiB), block);
    free(block);
  }
  EXPECT_EQ(hits(Tier::cache), 100u);
}

TEST_F(PoolCacheTest, AThreadThatOnlyFreesServesTheOneThatOnlyAllocates) {
  make_pool({});
  for (const std::uint64_t bytes : kCachedSizes) {
    Worker consumer;
    std::uint64_t held = 0;
    for (int round = 0; round < 60; ++round) {
      std::vector<void*> blocks;
      for (int i = 0; i < 20; ++i) blocks.push_back(allocate(bytes));
      consumer.run([&] {
        for (void* const block : blocks) free(block);
      });
      if (round == 30) held = pool_->stats().held_bytes;
    }
    // What goes round comes back: nothing grows once it has.
    EXPECT_EQ(pool_->stats().held_bytes, held) << bytes;
    pool_->trim(0);
  }
}

TEST_F(PoolCacheTest, WhatIsHandedOverIsForOthersOfTheSameStreamAlone) {
  for (const std::uint64_t bytes : kCachedSizes) {
    make_pool({});
    std::vector<void*> blocks;
    for (int i = 0; i < 200; ++i) {
      blocks.push_back(allocate(bytes, b_));
      EXPECT_TRUE(work(raw_b_, blocks.back(), bytes));
    }
    Worker consumer;
    consumer.run([&] {
      for (void* const block : blocks) free(block, b_);
    });
    // Those of the stream get some without the shared tiers, others wait for the work.
    std::vector<void*> others;
    const std::uint64_t before = hits(Tier::cache);
    others.push_back(allocate(bytes, b_));
    EXPECT_EQ(hits(Tier::cache), before + 1);
    for (int i = 0; i < 200; ++i) {
      others.push_back(allocate(bytes, a_));
      ASSERT_TRUE(work(raw_a_, others.back(), bytes)) << device_.last_violation();
    }
    device_.complete_all();
    for (void* const block : others) free(block, a_);
  }
}

TEST_F(PoolCacheTest, MoreCachesThanThereCanBe) {
  PoolOptions options;
  options.capacity = 512 * kMiB;
  make_pool(options);
  constexpr std::size_t kStreams = 256;
  std::vector<StreamRef> streams;
  for (std::size_t i = 0; i < kStreams; ++i) {
    streams.push_back(pool_->adopt_stream(device_.create_stream()).value());
  }
  std::vector<std::unique_ptr<Worker>> threads;
  const std::size_t most = internal::ThreadCaches::kMaxCaches;
  for (std::size_t i = 0; i * kStreams < most; ++i) {
    threads.push_back(std::make_unique<Worker>());
    threads.back()->run([&] {
      for (const StreamRef stream : streams) free(allocate(512, stream), stream);
    });
  }
  EXPECT_EQ(caches(), most);
  // One more thread is served without, and so is one more stream of a thread that has some.
  const StreamRef one_more = pool_->adopt_stream(device_.create_stream()).value();
  Worker late;
  for (Worker* const thread : {&late, threads[0].get()}) {
    thread->run([&] {
      void* const block = allocate(512, one_more);
      EXPECT_FALSE(pool_->allocate(512, StreamRef()).ok());
      EXPECT_FALSE(pool_->deallocate(block, StreamRef()));
      free(block, one_more);
      EXPECT_FALSE(pool_->deallocate(block, one_more));
      free(allocate(kMiB, one_more), one_more);
    });
  }
  EXPECT_EQ(caches(), most);
  EXPECT_EQ(count(Misuse::unknown_stream), 4u);
  EXPECT_EQ(count(Misuse::double_free), 2u);
  threads.clear();
  EXPECT_EQ(caches(), 0u);
}

TEST_F(PoolCacheTest, WhereOnlyTheArenasEndIsFreeCachesAreNotEmptiedForIt) {
  constexpr std::array<std::uint64_t, 4> kAlternating = {512, 20 * kKiB, 100 * kKiB, kMiB};
  constexpr std::uint64_t kRounds = 500;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    for (const std::uint64_t bytes : kAlternating) free(allocate(bytes));
  }
  const StatsV1 stats = pool_->stats();
  EXPECT_GE(stats.hits_by_tier[static_cast<std::size_t>(Tier::cache)],
            (kRounds - 10) * kAlternating.size());
}

}  // namespace
}  // namespace gpupool
