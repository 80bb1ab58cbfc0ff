// Who may be inside a cache: its owner or one claimer, never both, in both forms of the claim.
#include "cache/claim.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/heavy_fence.h"

namespace gpupool::internal {
namespace {

class ClaimTest : public testing::TestWithParam<bool> {
 protected:
  ClaimTest() { claim_.start(has_fence()); }

  /// Where the system refuses the fence, the other form is tested twice.
  static bool has_fence() { return GetParam() && has_heavy_fence(); }

  Claim claim_;
};

TEST_P(ClaimTest, IsOpenUntilItIsClaimedAndAgainAfterwards) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(claim_.enter());
    EXPECT_FALSE(claim_.is_outside());
    claim_.leave();
    EXPECT_TRUE(claim_.is_outside());
    claim_.claim();
    EXPECT_FALSE(claim_.enter());
    EXPECT_TRUE(claim_.is_outside());  // whoever is refused has entered nothing
    claim_.release();
  }
}

TEST_P(ClaimTest, AnOwnerInsideIsSeen) {
  ASSERT_TRUE(claim_.enter());
  claim_.claim();
  EXPECT_FALSE(claim_.is_outside());
  claim_.leave();
  EXPECT_TRUE(claim_.is_outside());
  EXPECT_FALSE(claim_.enter());
  claim_.release();
  EXPECT_TRUE(claim_.enter());
  claim_.leave();
}

TEST_P(ClaimTest, AnEndIsForGood) {
  EXPECT_FALSE(claim_.has_ended());
  claim_.claim();
  claim_.end();
  claim_.release();
  EXPECT_TRUE(claim_.has_ended());
  EXPECT_FALSE(claim_.enter());
  claim_.start(has_fence());
  EXPECT_FALSE(claim_.has_ended());
  EXPECT_TRUE(claim_.enter());
  claim_.leave();
}

TEST_P(ClaimTest, ABarStaysThroughClaimsUntilItIsLifted) {
  ASSERT_TRUE(claim_.enter());
  claim_.bar();
  EXPECT_FALSE(claim_.is_outside());  // whoever is inside may finish
  claim_.leave();
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(claim_.enter());
    EXPECT_TRUE(claim_.is_shut());
    EXPECT_FALSE(claim_.has_ended());
    claim_.claim();
    EXPECT_TRUE(claim_.is_outside());
    claim_.release();
  }
  claim_.unbar();
  EXPECT_FALSE(claim_.is_shut());
  EXPECT_TRUE(claim_.enter());
  claim_.leave();
  claim_.start(has_fence(), true);
  EXPECT_FALSE(claim_.enter());
  claim_.end();
  claim_.unbar();
  EXPECT_TRUE(claim_.is_shut());
}

TEST(ClaimBeforeItsStartTest, NobodyGetsIn) {
  Claim claim;
  EXPECT_TRUE(claim.has_ended());
  EXPECT_FALSE(claim.enter());
}

// Two plain counters that both sides move: under ThreadSanitizer a race would be reported, without
// it the two would come apart.
TEST_P(ClaimTest, OwnerAndClaimerAreNeverBothInside) {
  std::atomic<bool> is_over{false};
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::atomic<std::uint64_t> torn{0};
  std::atomic<int> inside{0};
  const auto step = [&] {
    if (inside.exchange(1, std::memory_order_relaxed) != 0) ++torn;
    if (first != second) ++torn;
    ++first;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    ++second;
    inside.store(0, std::memory_order_relaxed);
  };
  std::uint64_t entered = 0;
  std::uint64_t refused = 0;
  std::thread owner([&] {
    while (!is_over.load(std::memory_order_relaxed)) {
      if (!claim_.enter()) {
        ++refused;
        continue;
      }
      ++entered;
      step();
      claim_.leave();
    }
  });
  std::uint64_t claimed = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  while (std::chrono::steady_clock::now() < end) {
    claim_.claim();
    if (has_fence()) heavy_fence();
    while (!claim_.is_outside()) std::this_thread::yield();
    step();
    claim_.release();
    ++claimed;
    std::this_thread::yield();
  }
  is_over = true;
  owner.join();
  EXPECT_EQ(torn, 0u);
  EXPECT_EQ(first, entered + claimed);
  EXPECT_EQ(second, entered + claimed);
  EXPECT_GT(entered, 0u);
  EXPECT_GT(claimed, 0u);
}

INSTANTIATE_TEST_SUITE_P(Both, ClaimTest, testing::Values(true, false),
                         [](const auto& form) { return form.param ? "Fence" : "Exchange"; });

}  // namespace
}  // namespace gpupool::internal
