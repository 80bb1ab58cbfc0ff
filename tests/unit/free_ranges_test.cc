#include "backend/free_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace gpupool::internal {
namespace {

TEST(FreeRanges, TakesTheSmallestHoleThatFits) {
  FreeRanges ranges(0, 1000);
  const auto a = ranges.take(100, 1);
  const auto b = ranges.take(50, 1);
  const auto c = ranges.take(300, 1);
  ASSERT_TRUE(a && b && c);
  ASSERT_TRUE(ranges.take(10, 1));
  ranges.give_back(*a, 100);
  ranges.give_back(*c, 300);
  EXPECT_EQ(ranges.take(80, 1), a);   // the hole of 100, not that of 300
  EXPECT_EQ(ranges.take(200, 1), c);  // too large for what is left of the first
}

TEST(FreeRanges, AlignsAndKeepsTheGap) {
  FreeRanges ranges(3, 64);
  EXPECT_EQ(ranges.take(16, 16), 16u);
  EXPECT_EQ(ranges.take(13, 1), 3u);  // exactly the gap before it
  EXPECT_EQ(ranges.take(16, 16), 32u);
  EXPECT_EQ(ranges.take(17, 1), std::nullopt);
}

TEST(FreeRanges, JoinsNeighbours) {
  FreeRanges ranges(0, 300);
  ASSERT_EQ(ranges.take(100, 1), 0u);
  ASSERT_EQ(ranges.take(100, 1), 100u);
  ASSERT_EQ(ranges.take(100, 1), 200u);
  ASSERT_EQ(ranges.take(1, 1), std::nullopt);
  ranges.give_back(0, 100);
  ranges.give_back(200, 100);
  EXPECT_EQ(ranges.take(101, 1), std::nullopt);
  ranges.give_back(100, 100);
  EXPECT_EQ(ranges.take(300, 1), 0u);
}

TEST(FreeRanges, RefusesWhatIsLargerThanEverything) {
  FreeRanges ranges(100, 200);
  EXPECT_EQ(ranges.take(101, 1), std::nullopt);
  EXPECT_EQ(ranges.take(~std::uint64_t{0}, 1), std::nullopt);
  EXPECT_EQ(ranges.take(1, std::uint64_t{1} << 63), std::nullopt);
  EXPECT_EQ(ranges.take(100, 1), 100u);
}

TEST(FreeRanges, NeverGivesAByteTwice) {
  constexpr std::uint64_t kBytes = 512;
  FreeRanges ranges(0, kBytes);
  std::vector<bool> taken(kBytes, false);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> live;
  std::mt19937_64 random(7);
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0 || live.empty()) {
      const std::uint64_t bytes = 1 + random() % 40;
      const std::uint64_t alignment = std::uint64_t{1} << random() % 5;
      const auto begin = ranges.take(bytes, alignment);
      if (!begin) continue;
      ASSERT_EQ(*begin % alignment, 0u);
      ASSERT_LE(*begin + bytes, kBytes);
      for (std::uint64_t i = *begin; i < *begin + bytes; ++i) {
        ASSERT_FALSE(taken[i]);
        taken[i] = true;
      }
      live.emplace_back(*begin, bytes);
    } else {
      std::swap(live[random() % live.size()], live.back());
      const auto [begin, bytes] = live.back();
      live.pop_back();
      ranges.give_back(begin, bytes);
      for (std::uint64_t i = begin; i < begin + bytes; ++i) taken[i] = false;
    }
  }
  for (const auto& [begin, bytes] : live) ranges.give_back(begin, bytes);
  EXPECT_EQ(ranges.take(kBytes, 1), 0u);
}

}  // namespace
}  // namespace gpupool::internal
