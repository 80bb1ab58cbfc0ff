// Private pools: whom they serve, what the books say of them, and how they end with their pool.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/capture_fixture.h"

namespace gpupool {
namespace {

class PrivatePoolsTest : public CaptureFixture {};

TEST_F(PrivatePoolsTest, BeginEndAndReleaseAreIdempotent) {
  EXPECT_TRUE(pool_->end_allocate_to_pool(kGraph).ok());
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  EXPECT_TRUE(pool_->end_capture(a_).ok());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(pool_->begin_allocate_to_pool(kGraph, only(raw_a_)).ok());
  void* block = allocate_raw(kMiB, raw_a_);
  EXPECT_GT(pinned(), 0u);
  EXPECT_TRUE(pool_->end_allocate_to_pool(kGraph).ok());
  const std::uint64_t before = pinned();
  void* ordinary = allocate_raw(kMiB, raw_a_);
  EXPECT_EQ(pinned(), before);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(pool_->begin_capture(a_, kGraph).ok());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(pool_->end_capture(a_).ok());
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  settle();
  free_raw(block, raw_a_);
  free_raw(ordinary, raw_a_);
  // What was shut is open: this is a hit of the cache.
  const std::uint64_t cached = hits(Tier::cache);
  free(allocate(512));
  free(allocate(512));
  EXPECT_GT(hits(Tier::cache), cached);
}

TEST_F(PrivatePoolsTest, IdsThatNameNothingAreRefused) {
  const auto takes = [](RawStream) { return true; };
  EXPECT_NE(pool_->begin_allocate_to_pool({}, takes).error().message.find("{0, 0}"),
            std::string::npos);
  EXPECT_FALSE(pool_->end_allocate_to_pool({}).ok());
  EXPECT_FALSE(pool_->release_pool({}).ok());
  EXPECT_FALSE(pool_->begin_capture(a_, {}).ok());
  EXPECT_FALSE(pool_->begin_allocate_to_pool(unannounced_capture(1), takes).ok());
  EXPECT_FALSE(pool_->begin_allocate_to_pool(kGraph, nullptr).ok());
  EXPECT_FALSE(pool_->begin_capture(StreamRef(), kGraph).ok());
  EXPECT_FALSE(pool_->end_capture(StreamRef()).ok());
  AllocationRequest request;
  request.bytes = 512;
  request.capture_pool = unannounced_capture(1);
  EXPECT_EQ(pool_->allocate(request, a_).error(), Error::invalid_argument);
}

TEST_F(PrivatePoolsTest, OfSeveralTheLatestThatTakesTheStreamServesIt) {
  const auto all = [](RawStream) { return true; };
  EXPECT_TRUE(pool_->begin_allocate_to_pool(kGraph, all).ok());
  EXPECT_TRUE(pool_->begin_allocate_to_pool(kOther, only(raw_b_)).ok());
  void* a = allocate_raw(kMiB, raw_a_);
  void* b = allocate_raw(kMiB, raw_b_);
  free_raw(a, raw_a_);
  free_raw(b, raw_b_);
  EXPECT_TRUE(pool_->end_allocate_to_pool(kGraph).ok());
  EXPECT_TRUE(pool_->end_allocate_to_pool(kOther).ok());
  EXPECT_TRUE(pool_->release_pool(kOther).ok());
  settle();
  std::vector<void*> got;
  while (pinned() < 64 * kMiB && got.size() < 80) {
    const auto block = pool_->allocate(kMiB, b_);
    if (!block.ok()) break;
    got.push_back(block.value());
  }
  EXPECT_EQ(std::count(got.begin(), got.end(), b), 1);  // of the one that was released
  EXPECT_EQ(std::count(got.begin(), got.end(), a), 0);
  for (void* block : got) free(block, b_);
}

TEST_F(PrivatePoolsTest, WithoutACaptureMemoryIsReusedInTheOrderOfTheStream) {
  EXPECT_TRUE(pool_->begin_allocate_to_pool(kGraph, only(raw_a_)).ok());
  void* block = allocate(40 * kMiB);  // by its reference, too
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  EXPECT_EQ(allocate(40 * kMiB), block);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  EXPECT_TRUE(pool_->end_allocate_to_pool(kGraph).ok());
  device_.complete_all();
  EXPECT_FALSE(can_have(40 * kMiB, a_));
  // In a capture of the stream it is not served: the graph may run beside that work.
  begin(raw_a_);
  EXPECT_FALSE(pool_->allocate(40 * kMiB, raw_a_).ok());
  end(raw_a_);
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  EXPECT_TRUE(can_have(40 * kMiB, a_));
}

TEST_F(PrivatePoolsTest, ABlockFreedElsewhereWaitsForThatStream) {
  EXPECT_TRUE(pool_->begin_allocate_to_pool(kGraph, only(raw_a_)).ok());
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_b_, block));
  free(block, b_);
  settle();
  EXPECT_FALSE(pool_->allocate(40 * kMiB, a_).ok());
  device_.complete(raw_b_);
  settle();
  EXPECT_EQ(allocate(40 * kMiB), block);
  free(block);
  EXPECT_TRUE(pool_->end_allocate_to_pool(kGraph).ok());
}

TEST_F(PrivatePoolsTest, ARequestMayNameItsPrivatePool) {
  AllocationRequest request;
  request.bytes = 20 * kMiB;
  request.capture_pool = kGraph;
  void* block = pool_->allocate(request, a_).value();
  EXPECT_GE(pinned(), 20 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);  // not to the private pool: the stream's own work is waited for
  void* other = pool_->allocate(request, raw_b_).value();
  EXPECT_NE(other, block);
  free(other, b_);
  device_.complete_all();
  settle();
  EXPECT_EQ(pool_->allocate(request, a_).value(), block);
  free(block);
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  device_.complete_all();
  EXPECT_TRUE(can_have(64 * kMiB, a_));
}

TEST_F(PrivatePoolsTest, TheContiguousClassIsPinnedToo) {
  begin(raw_a_);
  AllocationRequest request;
  request.bytes = 10 * kMiB;
  request.allocation_class = AllocationClass::contiguous;
  void* block = pool_->allocate(request, raw_a_).value();
  EXPECT_EQ(pinned(), 10 * kMiB);
  free_raw(block, raw_a_);
  device_.destroy_graph(end(raw_a_));
  pool_->trim(0);
  EXPECT_EQ(pinned(), 10 * kMiB);
  EXPECT_EQ(device_.held_bytes(), 10 * kMiB);
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  pool_->trim(0);
  EXPECT_EQ(device_.held_bytes(), 0u);
}

TEST_F(PrivatePoolsTest, PinnedBytesAreWhatPrivatePoolsHold) {
  EXPECT_EQ(pinned(), 0u);
  begin(raw_a_);
  void* run = allocate_raw(5 * kMiB, raw_a_);
  EXPECT_EQ(pinned(), 5 * kMiB);
  void* small = allocate_raw(512, raw_a_);
  EXPECT_EQ(pinned(), 5 * kMiB + 128 * kKiB);
  free_raw(run, raw_a_);
  EXPECT_EQ(pinned(), 5 * kMiB + 128 * kKiB);
  void* part = allocate_raw(2 * kMiB, raw_a_);
  EXPECT_EQ(pinned(), 5 * kMiB + 128 * kKiB);
  free_raw(small, raw_a_);
  free_raw(part, raw_a_);
  EXPECT_EQ(pinned(), 5 * kMiB + 128 * kKiB);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.held_bytes, stats.live_requested_bytes + stats.waste_bytes + stats.cached_bytes +
                                  stats.pending_bytes + stats.free_bytes);
  EXPECT_EQ(stats.pending_bytes, 5 * kMiB + 128 * kKiB);
  end(raw_a_);
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  settle();
  EXPECT_EQ(pinned(), 0u);
  EXPECT_EQ(pool_->stats().pending_bytes, 0u);
}

TEST_F(PrivatePoolsTest, PinnedIsAlsoWhatWaitsForAnotherStreamAsWell) {
  begin(raw_a_);
  void* const run = allocate_raw(5 * kMiB, raw_a_);
  void* const small = allocate_raw(512, raw_a_);
  end(raw_a_);
  const std::uint64_t all = 5 * kMiB + 128 * kKiB;
  EXPECT_TRUE(work(raw_b_, run));
  EXPECT_TRUE(work(raw_b_, small));
  free_raw(run, raw_b_);
  EXPECT_EQ(pinned(), all);
  free_raw(small, raw_b_);
  EXPECT_EQ(pinned(), all);
  pool_->check_invariants();
  // Nor does anybody get it, or is told to wait for it.
  EXPECT_FALSE(pool_->allocate(60 * kMiB, b_).ok());
  EXPECT_EQ(misses(MissReason::pending), 0u) << pool_->last_failure().text();
  EXPECT_EQ(pinned(), all);
  device_.complete(raw_b_);
  settle();
  EXPECT_EQ(pinned(), all);
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  settle();
  EXPECT_EQ(pinned(), 0u);
}

TEST_F(PrivatePoolsTest, OnceReleasedWhatWaitsForOthersIsPinnedNoMore) {
  begin(raw_a_);
  void* const run = allocate_raw(5 * kMiB, raw_a_);
  end(raw_a_);
  const RawStream raw_c = device_.create_stream();
  const StreamRef c = pool_->adopt_stream(raw_c).value();
  EXPECT_TRUE(pool_->record_stream(run, b_));
  free(run, c);
  EXPECT_EQ(pinned(), 5 * kMiB);
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  device_.complete_all();
  pool_->maintain();
  EXPECT_EQ(pinned(), 0u);
  pool_->check_invariants();
}

TEST_F(PrivatePoolsTest, WhatACaptureHasUsedIsPinnedOnceItIsFreed) {
  void* const block = allocate(20 * kMiB, b_);
  begin(raw_a_);
  EXPECT_TRUE(pool_->record_stream(block, a_));
  end(raw_a_);
  EXPECT_TRUE(work(raw_b_, block));
  free(block, b_);
  EXPECT_EQ(pinned(), 20 * kMiB);
  device_.complete(raw_b_);
  settle();
  EXPECT_EQ(pinned(), 20 * kMiB);
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  settle();
  EXPECT_EQ(pinned(), 0u);
}

TEST_F(PrivatePoolsTest, WhatAPrivatePoolHasIsNeverSaidToBePending) {
  for (const Recycling recycling : {Recycling::off, Recycling::eager}) {
    PoolOptions options;
    options.capacity = 64 * kMiB;
    options.runtime.recycling = recycling;
    make_pool(options);
    begin(raw_a_);
    free_raw(allocate_raw(40 * kMiB, raw_a_), raw_a_);
    end(raw_a_);
    settle();
    EXPECT_FALSE(pool_->allocate(40 * kMiB, b_).ok());
    EXPECT_EQ(pool_->last_failure().reason, MissReason::budget) << pool_->last_failure().text();
    EXPECT_EQ(misses(MissReason::pending), 0u);
    const StatsV1 stats = pool_->stats();
    EXPECT_LE(stats.largest_satisfiable_bytes, 24 * kMiB);
    EXPECT_LE(stats.largest_free_block_bytes, 24 * kMiB);
    EXPECT_EQ(pool_->would_fit(40 * kMiB, b_), Fit::no);
    EXPECT_EQ(pool_->would_fit(40 * kMiB), Fit::no);
    // Served by growth, and not because something was waited for.
    free(allocate(20 * kMiB, b_), b_);
    EXPECT_EQ(misses(MissReason::pending), 0u);
    EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  }
}

TEST_F(PrivatePoolsTest, ManyCapturesThatNobodyAnnouncedPinAChunkEachUntilTheyAreReleased) {
  constexpr std::uint64_t kCaptures = 300;
  std::vector<CapturePoolId> ids;
  std::vector<void*> blocks;
  for (std::uint64_t i = 0; i < kCaptures; ++i) {
    // One that asks for nothing pins nothing.
    device_.begin_capture(raw_b_);
    device_.destroy_graph(device_.end_capture(raw_b_));
    device_.begin_capture(raw_a_);
    ids.push_back(unannounced_capture(device_.capture_id(raw_a_).value()));
    void* const block = allocate_raw(512, raw_a_);
    free_raw(block, raw_a_);
    // Its own, and nobody else's.
    EXPECT_EQ(allocate_raw(512, raw_a_), block);
    EXPECT_EQ(std::count(blocks.begin(), blocks.end(), block), 0);
    blocks.push_back(block);
    free_raw(block, raw_a_);
    device_.destroy_graph(device_.end_capture(raw_a_));
    EXPECT_EQ(pinned(), (i + 1) * 128 * kKiB);
  }
  // In an order of its own, and half of them first.
  for (std::size_t i = 0; i < ids.size(); i += 2) EXPECT_TRUE(pool_->release_pool(ids[i]).ok());
  pool_->maintain();
  EXPECT_EQ(pinned(), kCaptures / 2 * 128 * kKiB);
  for (std::size_t i = ids.size(); i-- > 0;) EXPECT_TRUE(pool_->release_pool(ids[i]).ok());
  pool_->maintain();
  EXPECT_EQ(pinned(), 0u);
  EXPECT_TRUE(can_have(64 * kMiB, b_));
  pool_->check_invariants();
}

TEST_F(PrivatePoolsTest, ManyUsersOfABlockAndAPrivatePoolThatLasts) {
  // A fence of streams without a graph is not held up by somebody's pseudo-stream, whatever index
  // that has.
  begin(raw_a_);
  free_raw(allocate_raw(4 * kMiB, raw_a_), raw_a_);
  end(raw_a_);
  std::vector<StreamRef> streams;
  void* block = allocate(40 * kMiB);
  for (int i = 0; i < 66; ++i) {
    const RawStream raw = device_.create_stream();
    streams.push_back(pool_->adopt_stream(raw).value());
    EXPECT_TRUE(timed_work(raw, at(block, 0)));
    device_.complete(raw);
    EXPECT_TRUE(pool_->record_stream(block, streams.back()));
  }
  free(block);
  device_.complete_all();
  EXPECT_TRUE(can_have(56 * kMiB, b_));
}

TEST_F(PrivatePoolsTest, AFenceWithAGraphIsPinned) {
  void* block = allocate(40 * kMiB);
  begin(raw_a_);
  EXPECT_TRUE(pool_->record_stream(block, a_));
  end(raw_a_);
  for (int i = 0; i < 8; ++i) {
    const StreamRef stream = pool_->adopt_stream(device_.create_stream()).value();
    EXPECT_TRUE(pool_->record_stream(block, stream));
  }
  free(block, b_);
  device_.complete_all();
  EXPECT_FALSE(can_have(40 * kMiB, b_));
  EXPECT_EQ(misses(MissReason::pending), 0u);
  EXPECT_TRUE(pool_->release_pool(kGraph).ok());
  EXPECT_TRUE(can_have(40 * kMiB, b_));
}

TEST_F(PrivatePoolsTest, APoolEndsWithPrivatePoolsThatWereNotReleased) {
  for (const bool is_live : {false, true}) {
    make_pool_of(64 * kMiB);
    misuses_.clear();
    begin(raw_a_);
    void* block = allocate_raw(10 * kMiB, raw_a_);
    EXPECT_TRUE(timed_work(raw_a_, block, 10 * kMiB));
    if (!is_live) free_raw(block, raw_a_);
    const SimulatedGraph graph = end(raw_a_);
    const RawStream unknown = device_.create_stream();
    EXPECT_TRUE(device_.launch_graph(graph, unknown).ok());
    pool_.reset();  // waits for the graph, on a stream that it has never seen
    EXPECT_TRUE(device_.is_idle(unknown));
    EXPECT_EQ(misuses_.size(), is_live ? 1u : 0u);
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
  }
}

TEST_F(PrivatePoolsTest, AGraphsMemoryComesBackWhileAnotherPrivatePoolIsInUse) {
  // As a MemPool around the whole training.
  ASSERT_TRUE(pool_->begin_allocate_to_pool(kOther, only(raw_b_)).ok());
  free_raw(allocate_raw(kMiB, raw_b_), raw_b_);
  for (int round = 0; round < 10; ++round) {
    begin(raw_a_);
    free_raw(allocate_raw(20 * kMiB, raw_a_), raw_a_);
    device_.destroy_graph(end(raw_a_));
    EXPECT_TRUE(pool_->release_pool(kGraph).ok());
    pool_->maintain();
  }
  EXPECT_TRUE(pool_->end_allocate_to_pool(kOther).ok());
}

TEST_F(PrivatePoolsTest, OfSeveralTheOneThatWasBegunLastServes) {
  const auto all = [](RawStream) { return true; };
  ASSERT_TRUE(pool_->begin_allocate_to_pool(kGraph, all).ok());
  void* const of_graph = allocate_raw(4 * kMiB, raw_a_);
  free_raw(of_graph, raw_a_);
  ASSERT_TRUE(pool_->begin_allocate_to_pool(kOther, all).ok());
  void* const of_other = allocate_raw(4 * kMiB, raw_a_);
  EXPECT_NE(of_other, of_graph);
  ASSERT_TRUE(pool_->begin_allocate_to_pool(kGraph, all).ok());
  EXPECT_EQ(allocate_raw(4 * kMiB, raw_a_), of_graph);
  free_raw(of_other, raw_a_);
  free_raw(of_graph, raw_a_);
}

TEST_F(PrivatePoolsTest, APrivateBlockIsFreedByAnyThread) {
  begin(raw_a_);
  void* block = allocate_raw(40 * kMiB, raw_a_);
  std::thread([&] { free_raw(block, raw_a_); }).join();
  EXPECT_EQ(allocate_raw(40 * kMiB, raw_a_), block);
  free_raw(block, raw_a_);
  EXPECT_FALSE(pool_->deallocate(block, raw_a_));
  EXPECT_EQ(count(Misuse::double_free), 1u);
  end(raw_a_);
}

TEST_F(PrivatePoolsTest, CapturesBesideOtherThreads) {
  make_pool_of(512 * kMiB);
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const RawStream raw = device_.create_stream();
      const StreamRef stream = pool_->adopt_stream(raw).value();
      for (std::uint64_t n = 1; !is_over.load(); ++n) {
        const auto block = pool_->allocate(n * 7919 % (2 * kMiB) + 1, stream);
        if (!block.ok()) continue;
        EXPECT_TRUE(pool_->deallocate(block.value(), stream));
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    begin(raw_a_);
    void* block = allocate_raw(kMiB, raw_a_);
    void* small = allocate_raw(512, raw_a_);
    free_raw(block, raw_a_);
    free_raw(small, raw_a_);
    device_.destroy_graph(end(raw_a_));
    if (i % 10 == 9) {
      EXPECT_TRUE(pool_->release_pool(kGraph).ok());
      pool_->maintain();
    }
  }
  is_over.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gpupool
