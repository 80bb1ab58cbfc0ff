// The buddy's bit tricks against the words of its header, spelled out: every size on a great many
// masks, and every list of up to six operations on a world of eight units.
#include "buddy/buddy_mask.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace gpupool::internal {
namespace {

bool is_free(UnitMask free, std::uint32_t first, std::uint32_t units) {
  if (first + units > kMaskUnits) return false;
  for (std::uint32_t unit = first; unit < first + units; ++unit) {
    if ((free >> unit & 1) == 0) return false;
  }
  return true;
}

std::uint32_t rounded_up(std::uint32_t units) {
  std::uint32_t power = 1;
  while (power < units) power *= 2;
  return power;
}

/// The most units that a block at `unit` may have.
std::uint32_t naive_room(UnitMask free, std::uint32_t unit) {
  std::uint32_t room = 0;
  for (std::uint32_t units = 1; units <= kMaskUnits; ++units) {
    if (unit % rounded_up(units) == 0 && is_free(free, unit, units)) room = units;
  }
  return room;
}

std::uint32_t naive_find(UnitMask free, std::uint32_t units) {
  std::uint32_t best = kMaskUnits;
  for (std::uint32_t unit = 0; unit < kMaskUnits; ++unit) {
    if (naive_room(free, unit) < units) continue;
    if (best == kMaskUnits || naive_room(free, unit) < naive_room(free, best)) best = unit;
  }
  return best;
}

void check_mask(UnitMask free) {
  std::uint32_t largest = 0;
  for (std::uint32_t unit = 0; unit < kMaskUnits; ++unit) {
    const std::uint32_t room = naive_room(free, unit);
    ASSERT_EQ(buddy_room(free, unit), room) << std::hex << free << " at " << unit;
    largest = std::max(largest, room);
  }
  ASSERT_EQ(largest_buddy(free), largest) << std::hex << free;
  for (std::uint32_t units = 1; units <= kMaskUnits; ++units) {
    const std::uint32_t found = find_buddy(free, units);
    ASSERT_EQ(found, naive_find(free, units)) << std::hex << free << " for " << units;
    ASSERT_EQ(found == kMaskUnits, units > largest) << std::hex << free << " for " << units;
  }
}

TEST(BuddyMaskTest, UnitMasks) {
  for (std::uint32_t first = 0; first < kMaskUnits; ++first) {
    for (std::uint32_t units = 1; first + units <= kMaskUnits; ++units) {
      UnitMask expected = 0;
      for (std::uint32_t unit = first; unit < first + units; ++unit) expected |= 1U << unit;
      ASSERT_EQ(unit_mask(first, units), expected);
    }
  }
}

TEST(BuddyMaskTest, EverySizeOnEveryMaskOfTwelveUnitsWhereverTheyLie) {
  for (std::uint32_t low = 0; low < 1U << 12; ++low) {
    check_mask(low);
    check_mask(low << 20);
    check_mask(low << 10 | 0xffc00000U);
  }
}

TEST(BuddyMaskTest, EverySizeOnRandomMasks) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto a = static_cast<std::uint32_t>(random());
    const auto b = static_cast<std::uint32_t>(random());
    check_mask(i % 3 == 0 ? a : i % 3 == 1 ? a & b : a | b);
  }
}

/// The last eight units are the world; the rest is never free. Beside the mask it has a list of
/// blocks, and each unit is free or in exactly one of them.
class SmallWorld {
 public:
  static constexpr std::uint32_t kUnits = 8;
  static constexpr std::uint32_t kFirst = kMaskUnits - kUnits;

  bool allocate(std::uint32_t units) {
    const std::uint32_t at = find_buddy(free_, units);
    const bool can_be = naive_find(free_, units) != kMaskUnits;
    EXPECT_EQ(at != kMaskUnits, can_be);
    if (at == kMaskUnits) return false;
    EXPECT_GE(at, kFirst);
    EXPECT_EQ(at % rounded_up(units), 0u);
    EXPECT_TRUE(is_free(free_, at, units));
    free_ &= ~unit_mask(at, units);
    blocks_.push_back({at, units});
    return true;
  }
  void free_block(std::size_t index) {
    const auto [at, units] = blocks_[index];
    free_ |= unit_mask(at, units);
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  std::size_t block_count() const { return blocks_.size(); }
  void check() const {
    UnitMask seen = free_ | ~unit_mask(kFirst, kUnits);
    for (const auto& [at, units] : blocks_) {
      ASSERT_EQ(seen & unit_mask(at, units), 0u);
      seen |= unit_mask(at, units);
    }
    ASSERT_EQ(seen, ~UnitMask{0});
    if (blocks_.empty()) {
      ASSERT_EQ(largest_buddy(free_), kUnits);  // nothing has to be merged
    }
  }

 private:
  UnitMask free_ = unit_mask(kFirst, kUnits);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> blocks_;
};

std::uint64_t try_all(const SmallWorld& world, int operations) {
  std::uint64_t lists = 1;
  if (operations == 0) return lists;
  for (std::uint32_t units = 1; units <= SmallWorld::kUnits; ++units) {
    SmallWorld next = world;
    if (!next.allocate(units)) continue;
    next.check();
    lists += try_all(next, operations - 1);
  }
  for (std::size_t i = 0; i < world.block_count(); ++i) {
    SmallWorld next = world;
    next.free_block(i);
    next.check();
    lists += try_all(next, operations - 1);
  }
  return lists;
}

TEST(BuddyMaskTest, EveryListOfSixOperationsOnEightUnits) {
  EXPECT_GT(try_all(SmallWorld(), 6), 10'000u);
}

}  // namespace
}  // namespace gpupool::internal
