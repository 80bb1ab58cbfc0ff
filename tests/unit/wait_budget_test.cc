// How much requests may wait for pages to move.
#include "pool/wait_budget.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace gpupool::internal {
namespace {

constexpr std::uint64_t kMost = static_cast<std::uint64_t>(WaitBudget::kMostNs);

TEST(WaitBudgetTest, AStartMayTakeAllThatCanBeSavedUp) {
  WaitBudget budget;
  budget.use(0, kMost, 0.02);
  EXPECT_FALSE(budget.is_used_up(0, 0.02));
  budget.use(0, 1, 0.02);
  EXPECT_TRUE(budget.is_used_up(0, 0.02));
}

TEST(WaitBudgetTest, AShareOfTheTimeComesBack) {
  WaitBudget budget;
  budget.use(0, kMost + 20 * kMs, 0.02);
  EXPECT_TRUE(budget.is_used_up(999 * kMs, 0.02));
  EXPECT_FALSE(budget.is_used_up(1001 * kMs, 0.02));
}

TEST(WaitBudgetTest, NoMoreThanSoMuchIsSavedUp) {
  WaitBudget budget;
  const std::uint64_t year = 365ull * 24 * 3600 * 1000 * kMs;
  EXPECT_FALSE(budget.is_used_up(year, 1.0));
  budget.use(year, kMost + 1, 0.5);
  EXPECT_TRUE(budget.is_used_up(year, 0.5));
}

TEST(WaitBudgetTest, ATimeThatIsEarlierAddsNothing) {
  WaitBudget budget;
  budget.use(1000 * kMs, kMost + kMs, 0.5);
  EXPECT_TRUE(budget.is_used_up(10, 0.5));
  EXPECT_TRUE(budget.is_used_up(1000 * kMs, 0.5));
}

TEST(WaitBudgetTest, TheWholeTimeIsNoBound) {
  WaitBudget budget;
  budget.use(0, 100 * kMost, 1.0);
  EXPECT_FALSE(budget.is_used_up(0, 1.0));
}

TEST(WaitBudgetTest, WithoutAShareThereIsNothing) {
  WaitBudget budget;
  EXPECT_TRUE(budget.is_used_up(0, 0.0));
  EXPECT_TRUE(budget.is_used_up(1'000'000 * kMs, 0.0));
}

}  // namespace
}  // namespace gpupool::internal
