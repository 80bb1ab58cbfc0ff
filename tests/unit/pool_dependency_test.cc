// What one stream has freed and another may have by an order that the program notes.
#include <thread>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/policy_fixture.h"

namespace gpupool {
namespace {

class DependencyTest : public PolicyFixture {
 protected:
  void SetUp() override { make_pool_with(CrossStreamPolicy::when_done); }
};

TEST_F(DependencyTest, WhatTheSourceFreedByThenIsTheDestinations) {
  for (const std::uint64_t bytes : {40 * kMiB, 64 * kMiB}) {
    SetUp();
    void* block = allocate(bytes);
    EXPECT_TRUE(work(raw_a_, block, bytes));
    free(block);
    EXPECT_TRUE(is_refused(bytes, b_));
    depend(raw_a_, a_, raw_b_, b_);
    EXPECT_EQ(pool_->stats().cached_bytes, 0u);
    EXPECT_EQ(allocate(bytes, b_), block);
    EXPECT_TRUE(work(raw_b_, block, bytes)) << device_.last_violation();
    EXPECT_EQ(reuses(CrossStreamReuse::dependency), 1u);
    EXPECT_EQ(pool_->stats().stream_waits, 0u);
    free(block, b_);
    // Not the other way round.
    EXPECT_TRUE(is_refused(bytes, a_));
    device_.complete_all();
  }
}

TEST_F(DependencyTest, SmallBlocksToo) {
  for (const std::uint64_t bytes : {std::uint64_t{512}, 30 * kKiB, 100 * kKiB}) {
    make_pool_with(CrossStreamPolicy::when_done, 2 * kMiB);
    std::vector<void*> blocks;
    for (std::uint64_t i = 0; i < 16; ++i) {
      blocks.push_back(allocate(128 * kKiB));
      EXPECT_TRUE(work(raw_a_, blocks.back(), 128 * kKiB));
    }
    for (void* block : blocks) free(block);
    EXPECT_TRUE(is_refused(bytes, b_));
    depend(raw_a_, a_, raw_b_, b_);
    void* block = allocate(bytes, b_);
    EXPECT_TRUE(work(raw_b_, block, bytes)) << device_.last_violation();
    free(block, b_);
    device_.complete_all();
  }
}

TEST_F(DependencyTest, WhatIsFreedLaterIsNot) {
  void* first = allocate(20 * kMiB);
  void* second = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, first));
  free(first);
  depend(raw_a_, a_, raw_b_, b_);
  EXPECT_TRUE(work(raw_a_, second));
  free(second);
  pool_->drain_caches();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  // Nor what has joined it, beyond what its pages are known for.
  if (const auto block = pool_->allocate(20 * kMiB, b_); block.ok()) {
    EXPECT_TRUE(work(raw_b_, block.value(), 20 * kMiB)) << device_.last_violation();
    free(block.value(), b_);
  }
}

TEST_F(DependencyTest, WhatComesAfterTheDestinationComesAfterTheSource) {
  const RawStream raw_c = device_.create_stream();
  const StreamRef c = pool_->adopt_stream(raw_c).value();
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  depend(raw_a_, a_, raw_b_, b_);
  EXPECT_TRUE(is_refused(40 * kMiB, c));
  depend(raw_b_, b_, raw_c, c);
  EXPECT_EQ(allocate(40 * kMiB, c), block);
  EXPECT_TRUE(work(raw_c, block)) << device_.last_violation();
  free(block, c);
}

TEST_F(DependencyTest, BlocksOfOnesOwnThatTheSourceFreed) {
  make_pool_with(CrossStreamPolicy::when_done, 2 * kMiB);
  // All there is, in chunks of b.
  std::vector<void*> blocks;
  for (std::uint64_t i = 0; i < 32; ++i) blocks.push_back(allocate(64 * kKiB, b_));
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    EXPECT_TRUE(work(raw_a_, blocks[i], 64 * kKiB));
    free(blocks[i], a_);
  }
  pool_->drain_caches();
  EXPECT_TRUE(is_refused(64 * kKiB, b_));
  depend(raw_a_, a_, raw_b_, b_);
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    blocks[i] = allocate(64 * kKiB, b_);
    EXPECT_TRUE(work(raw_b_, blocks[i], 64 * kKiB)) << device_.last_violation();
  }
  for (void* block : blocks) free(block, b_);
}

TEST_F(DependencyTest, AnotherStreamOfTheSameIndexComesAfterNothing) {
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  depend(raw_a_, a_, raw_b_, b_);
  EXPECT_TRUE(pool_->release_stream(b_));
  const StreamRef next = pool_->adopt_stream(device_.create_stream()).value();
  EXPECT_TRUE(is_refused(40 * kMiB, next));
}

TEST_F(DependencyTest, NoneIsNotedInACapture) {
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  for (const RawStream captured : {raw_a_, raw_b_}) {
    device_.begin_capture(captured);
    EXPECT_FALSE(pool_->note_dependency(a_, b_));
    device_.destroy_graph(device_.end_capture(captured));
    EXPECT_TRUE(is_refused(40 * kMiB, b_));
  }
  EXPECT_FALSE(pool_->note_dependency(a_, StreamRef()));
  EXPECT_FALSE(pool_->note_dependency(StreamRef(), b_));
  EXPECT_TRUE(pool_->note_dependency(a_, a_));
}

TEST_F(DependencyTest, NotOfAnotherThreadsOwnStream) {
  std::thread([&] {
    const StreamRef own = pool_->adopt_stream(per_thread_stream()).value();
    void* block = allocate(40 * kMiB, own);
    EXPECT_TRUE(work(per_thread_stream(), block));
    free(block, own);
    std::thread([&] {
      // What it frees meanwhile would fall into the same epoch.
      EXPECT_FALSE(pool_->note_dependency(own, b_));
      EXPECT_TRUE(is_refused(40 * kMiB, b_));
    }).join();
    order(per_thread_stream(), raw_b_);
    EXPECT_TRUE(pool_->note_dependency(own, b_));
  }).join();
  void* block = allocate(40 * kMiB, b_);
  EXPECT_TRUE(work(raw_b_, block)) << device_.last_violation();
  free(block, b_);
}

TEST_F(DependencyTest, OfManyStreamsTheOldestIsForgotten) {
  make_pool_of(512 * kMiB);
  for (int i = 0; i < 100; ++i) {
    const RawStream raw = device_.create_stream();
    const StreamRef stream = pool_->adopt_stream(raw).value();
    void* block = allocate(4 * kMiB, stream);
    EXPECT_TRUE(work(raw, block));
    free(block, stream);
    depend(raw, stream, raw_b_, b_);
  }
  std::vector<void*> blocks;
  for (int i = 0; i < 128; ++i) {
    const auto block = pool_->allocate(4 * kMiB, b_);
    if (!block.ok()) break;
    blocks.push_back(block.value());
    EXPECT_TRUE(work(raw_b_, blocks.back(), 4 * kMiB)) << device_.last_violation();
  }
  EXPECT_GE(reuses(CrossStreamReuse::dependency), 20u);
  EXPECT_GE(blocks.size(), 48u);
  for (void* block : blocks) free(block, b_);
}

}  // namespace
}  // namespace gpupool
