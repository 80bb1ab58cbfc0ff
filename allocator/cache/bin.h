// The exact sizes that tier T0 keeps apart below runs: a bin for each size class, then one for each
// number of units that a buddy block can have.
//
// Cost: bin_of() one load from a table of 256 bytes.
#ifndef GPUPOOL_CACHE_BIN_H_
#define GPUPOOL_CACHE_BIN_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/block_record.h"
#include "base/units.h"
#include "size_class/size_class.h"

namespace gpupool::internal {

inline constexpr std::size_t kBinCount = kSizeClassCount + kUnitsPerChunk + 1;
static_assert(kBinCount <= BlockWord::kNoBin);

constexpr std::uint32_t slot_bin(SizeClass size_class) { return size_class; }
constexpr std::uint32_t buddy_bin(std::uint32_t units) {
  return static_cast<std::uint32_t>(kSizeClassCount) + units;
}
constexpr bool is_slot_bin(std::uint32_t bin) { return bin < kSizeClassCount; }
/// Requires: !is_slot_bin(bin).
constexpr std::uint32_t units_of_bin(std::uint32_t bin) {
  return bin - static_cast<std::uint32_t>(kSizeClassCount);
}

constexpr std::array<std::uint32_t, kBinCount> make_bin_bytes() {
  std::array<std::uint32_t, kBinCount> bytes{};
  for (std::uint32_t i = 0; i < kBinCount; ++i) {
    bytes[i] = is_slot_bin(i) ? kSizeClasses[i].slot_bytes
                              : static_cast<std::uint32_t>(units_of_bin(i) * kUnitBytes);
  }
  return bytes;
}
inline constexpr std::array<std::uint32_t, kBinCount> kBinBytes = make_bin_bytes();

/// By the number of the granule that holds the request's last byte.
constexpr std::array<std::uint8_t, kGranulesPerChunk> make_bin_of_last_granule() {
  std::array<std::uint8_t, kGranulesPerChunk> bins{};
  for (std::uint32_t last = 0; last < bins.size(); ++last) {
    const std::uint64_t bytes = (last + 1) * kGranuleBytes;
    bins[last] = static_cast<std::uint8_t>(
        bytes <= kMaxSlotBytes
            ? slot_bin(size_class_of(bytes))
            : buddy_bin(static_cast<std::uint32_t>(divide_up(bytes, kUnitBytes))));
  }
  return bins;
}
inline constexpr auto kBinOfLastGranule = make_bin_of_last_granule();

/// Requires: 0 < bytes <= kChunkBytes.
constexpr std::uint32_t bin_of(std::uint64_t bytes) {
  return kBinOfLastGranule[(bytes - 1) / kGranuleBytes];
}

/// Blocks of a bin that change hands together: 64 KiB of them, at most as many as a chain can have.
constexpr std::uint32_t full_chain(std::uint32_t bin) {
  const std::uint32_t bytes = std::max(kBinBytes[bin], std::uint32_t{1});
  return std::clamp<std::uint32_t>((64 << 10) / bytes, 1, BlockWord::kMaxChain);
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_CACHE_BIN_H_
