// What DebugOptions does, byte by byte, on a simulated device with real memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpupool/faulty_backend.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

// One of each tier; odd ones, so that a canary begins at no boundary.
constexpr std::array<std::uint64_t, 5> kGuardedSizes = {100, 512, 20 * kKiB + 1, 100 * kKiB,
                                                        5 * kMiB - 3};

class PoolGuardTest : public testing::Test {
 protected:
  void make_pool(DebugOptions debug, Backing backing = Backing::vmm, PoolOptions options = {}) {
    end_pool();
    options.debug = debug;
    options.backing = backing;
    options.misuse_handler = [this](const MisuseReport& report) {
      const std::lock_guard lock(misuses_mutex_);
      misuses_.push_back(report);
    };
    auto pool = Pool::create(backend_, options);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    pool_ = std::move(pool).value();
    raw_a_ = device_.create_stream();
    raw_b_ = device_.create_stream();
    a_ = pool_->adopt_stream(raw_a_).value();
    b_ = pool_->adopt_stream(raw_b_).value();
  }
  void end_pool() {
    device_.complete_all();
    if (pool_ != nullptr) pool_->check_invariants();
    pool_.reset();
  }
  void TearDown() override {
    end_pool();
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
    EXPECT_EQ(device_.object_count(), 0u);
  }

  unsigned char* allocate(std::uint64_t bytes, StreamRef stream) {
    const auto block = pool_->allocate(bytes, stream);
    EXPECT_TRUE(block.ok()) << pool_->last_failure().text();
    settle();
    return static_cast<unsigned char*>(block.value());
  }
  /// What the streams were given is done.
  void settle() {
    device_.advance_ns(10'000'000);
    device_.complete_all();
  }
  static bool is_filled(const unsigned char* begin, std::uint64_t bytes, unsigned char value) {
    return std::all_of(begin, begin + bytes, [value](unsigned char c) { return c == value; });
  }
  bool work(RawStream stream, void* block, std::uint64_t bytes) {
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(block);
    work.bytes = bytes;
    work.until_completed = true;
    return device_.launch(stream, work).ok();
  }
  std::uint64_t count(Misuse kind) const {
    return pool_->stats().misuses[static_cast<std::size_t>(kind)];
  }
  static void expect_identity(const StatsV1& stats) {
    EXPECT_EQ(stats.held_bytes, stats.live_requested_bytes + stats.waste_bytes +
                                    stats.cached_bytes + stats.pending_bytes + stats.free_bytes);
    EXPECT_EQ(stats.requests, stats.hits + stats.misses);
  }

  SimulatedBackend device_{{.capacity_bytes = 256 * kMiB, .memory = SimulatedMemory::real}};
  FaultyBackend backend_{device_};
  std::mutex misuses_mutex_;
  std::vector<MisuseReport> misuses_;
  std::unique_ptr<Pool> pool_;
  RawStream raw_a_ = nullptr;
  RawStream raw_b_ = nullptr;
  StreamRef a_;
  StreamRef b_;
};

TEST_F(PoolGuardTest, OffNothingIsFilledAndCachesServe) {
  make_pool({});
  void* const block = pool_->allocate(kMiB, a_).value();
  ASSERT_TRUE(pool_->deallocate(block, a_));
  EXPECT_EQ(pool_->allocate(kMiB, a_).value(), block);
  ASSERT_TRUE(pool_->deallocate(block, a_));
  EXPECT_EQ(backend_.call_count(BackendCall::fill), 0u);
  EXPECT_EQ(backend_.call_count(BackendCall::read), 0u);
  EXPECT_EQ(pool_->stats().guard_fills, 0u);
}

TEST_F(PoolGuardTest, ScrubLeavesNothingForTheNextHolder) {
  make_pool({.scrub = true});
  for (const std::uint64_t bytes : kGuardedSizes) {
    unsigned char* const block = allocate(bytes, a_);
    std::memset(block, 0x5e, bytes);
    ASSERT_TRUE(pool_->deallocate(block, a_));
    unsigned char* const next = allocate(bytes, a_);
    EXPECT_EQ(next, block);
    EXPECT_TRUE(is_filled(next, bytes, 0)) << bytes;
    ASSERT_TRUE(pool_->deallocate(next, a_));
  }
  EXPECT_EQ(pool_->stats().guard_postponed, 0u);
  EXPECT_EQ(pool_->stats().guard_fills, 2 * kGuardedSizes.size());
}

TEST_F(PoolGuardTest, ScrubComesAfterTheWorkOfTheStreamThatFreed) {
  make_pool({.scrub = true});
  unsigned char* const block = allocate(kMiB, a_);
  SimulatedWork writes;
  writes.address = reinterpret_cast<DeviceAddress>(block);
  writes.bytes = kMiB;
  writes.until_completed = true;
  writes.body = [block] { std::memset(block, 0x5e, kMiB); };
  ASSERT_TRUE(device_.launch(raw_a_, writes).ok());
  ASSERT_TRUE(pool_->deallocate(block, a_));
  // Nobody else gets it before; its own stream's later work is behind it.
  void* const other = pool_->allocate(kMiB, b_).value();
  EXPECT_NE(other, block);
  EXPECT_EQ(pool_->allocate(kMiB, a_).value(), block);
  settle();
  EXPECT_TRUE(is_filled(block, kMiB, 0));
  ASSERT_TRUE(pool_->deallocate(block, a_));
  ASSERT_TRUE(pool_->deallocate(other, b_));
}

TEST_F(PoolGuardTest, ScrubOfABlockThatAnotherStreamUsesIsDoneWhenItIsHandedOut) {
  make_pool({.scrub = true});
  unsigned char* const block = allocate(kMiB, a_);
  std::memset(block, 0x5e, kMiB);
  ASSERT_TRUE(pool_->record_stream(block, b_));
  ASSERT_TRUE(work(raw_b_, block, kMiB));
  ASSERT_TRUE(pool_->deallocate(block, a_));
  EXPECT_EQ(pool_->stats().guard_postponed, 1u);
  EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
  EXPECT_EQ(block[0], 0x5e);  // the other stream still reads it
  settle();
  pool_->maintain();
  unsigned char* const next = allocate(kMiB, a_);
  EXPECT_EQ(next, block);
  EXPECT_TRUE(is_filled(next, kMiB, 0));
  ASSERT_TRUE(pool_->deallocate(next, a_));
}

TEST_F(PoolGuardTest, ScrubIsNotRecordedIntoAGraphByAFree) {
  make_pool({.scrub = true});
  unsigned char* const block = allocate(kMiB, a_);
  std::memset(block, 0x5e, kMiB);
  device_.begin_capture(raw_a_);
  const std::uint64_t fills = backend_.call_count(BackendCall::fill);
  ASSERT_TRUE(pool_->deallocate(block, a_));
  EXPECT_EQ(backend_.call_count(BackendCall::fill), fills);
  EXPECT_EQ(pool_->stats().guard_postponed, 1u);
  device_.end_capture(raw_a_);
  unsigned char* const next = allocate(kMiB, a_);
  EXPECT_EQ(next, block);
  EXPECT_TRUE(is_filled(next, kMiB, 0));
  ASSERT_TRUE(pool_->deallocate(next, a_));
}

TEST_F(PoolGuardTest, AScrubThatTheDriverRefusesIsMadeUpFor) {
  make_pool({.scrub = true});
  unsigned char* const block = allocate(kMiB, a_);
  std::memset(block, 0x5e, kMiB);
  backend_.fail_nth(BackendCall::fill, 1, Error::backend_failure);
  ASSERT_TRUE(pool_->deallocate(block, a_));
  // Where it cannot be done then either, nobody gets the block.
  backend_.fail_nth(BackendCall::fill, 1, Error::backend_failure);
  const auto refused = pool_->allocate(kMiB, a_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error(), Error::backend_failure);
  EXPECT_EQ(pool_->stats().live_blocks, 0u);
  expect_identity(pool_->stats());
  unsigned char* const next = allocate(kMiB, a_);
  EXPECT_TRUE(is_filled(next, kMiB, 0));
  ASSERT_TRUE(pool_->deallocate(next, a_));
}

TEST_F(PoolGuardTest, PoisonShowsWhatIsUsedBeforeOrAfterItsTime) {
  make_pool({.poison = true});
  for (const std::uint64_t bytes : kGuardedSizes) {
    unsigned char* const block = allocate(bytes, a_);
    EXPECT_TRUE(is_filled(block, bytes, kPoisonByte)) << bytes;
    std::memset(block, 0, bytes);
    ASSERT_TRUE(pool_->deallocate(block, a_));
    settle();
    EXPECT_TRUE(is_filled(block, bytes, kPoisonByte)) << bytes;
  }
}

TEST_F(PoolGuardTest, ACanaryFindsTheFirstByteBehindABlock) {
  make_pool({.canary = true});
  const Tag tag = pool_->find_tag("gradients").value();
  for (const std::uint64_t bytes : kGuardedSizes) {
    for (const std::uint64_t behind : {std::uint64_t{0}, kCanaryBytes - 1}) {
      AllocationRequest request;
      request.bytes = bytes;
      request.tag = tag;
      auto* const block = static_cast<unsigned char*>(pool_->allocate(request, a_).value());
      settle();
      std::memset(block, 0x5e, bytes);  // all of it is the holder's
      block[bytes + behind] ^= 1;
      misuses_.clear();
      EXPECT_TRUE(pool_->deallocate(block, a_));
      ASSERT_EQ(misuses_.size(), 1u) << bytes;
      EXPECT_STREQ(to_string(misuses_[0].kind), "canary");
      EXPECT_EQ(misuses_[0].block, block);
      EXPECT_EQ(misuses_[0].block_bytes, bytes);
      EXPECT_EQ(misuses_[0].given, bytes + behind);
      EXPECT_EQ(misuses_[0].tag, tag);
    }
  }
  EXPECT_EQ(count(Misuse::canary), 2 * kGuardedSizes.size());
  EXPECT_EQ(pool_->stats().live_blocks, 0u);
}

TEST_F(PoolGuardTest, WhoKeepsToItsBlockIsNotReported) {
  make_pool({.canary = true});
  std::vector<unsigned char*> blocks;
  for (int round = 0; round < 3; ++round) {
    for (const std::uint64_t bytes : kGuardedSizes) {
      blocks.push_back(allocate(bytes, a_));
      std::memset(blocks.back(), 0xff, bytes);
    }
    EXPECT_EQ(pool_->check_canaries(), 0u);
    for (unsigned char* const block : blocks) ASSERT_TRUE(pool_->deallocate(block, a_));
    blocks.clear();
  }
  EXPECT_TRUE(misuses_.empty());
}

TEST_F(PoolGuardTest, CheckCanariesLooksAtLiveBlocks) {
  make_pool({.canary = true});
  unsigned char* const good = allocate(kMiB, a_);
  unsigned char* const bad = allocate(3000, a_);
  AllocationRequest request;
  request.bytes = 10 * kKiB;
  request.allocation_class = AllocationClass::contiguous;
  auto* const own = static_cast<unsigned char*>(pool_->allocate(request, a_).value());
  settle();
  bad[3004] = 0;
  own[10 * kKiB] = 0;
  EXPECT_EQ(pool_->check_canaries(), 2u);
  ASSERT_EQ(misuses_.size(), 2u);
  EXPECT_EQ(misuses_[0].block, bad);
  EXPECT_EQ(misuses_[0].given, 3004u);
  EXPECT_EQ(misuses_[1].block, own);
  EXPECT_EQ(count(Misuse::canary), 2u);
  // Neither another look nor the free tells it again.
  EXPECT_EQ(pool_->check_canaries(), 0u);
  EXPECT_TRUE(pool_->deallocate(bad, a_));
  EXPECT_TRUE(pool_->deallocate(own, a_));
  EXPECT_TRUE(pool_->deallocate(good, a_));
  EXPECT_EQ(count(Misuse::canary), 2u);
}

TEST_F(PoolGuardTest, WhatIsWrittenAfterALookIsToldAtTheNext) {
  make_pool({.canary = true});
  unsigned char* const block = allocate(3000, a_);
  block[3004] = 1;
  EXPECT_EQ(pool_->check_canaries(), 1u);
  block[3009] = 1;
  EXPECT_EQ(pool_->check_canaries(), 1u);
  block[3004] = 2;
  ASSERT_TRUE(pool_->deallocate(block, a_));
  ASSERT_EQ(misuses_.size(), 3u);
  EXPECT_EQ(misuses_[1].given, 3009u);
  EXPECT_EQ(misuses_[2].given, 3004u);
  // What its holder did is forgotten with it.
  unsigned char* const next = allocate(3000, a_);
  ASSERT_EQ(next, block);
  next[3004] = 1;
  next[3009] = 1;
  EXPECT_EQ(pool_->check_canaries(), 1u);
  ASSERT_TRUE(pool_->deallocate(next, a_));
  EXPECT_EQ(count(Misuse::canary), 4u);
}

TEST_F(PoolGuardTest, CanariesAreWaste) {
  make_pool({.canary = true});
  // As many bytes as a slot has: with the canary it takes the next one.
  unsigned char* const block = allocate(512, a_);
  StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.live_requested_bytes, 512u);
  EXPECT_EQ(stats.waste_bytes, 512u);
  EXPECT_EQ(pool_->find_size(block).value(), 512u);
  expect_identity(stats);
  ASSERT_TRUE(pool_->deallocate(block, a_));
  unsigned char* const page = allocate(2 * kMiB, a_);
  stats = pool_->stats();
  EXPECT_EQ(stats.live_requested_bytes, 2 * kMiB);
  EXPECT_EQ(stats.waste_bytes, 4 * kKiB);
  expect_identity(stats);
  ASSERT_TRUE(pool_->deallocate(page, 2 * kMiB, a_));
  expect_identity(pool_->stats());
  EXPECT_TRUE(misuses_.empty());
}

// What a pool says could be had can be asked for, and no more.
TEST_F(PoolGuardTest, TheLargestThatIsNamedIsWhatARequestMayBe) {
  for (const bool has_canary : {false, true}) {
    for (const Recycling recycling : {Recycling::eager, Recycling::off}) {
      for (const std::uint64_t hole : {140 * kKiB, kMiB, 6 * kMiB}) {
        PoolOptions options;
        options.capacity = 16 * kMiB;
        options.runtime.recycling = recycling;
        make_pool({.canary = has_canary}, Backing::vmm, options);
        const std::uint64_t more = has_canary ? kCanaryBytes : 0;
        unsigned char* const before = allocate(8 * kMiB - more, a_);
        unsigned char* const gap = allocate(hole - more, a_);
        unsigned char* const rest = allocate(8 * kMiB - hole - more, a_);
        ASSERT_TRUE(pool_->deallocate(gap, a_));
        pool_->drain_caches();
        const StatsV1 stats = pool_->stats();
        EXPECT_EQ(stats.largest_free_block_bytes, hole - more);
        EXPECT_EQ(stats.largest_satisfiable_bytes, hole - more);
        EXPECT_EQ(stats.fragmentation_ratio, 0.0);
        // The report, and what it promises.
        EXPECT_FALSE(pool_->allocate(hole - more + 1, a_).ok());
        const std::uint64_t named = pool_->last_failure().largest_satisfiable_bytes;
        EXPECT_EQ(named, hole - more);
        const std::uint64_t calls = pool_->stats().driver_calls;
        unsigned char* const largest = allocate(named, a_);
        EXPECT_EQ(pool_->stats().driver_calls, calls);
        for (unsigned char* const block : {before, largest, rest}) {
          ASSERT_TRUE(pool_->deallocate(block, a_));
        }
      }
    }
  }
}

TEST_F(PoolGuardTest, WhereNothingIsLeftNothingIsNamed) {
  PoolOptions options;
  options.capacity = 4 * kMiB;
  make_pool({.canary = true}, Backing::vmm, options);
  unsigned char* const all = allocate(4 * kMiB - kCanaryBytes, a_);
  EXPECT_EQ(pool_->stats().largest_free_block_bytes, 0u);
  EXPECT_FALSE(pool_->allocate(1, a_).ok());
  EXPECT_EQ(pool_->last_failure().largest_satisfiable_bytes, 0u);
  ASSERT_TRUE(pool_->deallocate(all, a_));
}

TEST_F(PoolGuardTest, AWatchedSizeFitsWithItsCanary) {
  PoolOptions options;
  options.capacity = 8 * kMiB;
  options.watched_sizes = {8 * kMiB - kCanaryBytes, 8 * kMiB};
  make_pool({.canary = true}, Backing::vmm, options);
  ASSERT_TRUE(pool_->deallocate(allocate(8 * kMiB - kCanaryBytes, a_), a_));
  pool_->drain_caches();
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.watched[0].bytes, 8 * kMiB - kCanaryBytes);
  EXPECT_TRUE(stats.watched[0].fits);
  EXPECT_EQ(stats.watched[0].unusable_free_bytes, 0u);
  EXPECT_EQ(stats.watched[1].bytes, 8 * kMiB);
  EXPECT_FALSE(stats.watched[1].fits);
  EXPECT_EQ(stats.watched[1].unusable_free_bytes, 8 * kMiB);
}

TEST_F(PoolGuardTest, ADoubleFreeIsRefusedAndFillsNothing) {
  make_pool({.poison = true, .canary = true});
  unsigned char* const block = allocate(kMiB, a_);
  ASSERT_TRUE(pool_->deallocate(block, a_));
  unsigned char* const next = allocate(kMiB, a_);
  ASSERT_EQ(next, block);
  ASSERT_TRUE(pool_->deallocate(next, a_));
  const std::uint64_t fills = backend_.call_count(BackendCall::fill);
  EXPECT_FALSE(pool_->deallocate(block, a_));
  EXPECT_FALSE(pool_->deallocate(block + 512, a_));
  EXPECT_EQ(backend_.call_count(BackendCall::fill), fills);
  EXPECT_EQ(count(Misuse::double_free), 2u);
}

TEST_F(PoolGuardTest, RawHandlesAndRecordingGoTheSameWay) {
  make_pool({.scrub = true, .canary = true});
  auto* const block = static_cast<unsigned char*>(pool_->allocate(kMiB, raw_a_).value());
  settle();
  std::memset(block, 0x5e, kMiB);
  block[kMiB] = 0;
  EXPECT_TRUE(pool_->deallocate(block, raw_a_));
  EXPECT_EQ(count(Misuse::canary), 1u);
  unsigned char* const next = allocate(kMiB, a_);
  EXPECT_EQ(next, block);
  EXPECT_TRUE(is_filled(next, kMiB, 0));
  ASSERT_TRUE(pool_->deallocate(next, a_));
}

TEST_F(PoolGuardTest, NvtxKnowsEachHeapAndEachBlock) {
  make_pool({.nvtx = true}, Backing::cudamalloc);
  unsigned char* const small = allocate(100, a_);
  unsigned char* const large = allocate(5 * kMiB, a_);
  EXPECT_EQ(device_.noted_heap_count(), pool_->stats().segments);
  EXPECT_EQ(device_.noted_block_count(), 2u);
  EXPECT_EQ(device_.noted_block_bytes(reinterpret_cast<DeviceAddress>(small)), 100u);
  EXPECT_EQ(device_.noted_block_bytes(reinterpret_cast<DeviceAddress>(large)), 5 * kMiB);
  ASSERT_TRUE(pool_->deallocate(small, a_));
  EXPECT_EQ(device_.noted_block_count(), 1u);
  ASSERT_TRUE(pool_->deallocate(large, a_));
  EXPECT_EQ(device_.noted_block_count(), 0u);
  end_pool();
  EXPECT_EQ(device_.noted_heap_count(), 0u);
}

TEST_F(PoolGuardTest, ThreadsGetNothingOfEachOthersAndOverrunsAreCountedOnce) {
  make_pool({.scrub = true, .canary = true});
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const RawStream raw = device_.create_stream();
      const StreamRef stream = pool_->adopt_stream(raw).value();
      for (int i = 0; i < kRounds; ++i) {
        const std::uint64_t bytes = kGuardedSizes[static_cast<std::size_t>(i + t) % 4];
        const auto given = pool_->allocate(bytes, stream);
        auto* const block = static_cast<unsigned char*>(given.value());
        // Once what was given to the stream is done.
        unsigned char last = 0;
        if (!backend_.read(reinterpret_cast<DeviceAddress>(block), 1, &last, raw).ok()) ++failures;
        // What the driver gives is zeroed, too.
        if (!is_filled(block, bytes, 0)) ++failures;
        std::memset(block, t + 1, bytes + (i == 7 ? 1 : 0));
        if (!pool_->deallocate(block, stream)) ++failures;
      }
      if (!pool_->release_stream(stream)) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(count(Misuse::canary), static_cast<std::uint64_t>(kThreads));
  EXPECT_EQ(pool_->stats().live_blocks, 0u);
  expect_identity(pool_->stats());
}

TEST_F(PoolGuardTest, OptionsThatContradictThemselvesAreNamed) {
  const auto error_of = [&](const PoolOptions& options) {
    const auto pool = Pool::create(backend_, options);
    return pool.ok() ? std::string() : pool.error().message;
  };
  PoolOptions options;
  options.debug = {.scrub = true, .poison = true};
  EXPECT_NE(error_of(options).find("debug.poison"), std::string::npos);
  options.debug = {.nvtx = true};
  EXPECT_NE(error_of(options).find("debug.nvtx"), std::string::npos);
}

}  // namespace
}  // namespace gpupool
