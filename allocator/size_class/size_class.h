// The sizes of slots, made at compile time: steps of 512 B to 4 KiB, then eight classes a doubling
// to 32 KiB, so that rounding wastes at most 12.5 % of a slot above 4 KiB.
//
// A slab holds slots of one class; it is 64 or 128 KiB, whichever leaves the smaller share unused.
#ifndef GPUPOOL_SIZE_CLASS_SIZE_CLASS_H_
#define GPUPOOL_SIZE_CLASS_SIZE_CLASS_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace gpupool::internal {

using SizeClass = std::uint8_t;

inline constexpr std::uint64_t kMaxSlotBytes = 32 << 10;
inline constexpr std::size_t kSizeClassCount = 32;

/// The class that serves `bytes`. Requires: 0 < bytes <= kMaxSlotBytes.
constexpr SizeClass size_class_of(std::uint64_t bytes) {
  if (bytes <= 4096) return static_cast<SizeClass>((bytes - 1) / kGranuleBytes);
  // Within the doubling (2^k, 2^(k+1)], eight steps of 2^(k-3).
  const unsigned k = log2_floor(bytes - 1);
  const std::uint64_t step = (bytes - 1 - (std::uint64_t{1} << k)) >> (k - 3);
  return static_cast<SizeClass>(8 + (k - 12) * 8 + step);
}

struct SizeClassInfo {
  std::uint32_t slot_bytes = 0;
  std::uint32_t slab_units = 0;
  std::uint32_t slot_count = 0;
  std::uint32_t slot_granules = 0;
  // 2^16 / slot_granules and 2^18 / slot_count, rounded up: a product in place of a division.
  std::uint32_t per_granule = 0;
  std::uint32_t per_slot = 0;

  /// The slot that starts at or covers a granule of the slab.
  constexpr std::uint32_t slot_at(std::uint32_t granule) const {
    return granule * per_granule >> 16;
  }
  /// In which quarter of the slots `taken` is: 0 to 3, all of them in 3.
  constexpr std::uint32_t quarter_of(std::uint32_t taken) const {
    const std::uint32_t quarter = taken * per_slot >> 16;
    return quarter < 4 ? quarter : 3;
  }
};

constexpr SizeClassInfo make_size_class_info(std::size_t index) {
  SizeClassInfo info;
  if (index < 8) {
    info.slot_bytes = static_cast<std::uint32_t>((index + 1) * kGranuleBytes);
  } else {
    const unsigned k = 12 + static_cast<unsigned>((index - 8) / 8);
    info.slot_bytes = (1U << k) + static_cast<std::uint32_t>((index - 8) % 8 + 1) * (1U << (k - 3));
  }
  constexpr std::uint32_t kSmall = 64 << 10;
  const std::uint32_t small_tail = kSmall % info.slot_bytes;
  const std::uint32_t large_tail = 2 * kSmall % info.slot_bytes;
  // Compare shares: the tail of two small slabs against that of one large.
  const std::uint32_t slab_bytes = large_tail < 2 * small_tail ? 2 * kSmall : kSmall;
  info.slab_units = slab_bytes / kUnitBytes;
  info.slot_count = slab_bytes / info.slot_bytes;
  info.slot_granules = info.slot_bytes / static_cast<std::uint32_t>(kGranuleBytes);
  info.per_granule = ((1U << 16) + info.slot_granules - 1) / info.slot_granules;
  info.per_slot = ((1U << 18) + info.slot_count - 1) / info.slot_count;
  return info;
}

constexpr std::array<SizeClassInfo, kSizeClassCount> make_size_classes() {
  std::array<SizeClassInfo, kSizeClassCount> classes{};
  for (std::size_t i = 0; i < kSizeClassCount; ++i) classes[i] = make_size_class_info(i);
  return classes;
}

inline constexpr std::array<SizeClassInfo, kSizeClassCount> kSizeClasses = make_size_classes();

constexpr bool products_are_exact() {
  for (const SizeClassInfo& info : kSizeClasses) {
    for (std::uint32_t granule = 0; granule < kGranulesPerChunk; ++granule) {
      if (info.slot_at(granule) != granule / info.slot_granules) return false;
    }
    for (std::uint32_t taken = 0; taken < info.slot_count; ++taken) {
      if (info.quarter_of(taken) != taken * 4 / info.slot_count) return false;
    }
  }
  return true;
}
static_assert(products_are_exact());
static_assert(size_class_of(1) == 0 && size_class_of(512) == 0 && size_class_of(513) == 1);
static_assert(size_class_of(4096) == 7 && size_class_of(4097) == 8);
static_assert(size_class_of(kMaxSlotBytes) == kSizeClassCount - 1);
static_assert(kSizeClasses.back().slot_bytes == kMaxSlotBytes);

}  // namespace gpupool::internal

#endif  // GPUPOOL_SIZE_CLASS_SIZE_CLASS_H_
