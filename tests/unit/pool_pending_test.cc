// How long memory with unfinished work stays out of reach: as long as it must, and no longer than
// the streams that used it are busy.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

constexpr std::uint64_t kPendingBlock = 40 * kMiB;  // more than the caches keep
constexpr std::size_t kStreams = 6;                 // more than a free piece keeps tickets

class PoolPendingTest : public testing::Test {
 protected:
  void SetUp() override {
    PoolOptions options;
    options.capacity = 1024 * kMiB;
    options.on_misuse = OnMisuse::abort;
    pool_ = Pool::create(device_, options).value();
    for (std::size_t i = 0; i < kStreams; ++i) {
      raw_.push_back(device_.create_stream());
      refs_.push_back(pool_->adopt_stream(raw_.back()).value());
    }
  }
  void TearDown() override {
    device_.complete_all();
    pool_->check_invariants();
    pool_.reset();
    EXPECT_EQ(device_.violation_count(), 0U) << device_.last_violation();
    EXPECT_EQ(device_.object_count(), 0U);
  }

  /// A block that every stream has used, freed on the first.
  void use_on_all_and_free() {
    void* block = pool_->allocate(kPendingBlock, refs_[0]).value();
    for (std::size_t i = 1; i < kStreams; ++i) {
      ASSERT_TRUE(pool_->record_stream(block, refs_[i]));
    }
    ASSERT_TRUE(pool_->deallocate(block, refs_[0]));
  }
  void launch(RawStream stream, void* block) {
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(block);
    work.bytes = kPendingBlock;
    work.until_completed = true;
    ASSERT_TRUE(device_.launch(stream, work).ok());
  }

  SimulatedBackend device_;
  std::unique_ptr<Pool> pool_;
  std::vector<RawStream> raw_;
  std::vector<StreamRef> refs_;
};

TEST_F(PoolPendingTest, StreamLostForEverKeepsOnlyWhatItUsed) {
  RawStream lost = device_.create_stream();
  void* block = pool_->allocate(kPendingBlock, lost).value();
  ASSERT_TRUE(pool_->deallocate(block, lost));
  device_.destroy_stream(lost);  // unannounced: its last frees stay pending
  pool_->maintain();
  ASSERT_EQ(pool_->stats().pending_bytes, kPendingBlock);

  use_on_all_and_free();
  device_.complete_all();
  pool_->maintain();
  EXPECT_EQ(pool_->stats().pending_bytes, kPendingBlock);
}

TEST_F(PoolPendingTest, StreamThatIsBusyElsewhereKeepsNothingOfOthers) {
  RawStream busy = device_.create_stream();
  const StreamRef busy_ref = pool_->adopt_stream(busy).value();
  void* block = pool_->allocate(kPendingBlock, busy_ref).value();
  launch(busy, block);
  ASSERT_TRUE(pool_->deallocate(block, busy_ref));

  use_on_all_and_free();
  pool_->maintain();
  EXPECT_EQ(pool_->stats().pending_bytes, kPendingBlock);
}

TEST_F(PoolPendingTest, EachOfManyStreamsIsWaitedFor) {
  for (std::size_t last = 0; last < kStreams; ++last) {
    void* block = pool_->allocate(kPendingBlock, refs_[0]).value();
    launch(raw_[last], block);
    for (std::size_t i = 1; i < kStreams; ++i) {
      ASSERT_TRUE(pool_->record_stream(block, refs_[i]));
    }
    ASSERT_TRUE(pool_->deallocate(block, refs_[0]));
    pool_->maintain();
    EXPECT_EQ(pool_->stats().pending_bytes, kPendingBlock) << last;
    device_.complete(raw_[last]);
    pool_->maintain();
    EXPECT_EQ(pool_->stats().pending_bytes, 0U) << last;
  }
}

// Two threads that free in turn: nobody else can close the epochs of their default streams.
TEST_F(PoolPendingTest, EveryThreadClosesTheEpochsOfItsOwnStream) {
  constexpr int kFrees = 256;  // after as many, a thread closes its epoch
  std::atomic<int> turn{0};
  const auto work = [&](int me) {
    std::vector<void*> blocks;
    for (int i = 0; i < kFrees; ++i) {
      blocks.push_back(pool_->allocate(4096, per_thread_stream()).value());
      // So that it is in no cache when it is free.
      EXPECT_TRUE(pool_->record_stream(blocks.back(), refs_[0]));
    }
    for (void* block : blocks) {
      while (turn.load() != me) std::this_thread::yield();
      EXPECT_TRUE(pool_->deallocate(block, per_thread_stream()));
      turn.store(1 - me);
    }
  };
  std::thread first(work, 0);
  std::thread second(work, 1);
  first.join();
  second.join();
  pool_->maintain();
  EXPECT_EQ(pool_->stats().pending_bytes, 0U);
}

TEST_F(PoolPendingTest, SmallBlocksFitWhereNoChunkDoesAndThePoolCannotGrow) {
  void* most = pool_->allocate(1024 * kMiB - 64 * 1024, refs_[0]).value();
  const std::uint64_t left = pool_->stats().largest_free_block_bytes;
  ASSERT_EQ(left, 64U * 1024);
  EXPECT_EQ(pool_->would_fit(left, refs_[1]), Fit::now);
  EXPECT_EQ(pool_->would_fit(left + 1, refs_[1]), Fit::no);
  const std::uint64_t calls = pool_->stats().driver_calls;
  void* block = pool_->allocate(left, refs_[1]).value();
  EXPECT_EQ(pool_->stats().driver_calls, calls);
  EXPECT_TRUE(pool_->deallocate(block, refs_[1]));
  EXPECT_TRUE(pool_->deallocate(most, refs_[0]));
}

// A stretch of many pieces, every other one with unfinished work: looked at piece by piece from
// each of them, it took half a minute, with the pool's lock held.
TEST_F(PoolPendingTest, ALongStretchOfPiecesIsWalkedOnce) {
  constexpr std::uint64_t kPiece = 132 * 1024;  // the smallest run
  PoolOptions options;
  options.cache_large_bytes = 0;
  options.runtime.recycling = Recycling::off;
  pool_ = Pool::create(device_, options).value();
  const StreamRef own = pool_->adopt_stream(raw_[0]).value();
  const StreamRef other = pool_->adopt_stream(raw_[1]).value();
  std::vector<void*> blocks;
  for (int i = 0; i < 40'000; ++i) blocks.push_back(pool_->allocate(kPiece, own).value());
  for (std::size_t i = 0; i < blocks.size(); i += 2) pool_->deallocate(blocks[i], other);
  pool_->drain_caches();
  SimulatedWork work;
  work.until_completed = true;
  ASSERT_TRUE(device_.launch(raw_[0], work).ok());
  for (std::size_t i = 1; i < blocks.size(); i += 2) pool_->deallocate(blocks[i], own);
  pool_->drain_caches();
  ASSERT_GT(pool_->stats().pending_bytes, kPiece * 19'000);

  const auto start = std::chrono::steady_clock::now();
  void* across = pool_->allocate(2 * kPiece, own).value();
  EXPECT_FALSE(pool_->allocate(std::size_t{139} << 30, other).ok());
  // All of it could go back as pages, were that work complete.
  EXPECT_EQ(pool_->last_failure().reason, MissReason::pending);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_TRUE(pool_->deallocate(across, own));
}

TEST_F(PoolPendingTest, ThreadThatEndsLeavesNothingPending) {
  for (int round = 0; round < 8; ++round) {
    std::thread([this] {
      void* block = pool_->allocate(kPendingBlock, per_thread_stream()).value();
      ASSERT_TRUE(pool_->deallocate(block, per_thread_stream()));
    }).join();
  }
  pool_->maintain();
  EXPECT_EQ(pool_->stats().pending_bytes, 0U);
  EXPECT_EQ(pool_->stats().streams, kStreams) << "streams of threads that have ended";
}

TEST_F(PoolPendingTest, ThreadMayOutliveThePoolItUsed) {
  std::atomic<bool> was_used{false};
  std::atomic<bool> may_end{false};
  std::thread thread([&] {
    SimulatedBackend device;
    {
      const auto pool = Pool::create(device, {}).value();
      ASSERT_TRUE(
          pool->deallocate(pool->allocate(kMiB, per_thread_stream()).value(), per_thread_stream()));
    }
    was_used = true;
    while (!may_end) std::this_thread::yield();
  });
  while (!was_used) std::this_thread::yield();
  may_end = true;
  thread.join();
}

TEST_F(PoolPendingTest, EmptyPagesMakeRoomForAContiguousBlock) {
  void* block = pool_->allocate(1000 * kMiB, refs_[0]).value();
  ASSERT_TRUE(pool_->deallocate(block, refs_[0]));
  AllocationRequest request;
  request.bytes = 800 * kMiB;
  request.allocation_class = AllocationClass::contiguous;
  const auto contiguous = pool_->allocate(request, refs_[0]);
  ASSERT_TRUE(contiguous.ok()) << pool_->last_failure().text();
  const StatsV1 stats = pool_->stats();
  EXPECT_GT(stats.trims_by_reason[static_cast<std::size_t>(TrimReason::out_of_memory)], 0U);
  EXPECT_LE(stats.held_bytes, 1024 * kMiB);
  ASSERT_TRUE(pool_->deallocate(contiguous.value(), refs_[0]));
}

}  // namespace
}  // namespace gpupool
