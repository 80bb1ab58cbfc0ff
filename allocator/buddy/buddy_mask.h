// The binary buddy system on 32 units, in one word: bit i is set where unit i is free.
//
// A block of u units starts at a multiple of the power of two that u rounds up to, as in Knuth,
// TAOCP vol. 1, 2.5 (buddy system), but only u bits are taken: the tail of the rounded block stays
// free, as in Linux's alloc_pages_exact. Buddies need no merging: a free neighbour is a set bit.
//
// Worst case, for powers of two: M live units in blocks of up to n units need at most
// M * (1 + log2(n) / 2) units (Robson, "Bounds for some functions concerning dynamic storage
// allocation", JACM 21 (1974)); for n = 32 that is 3.5 times, which is why the buddy ends at
// 128 KiB. docs/adr/ has the measurements.
#ifndef GPUPOOL_BUDDY_BUDDY_MASK_H_
#define GPUPOOL_BUDDY_BUDDY_MASK_H_

#include <algorithm>
#include <bit>
#include <cstdint>

namespace gpupool::internal {

using UnitMask = std::uint32_t;
inline constexpr std::uint32_t kMaskUnits = 32;

/// The mask of units [first, first + units).
constexpr UnitMask unit_mask(std::uint32_t first, std::uint32_t units) {
  return (units == kMaskUnits ? ~UnitMask{0} : (UnitMask{1} << units) - 1) << first;
}

/// Units that a block starting at `unit` can have: its free units, but no more than the largest
/// power of two that divides `unit`.
constexpr std::uint32_t buddy_room(UnitMask free, std::uint32_t unit) {
  const UnitMask from = free >> unit;
  const auto ones = static_cast<std::uint32_t>(std::countr_one(from));
  const std::uint32_t aligned = unit == 0 ? kMaskUnits : unit & (~unit + 1);
  return std::min(ones, aligned);
}

/// The largest block that fits, in units.
constexpr std::uint32_t largest_buddy(UnitMask free) {
  std::uint32_t largest = 0;
  for (UnitMask rest = free; rest != 0; rest &= rest - 1) {
    largest =
        std::max(largest, buddy_room(free, static_cast<std::uint32_t>(std::countr_zero(rest))));
  }
  return largest;
}

/// Where a block of `units` goes: the place with the least room to spare, the lowest of equals;
/// kMaskUnits if there is none.
constexpr std::uint32_t find_buddy(UnitMask free, std::uint32_t units) {
  std::uint32_t best = kMaskUnits;
  std::uint32_t best_room = kMaskUnits + 1;
  for (UnitMask rest = free; rest != 0; rest &= rest - 1) {
    const auto unit = static_cast<std::uint32_t>(std::countr_zero(rest));
    const std::uint32_t room = buddy_room(free, unit);
    if (room >= units && room < best_room) {
      best = unit;
      best_room = room;
    }
  }
  return best;
}

static_assert(largest_buddy(~UnitMask{0}) == 32 && largest_buddy(0) == 0);
static_assert(largest_buddy(0xfffffffe) == 16 && find_buddy(0xfffffffe, 9) == 16);
static_assert(find_buddy(0x0000ff0f, 4) == 0 && find_buddy(0x0000ff0f, 5) == 8);

}  // namespace gpupool::internal

#endif  // GPUPOOL_BUDDY_BUDDY_MASK_H_
