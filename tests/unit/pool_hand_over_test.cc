// What one thread frees and another allocates on the same stream: in whole chains, none lost,
// within the bound, whoever sleeps.
#include <algorithm>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"
#include "tests/unit/worker.h"

namespace gpupool {
namespace {

constexpr std::uint64_t kHandOverLimit = 32 * kMiB;
constexpr std::uint64_t kRun = 2 * kMiB;
constexpr std::size_t kInCache = kHandOverLimit / kRun;  // of a cache that is alone

class PoolHandOverTest : public PoolFixture {
 protected:
  void SetUp() override { make_pool({}); }
  void TearDown() override {
    device_.complete_all();
    pool_->maintain();
    pool_->check_invariants();
    EXPECT_EQ(pool_->stats().live_blocks, 0u);
    pool_->trim(0);
    // A block that was lost on its way would still be held.
    EXPECT_EQ(pool_->stats().held_bytes, 0u);
  }

  std::vector<void*> allocate_all(std::uint64_t bytes, std::size_t count, StreamRef stream) {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < count; ++i) blocks.push_back(allocate(bytes, stream));
    return blocks;
  }
  void free_by(Worker& worker, const std::vector<void*>& blocks, StreamRef stream) {
    worker.run([&] {
      for (void* const block : blocks) free(block, stream);
    });
  }
};

TEST_F(PoolHandOverTest, TheOlderHalfOfRunsComesTheNewestFirst) {
  Worker consumer;
  const std::vector<void*> blocks = allocate_all(kRun, kInCache + 1, a_);
  free_by(consumer, blocks, a_);
  const std::uint64_t shared = hits(Tier::run);
  std::vector<void*> again = allocate_all(kRun, kInCache / 2, a_);
  EXPECT_EQ(hits(Tier::run), shared);
  std::reverse(again.begin(), again.end());
  EXPECT_TRUE(std::equal(again.begin(), again.end(), blocks.begin()));
  for (void* const block : again) free(block, a_);
}

// Once both have found each other no block passes through the shared tiers.
TEST_F(PoolHandOverTest, RoundAndRoundWithoutTheSharedTiers) {
  for (const std::uint64_t bytes : {std::uint64_t{512}, 20 * kKiB, kMiB, kRun}) {
    Worker consumer;
    std::uint64_t shared = 0;
    const auto shared_hits = [&] {
      return hits(Tier::run) + hits(Tier::buddy) + hits(Tier::size_class);
    };
    for (int round = 0; round < 400; ++round) {
      if (round == 200) shared = shared_hits();
      free_by(consumer, allocate_all(bytes, 4, a_), a_);
      if (round % 50 == 0) pool_->check_invariants();
    }
    EXPECT_EQ(shared_hits(), shared) << bytes;
    EXPECT_EQ(pool_->stats().failures, 0u);
    pool_->drain_caches();
  }
}

TEST_F(PoolHandOverTest, WhatADepotMayHaveAndDoesNotIsForOthers) {
  Worker consumer;
  // A stream fills its depot, and takes everything out again.
  free_by(consumer, allocate_all(kRun, 2 * kInCache, a_), a_);
  std::vector<void*> held = allocate_all(kRun, kInCache, a_);
  pool_->check_invariants();
  Worker other;
  const std::vector<void*> blocks = allocate_all(kRun, kInCache, b_);
  free_by(other, blocks, b_);
  const std::uint64_t before = hits(Tier::cache);
  void* const block = allocate(kRun, b_);
  EXPECT_EQ(hits(Tier::cache), before + 1);
  EXPECT_NE(std::find(blocks.begin(), blocks.end(), block), blocks.end());
  free(block, b_);
  for (void* const each : held) free(each, a_);
}

TEST_F(PoolHandOverTest, ManyStreamsStayWithinTheBoundOfTheDevice) {
  constexpr std::size_t kStreams = 6;
  std::vector<StreamRef> streams;
  for (std::size_t i = 0; i < kStreams; ++i) {
    streams.push_back(pool_->adopt_stream(device_.create_stream()).value());
  }
  Worker consumer;
  for (int round = 0; round < 20; ++round) {
    for (const StreamRef stream : streams) {
      free_by(consumer, allocate_all(round % 2 == 0 ? kRun : kMiB, 40, stream), stream);
      ASSERT_LE(pool_->stats().cached_bytes,
                kHandOverLimit * (1 + 1 / 2.0 + 1 / 3.0 + 1 / 4.0 + 1 / 5.0 + 1 / 6.0 + 1 / 7.0 +
                                  1 / 8.0 + 1 / 9.0 + 1 / 10.0 + 1 / 11.0 + 1 / 12.0) +
                    kHandOverLimit / 2);
      pool_->check_invariants();
    }
  }
}

// The consumer sleeps for ever: all it has can be had, and what was handed over, too.
TEST_F(PoolHandOverTest, NothingIsStranded) {
  Worker consumer;
  for (int round = 0; round < 30; ++round) {
    free_by(consumer, allocate_all(kRun, 40, a_), a_);
    ASSERT_LE(pool_->stats().cached_bytes, kHandOverLimit + kHandOverLimit / 2);
  }
  void* const all = allocate(pool_->stats().limit_bytes, a_);
  EXPECT_EQ(pool_->stats().cached_bytes, 0u);
  free(all, a_);
}

TEST_F(PoolHandOverTest, AStreamsEndTakesWhatWasHandedOver) {
  Worker consumer;
  free_by(consumer, allocate_all(kRun, 2 * kInCache, b_), b_);
  free_by(consumer, allocate_all(512, 500, b_), b_);
  EXPECT_GT(pool_->stats().cached_bytes, 0u);
  EXPECT_TRUE(pool_->release_stream(b_));
  EXPECT_EQ(pool_->stats().cached_bytes, 0u);
}

}  // namespace
}  // namespace gpupool
