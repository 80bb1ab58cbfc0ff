// The path of a hit: what it serves and refuses, and that it waits for nobody.
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "tests/support/gate.h"
#include "tests/support/units.h"
#include "tests/unit/heap_count.h"
#include "tests/unit/pool_fixture.h"
#include "tests/unit/worker.h"

namespace gpupool {
namespace {

// One of each tier.
constexpr std::array<std::uint64_t, 4> kHitSizes = {512, 20 * kKiB, 100 * kKiB, kMiB};

class PoolHitTest : public PoolFixture {
 protected:
  void SetUp() override {
    PoolFixture::SetUp();
    make_room();
  }
  void TearDown() override {
    if (stopper_ != nullptr) free(stopper_);
    PoolFixture::TearDown();
  }
  /// Free memory that is not at the arena's end, where it would be taken last.
  void make_room() {
    void* const block = allocate(64 * kMiB);
    stopper_ = allocate(kMiB);
    free(block);
    settle();
  }
  /// Runs `work` here while another thread holds the pool's lock; false if it had to wait for it.
  template <class F>
  bool runs_without_lock(F work) {
    Gate gate;
    std::thread holder([&] {
      bool is_first = true;
      pool_->visit_blocks([&](const BlockInfo&) {
        if (is_first) gate.pass();
        is_first = false;
      });
    });
    EXPECT_TRUE(gate.wait_until_reached());
    std::atomic<bool> is_done{false};
    std::atomic<bool> had_to_wait{false};
    std::thread watchdog([&] {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (!is_done && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      had_to_wait = !is_done;
      gate.open();
    });
    work();
    is_done = true;
    watchdog.join();
    holder.join();
    return !had_to_wait;
  }
  /// The cache has a block of each size.
  void warm(StreamRef stream) {
    for (const std::uint64_t bytes : kHitSizes) free(allocate(bytes, stream), stream);
  }
  std::uint64_t samples(Tier tier) const {
    const auto counts = pool_->stats().allocation_duration[static_cast<std::size_t>(tier)].count;
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  }

  void* stopper_ = nullptr;
};

TEST_F(PoolHitTest, CountsForTheCacheAndAsksNothingOfTheDriver) {
  warm(a_);
  const StatsV1 before = pool_->stats();
  const std::uint64_t calls = backend_.call_count();
  const std::uint64_t heap = heap_allocations();
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t bytes = kHitSizes[static_cast<std::size_t>(i) % kHitSizes.size()];
    free(allocate(bytes));
  }
  EXPECT_EQ(heap_allocations(), heap);
  EXPECT_EQ(backend_.call_count(), calls);
  const StatsV1 after = pool_->stats();
  EXPECT_EQ(after.hits_by_tier[0], before.hits_by_tier[0] + 5000);
  EXPECT_EQ(after.hits, before.hits + 5000);
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_EQ(after.driver_calls, before.driver_calls);
  EXPECT_EQ(after.frees, before.frees + 5000);
}

TEST_F(PoolHitTest, WaitsForNobodyWhoHoldsThePool) {
  warm(a_);
  EXPECT_TRUE(runs_without_lock([&] {
    for (int i = 0; i < 3000; ++i) {
      const std::uint64_t bytes = kHitSizes[static_cast<std::size_t>(i) % kHitSizes.size()];
      void* const block = allocate(bytes);
      EXPECT_TRUE(i % 2 == 0 ? pool_->deallocate(block, a_) : pool_->deallocate(block, bytes, a_));
    }
  }));
}

TEST_F(PoolHitTest, NorByRequestOrByTheStreamsHandle) {
  warm(a_);
  // So that the thread knows the handle.
  EXPECT_TRUE(pool_->deallocate(pool_->allocate(512, raw_a_).value(), raw_a_));
  EXPECT_TRUE(runs_without_lock([&] {
    AllocationRequest request;
    request.tag = Tag(2);
    for (int i = 0; i < 100; ++i) {
      request.bytes = kHitSizes[static_cast<std::size_t>(i) % kHitSizes.size()];
      free(pool_->allocate(request, a_).value());
      void* const block = pool_->allocate(request.bytes, raw_a_).value();
      EXPECT_TRUE(pool_->deallocate(block, raw_a_));
    }
  }));
}

TEST_F(PoolHitTest, NorWhenStreamsAndPoolsAreUsedInTurn) {
  warm(a_);
  warm(b_);
  const auto other = Pool::create(device_, {}).value();
  const StreamRef others = other->adopt_stream(raw_a_).value();
  EXPECT_TRUE(other->deallocate(other->allocate(512, others).value(), others));
  EXPECT_TRUE(runs_without_lock([&] {
    for (int i = 0; i < 100; ++i) {
      free(allocate(512, a_), a_);
      free(allocate(kMiB, b_), b_);
      EXPECT_TRUE(other->deallocate(other->allocate(512, others).value(), others));
    }
  }));
  EXPECT_EQ(other->stats().hits_by_tier[0], 100u);
}

TEST_F(PoolHitTest, AWrongSizeIsCountedAndIgnoredOnTheHitPathToo) {
  for (const std::uint64_t bytes : kHitSizes) {
    for (const std::uint64_t wrong : {bytes - 1, bytes + 1, std::uint64_t{0}, 64 * kMiB}) {
      warm(a_);
      void* const block = allocate(bytes);
      EXPECT_TRUE(pool_->deallocate(block, wrong, a_));
      EXPECT_FALSE(pool_->deallocate(block, bytes, a_));
      EXPECT_EQ(misuses_[misuses_.size() - 2].given, wrong);
      EXPECT_EQ(misuses_[misuses_.size() - 2].block_bytes, bytes);
    }
  }
  EXPECT_EQ(count(Misuse::wrong_size), 16u);
  EXPECT_EQ(count(Misuse::double_free), 16u);
  EXPECT_EQ(pool_->stats().live_blocks, 1u);  // the stopper
  EXPECT_EQ(pool_->stats().live_requested_bytes, kMiB);
}

TEST_F(PoolHitTest, BlocksThatOthersUseDoNotGoToTheCache) {
  for (const std::uint64_t bytes : kHitSizes) {
    warm(a_);
    void* const block = allocate(bytes);
    EXPECT_TRUE(pool_->record_stream(block, b_));
    EXPECT_TRUE(work(raw_b_, block, bytes));
    const std::uint64_t cached = pool_->stats().cached_bytes;
    free(block);
    EXPECT_EQ(pool_->stats().cached_bytes, cached);
    for (int i = 0; i < 3; ++i) {
      void* const next = allocate(bytes);
      EXPECT_NE(next, block);
      EXPECT_TRUE(work(raw_a_, next, bytes)) << device_.last_violation();
    }
    device_.complete_all();
    EXPECT_FALSE(pool_->deallocate(block, a_));
  }
  EXPECT_EQ(count(Misuse::double_free), 4u);
  misuses_.clear();
}

TEST_F(PoolHitTest, BytesOfTagsAreExact) {
  const Tag weights = pool_->find_tag("weights").value();
  const Tag gradients = pool_->find_tag("gradients").value();
  const auto bytes_of = [&](Tag tag) { return pool_->stats().tag_live_bytes[tag.index()]; };
  for (const std::uint64_t bytes : kHitSizes) {
    warm(a_);
    void* const untagged = allocate(bytes);
    void* first = nullptr;
    {
      const TagScope scope(weights);
      first = allocate(bytes - 1);
      EXPECT_EQ(bytes_of(weights), bytes - 1);
      const TagScope inner(kUntagged);
      free(allocate(bytes));
    }
    AllocationRequest request;
    request.bytes = bytes;
    request.tag = gradients;
    void* const second = pool_->allocate(request, a_).value();
    request.tag = Tag(31);  // no such
    void* const third = pool_->allocate(request, a_).value();
    EXPECT_EQ(bytes_of(weights), bytes - 1);
    EXPECT_EQ(bytes_of(gradients), bytes);
    EXPECT_EQ(bytes_of(Tag(31)), 0u);
    // By a thread that allocated nothing, with a tag of its own.
    Worker worker;
    worker.run([&] {
      const TagScope scope(gradients);
      free(second);
      free(untagged, b_);
    });
    EXPECT_EQ(bytes_of(gradients), 0u);
    free(first, b_);
    free(third);
    EXPECT_EQ(bytes_of(weights), 0u);
    EXPECT_EQ(pool_->stats().live_requested_bytes, kMiB);
  }
}

// Every 1 024th is timed whatever lies between it and the one before, a free mostly.
TEST_F(PoolHitTest, HitsAreTimedNowAndThen) {
  for (int i = 0; i < 10'241; ++i) free(allocate(512));
  EXPECT_EQ(samples(Tier::cache), 10u);
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(allocate(2000));
  for (int round = 0; round < 80; ++round) {
    for (void* const block : blocks) free(block);
    for (void*& block : blocks) block = allocate(2000);
  }
  for (void* const block : blocks) free(block);
  EXPECT_GE(samples(Tier::cache), 14u);
}

TEST_F(PoolHitTest, SoAreLargeOnesAndWhatTheCacheDoesNotHave) {
  for (int i = 0; i < 10'241; ++i) free(allocate(kMiB));
  EXPECT_EQ(samples(Tier::cache), 10u);
  constexpr std::uint64_t kTooLarge = 64 * kMiB;  // for any cache
  for (int i = 0; i < 10'241; ++i) free(allocate(kTooLarge));
  EXPECT_GE(samples(Tier::run), 10u);
}

// Streams by turns, raw handles and full requests find the cache by another way.
TEST_F(PoolHitTest, SoAreHitsOfEveryForm) {
  AllocationRequest request;
  request.bytes = 512;
  const auto times = [&](auto pair) {
    const std::uint64_t before = samples(Tier::cache);
    for (int i = 0; i < 4096; ++i) pair();
    return samples(Tier::cache) - before;
  };
  EXPECT_GE(times([&] {
              free(allocate(512, a_), a_);
              free(allocate(512, b_), b_);
            }),
            7u);
  EXPECT_GE(times([&] { free(pool_->allocate(request, a_).value()); }), 3u);
  EXPECT_GE(times([&] {
              void* const block = pool_->allocate(512, raw_a_).value();
              EXPECT_TRUE(pool_->deallocate(block, raw_a_));
            }),
            3u);
}

TEST_F(PoolHitTest, AFreeOfABlockThatOthersUsedTakesNothingFromTheHeap) {
  for (const std::uint64_t bytes : {4 * kKiB, 2 * kMiB}) {
    for (int i = 0; i < 20; ++i) {
      void* const block = allocate(bytes);
      EXPECT_TRUE(pool_->record_stream(block, b_));
      const std::uint64_t before = heap_allocations();
      free(block);
      EXPECT_TRUE(i < 10 || heap_allocations() == before) << bytes;
      device_.complete_all();
      pool_->maintain();
    }
  }
}

TEST_F(PoolHitTest, TheFirstFreeOfAThreadTakesNothingFromTheHeap) {
  for (const std::uint64_t bytes : kHitSizes) {
    std::vector<void*> blocks;
    for (int i = 0; i < 200; ++i) blocks.push_back(allocate(bytes));
    std::uint64_t taken = 0;
    std::thread([&] {
      const std::uint64_t before = heap_allocations();
      for (void* const block : blocks) {
        if (!pool_->deallocate(block, a_)) taken += 1000;
      }
      taken += heap_allocations() - before;
    }).join();
    EXPECT_EQ(taken, 0u) << bytes;
  }
  EXPECT_EQ(pool_->stats().live_blocks, 1u);  // the stopper
}

}  // namespace
}  // namespace gpupool
