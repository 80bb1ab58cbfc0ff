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
#include <array>
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

/// The units from which on `units` in a row are free. Requires: 0 < units <= kMaskUnits.
constexpr UnitMask heads_of(UnitMask free, std::uint32_t units) {
  // Doubling: where n are free, and n more after those.
  UnitMask heads = free;
  std::uint32_t sure = 1;
  for (; sure * 2 <= units; sure *= 2) heads &= heads >> sure;
  return units == sure ? heads : heads & heads >> (units - sure);
}

/// The units that are multiples of `step`, a power of two.
constexpr UnitMask multiples_of(std::uint32_t step) {
  // All ones divided by 2^step - 1 is a one every `step` bits.
  return static_cast<UnitMask>(0xffffffffU / ((std::uint64_t{1} << step) - 1));
}

/// The largest block that fits, in units.
constexpr std::uint32_t largest_buddy(UnitMask free) {
  if (free == 0) return 0;
  // heads[k]: 2^k units are free from there on.
  std::array<UnitMask, 5> heads{free};
  for (unsigned k = 1; k < heads.size(); ++k)
    heads[k] = heads[k - 1] & heads[k - 1] >> (1U << (k - 1));
  constexpr std::array<UnitMask, 6> kAligned{multiples_of(1), multiples_of(2),  multiples_of(4),
                                             multiples_of(8), multiples_of(16), multiples_of(32)};
  for (unsigned k = 5; k-- > 0;) {
    // Blocks of more than 2^k units start at multiples of 2^(k+1), and have no more units than
    // that.
    std::uint32_t units = 1U << k;
    UnitMask left = heads[k] & kAligned[k + 1];
    if ((left & free >> units) == 0) continue;
    if ((left & heads[k] >> units) != 0) return units * 2;
    for (unsigned j = k; j-- > 0;) {
      const UnitMask longer = left & heads[j] >> units;
      if (longer == 0) continue;
      left = longer;
      units += 1U << j;
    }
    return units;
  }
  return 1;
}

/// Where a block of `units` goes: the place with the least room to spare, the lowest of equals;
/// kMaskUnits if there is none.
constexpr std::uint32_t find_buddy(UnitMask free, std::uint32_t units) {
  std::uint32_t best = kMaskUnits;
  std::uint32_t best_room = kMaskUnits + 1;
  for (UnitMask rest = heads_of(free, units) & multiples_of(std::bit_ceil(units)); rest != 0;
       rest &= rest - 1) {
    const auto unit = static_cast<std::uint32_t>(std::countr_zero(rest));
    const std::uint32_t room = buddy_room(free, unit);
    if (room < best_room) {
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
