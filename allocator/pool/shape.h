// Which tier serves a request, and what it takes there: the route of design in one function.
//
//   up to 32 KiB            a slot of a size class
//   up to 128 KiB           a buddy block of whole units
//   above, or strictly      a run of whole units
//   aligned
#ifndef GPUPOOL_POOL_SHAPE_H_
#define GPUPOOL_POOL_SHAPE_H_

#include <cstdint>

#include "base/units.h"
#include "cache/bin.h"
#include "gpupool/pool.h"
#include "runs/run_table.h"
#include "size_class/size_class.h"

namespace gpupool::internal {

struct Shape {
  Tier tier = Tier::run;
  SizeClass size_class = 0;       // slots
  std::uint32_t units = 0;        // buddy blocks and runs
  std::uint32_t align_units = 1;  // runs
  std::uint64_t block_bytes = 0;

  /// Of tier T0. Requires: not a run.
  std::uint32_t bin() const noexcept {
    return tier == Tier::size_class ? slot_bin(size_class) : buddy_bin(units);
  }
  /// Units of a run that serves it alone.
  std::uint32_t units_alone() const noexcept {
    return static_cast<std::uint32_t>(divide_up(block_bytes, kUnitBytes));
  }
  /// Units in a row that the arena must have for it.
  std::uint32_t units_needed() const noexcept { return tier == Tier::run ? units : kUnitsPerChunk; }
  std::uint32_t alignment_needed() const noexcept {
    return tier == Tier::run ? align_units : kWithinPage;
  }
};

/// Requires: 0 < bytes <= 2^48, alignment a power of two up to a page.
constexpr Shape shape_of(std::uint64_t bytes, std::uint64_t alignment) {
  Shape shape;
  if (bytes <= kMaxSlotBytes && alignment <= kGranuleBytes) {
    shape.tier = Tier::size_class;
    shape.size_class = size_class_of(bytes);
    shape.block_bytes = kSizeClasses[shape.size_class].slot_bytes;
    return shape;
  }
  shape.units = static_cast<std::uint32_t>(divide_up(bytes, kUnitBytes));
  shape.block_bytes = shape.units * kUnitBytes;
  if (bytes <= kChunkBytes && alignment <= kUnitBytes) {
    shape.tier = Tier::buddy;
    return shape;
  }
  shape.align_units = static_cast<std::uint32_t>(divide_up(alignment, kUnitBytes));
  return shape;
}

/// Whether `bytes`, in a tier below runs, would waste no more of a run of its own than size classes
/// waste of a slot: an eighth.
constexpr bool fills_units(const Shape& shape, std::uint64_t bytes) {
  if (shape.tier == Tier::run) return false;
  const std::uint64_t run_bytes = divide_up(bytes, kUnitBytes) * kUnitBytes;
  return run_bytes - bytes <= run_bytes / 8;
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_SHAPE_H_
