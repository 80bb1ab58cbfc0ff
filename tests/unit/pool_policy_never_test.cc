// CrossStreamPolicy::never: what a stream has freed is its alone.
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/policy_fixture.h"

namespace gpupool {
namespace {

class NeverPolicyTest : public PolicyFixture {
 protected:
  void SetUp() override { make_pool_with(CrossStreamPolicy::never, 64 * kMiB, Recycling::off); }
};

TEST_F(NeverPolicyTest, WhatAStreamHasFreedIsItsAloneAlsoWhenItIsDone) {
  for (const std::uint64_t bytes : {std::uint64_t{512}, 100 * kKiB, 40 * kMiB}) {
    SetUp();
    void* block = allocate(bytes);
    free(block);
    settle();
    void* other = allocate(20 * kMiB, b_);
    free(other, b_);
    settle();
    EXPECT_TRUE(is_refused(40 * kMiB, b_) || bytes < kMiB);
    EXPECT_EQ(allocate(bytes), block);
    free(block);
  }
  EXPECT_EQ(reuses(CrossStreamReuse::dependency), 0u);
}

TEST_F(NeverPolicyTest, ADependencyChangesNothing) {
  free(allocate(40 * kMiB));
  depend(raw_a_, a_, raw_b_, b_);
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
}

TEST_F(NeverPolicyTest, ItIsEverybodysOnceTheStreamIsReleasedAndDone) {
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  settle();
  EXPECT_TRUE(pool_->release_stream(a_));
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  device_.complete_all();
  settle();
  EXPECT_EQ(allocate(40 * kMiB, b_), block);
  free(block, b_);
}

TEST_F(NeverPolicyTest, WhatIsTrimmedOthersGetAnew) {
  free(allocate(40 * kMiB));
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  EXPECT_EQ(pool_->trim(0), 40 * kMiB);
  free(allocate(40 * kMiB, b_), b_);
}

TEST_F(NeverPolicyTest, PagesOnWhichAnythingLiesAreNotTrimmed) {
  make_pool_with(CrossStreamPolicy::never);
  void* kept = allocate(kMiB);
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  pool_->trim(0);
  EXPECT_EQ(device_.held_bytes(), 42 * kMiB);
  device_.complete_all();
  pool_->trim(0);
  EXPECT_EQ(device_.held_bytes(), 2 * kMiB);
  // What is left of that page is still the stream's.
  EXPECT_TRUE(is_refused(63 * kMiB, b_));
  free(kept);
}

TEST_F(NeverPolicyTest, APageThatStreamsShareIsTrimmedOnceAllAreDone) {
  make_pool_with(CrossStreamPolicy::never);
  std::vector<void*> blocks;
  for (const StreamRef stream : {a_, b_, a_, b_}) {
    blocks.push_back(allocate(512 * kKiB, stream));
    EXPECT_TRUE(work(stream == a_ ? raw_a_ : raw_b_, blocks.back()));
  }
  free(blocks[0], a_);
  free(blocks[2], a_);
  free(blocks[1], b_);
  free(blocks[3], b_);
  device_.complete(raw_a_);
  EXPECT_EQ(pool_->trim(0), 0u);
  device_.complete(raw_b_);
  EXPECT_EQ(pool_->trim(0), 2 * kMiB);
}

TEST_F(NeverPolicyTest, WholePagesThatAreDoneGoWhereThePoolWouldGrow) {
  make_pool_with(CrossStreamPolicy::never);
  void* block = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, block));
  free(block);
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  device_.complete_all();
  void* other = allocate(40 * kMiB, b_);
  EXPECT_EQ(device_.held_bytes(), 40 * kMiB);
  free(other, b_);
}

TEST_F(NeverPolicyTest, WhatOthersUsedComesBackToWhoFreedIt) {
  void* block = allocate(64 * kMiB);
  EXPECT_TRUE(pool_->record_stream(block, b_));
  EXPECT_TRUE(work(raw_b_, block));
  free(block);
  settle();
  EXPECT_TRUE(is_refused(64 * kMiB, a_));
  device_.complete_all();
  settle();
  EXPECT_TRUE(is_refused(64 * kMiB, b_));
  EXPECT_EQ(allocate(64 * kMiB), block);
  free(block);
  // Parts of a chunk go back to the chunk's stream.
  make_pool_with(CrossStreamPolicy::never, 2 * kMiB, Recycling::off);
  std::vector<void*> parts;
  for (int i = 0; i < 32; ++i) parts.push_back(allocate(64 * kKiB));
  for (void* part : parts) free(part, b_);
  settle();
  for (void*& part : parts) part = allocate(64 * kKiB);
  for (void* part : parts) free(part);
}

TEST_F(NeverPolicyTest, NothingIsSaidToBePendingForAnother) {
  free(allocate(64 * kMiB));
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  EXPECT_NE(pool_->last_failure().reason, MissReason::pending) << pool_->last_failure().text();
  EXPECT_EQ(pool_->would_fit(40 * kMiB, b_), Fit::no);
  EXPECT_EQ(pool_->would_fit(40 * kMiB, a_), Fit::now);
}

TEST_F(NeverPolicyTest, ThePolicyMayChange) {
  void* block = allocate(40 * kMiB);
  free(block);
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  RuntimeOptions options = pool_->runtime_options();
  options.policy = CrossStreamPolicy::when_done;
  EXPECT_TRUE(pool_->reconfigure(options).ok());
  EXPECT_EQ(allocate(40 * kMiB, b_), block);
  free(block, b_);
  settle();
  options.policy = CrossStreamPolicy::never;
  EXPECT_TRUE(pool_->reconfigure(options).ok());
  EXPECT_EQ(allocate(40 * kMiB), block);  // what was everybody's still is
  free(block);
  settle();
  EXPECT_TRUE(is_refused(40 * kMiB, b_));
  options.policy = CrossStreamPolicy::wait;
  EXPECT_TRUE(pool_->reconfigure(options).ok());
  EXPECT_EQ(allocate(40 * kMiB, b_), block);
  free(block, b_);
}

}  // namespace
}  // namespace gpupool
