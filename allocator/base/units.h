// The sizes everything is made of, and the arithmetic between them.
//
//   page 2 MiB = 16 chunks;   chunk 128 KiB = 32 units;   unit 4 KiB = 8 granules;
//   granule 512 B, the smallest block and the default alignment.
//
// The arena is one line of units, numbered from 0; "unit" as a number means that index. Why these
// sizes: docs/adr/.
#ifndef GPUPOOL_BASE_UNITS_H_
#define GPUPOOL_BASE_UNITS_H_

#include <bit>
#include <cstdint>

namespace gpupool::internal {

inline constexpr std::uint64_t kGranuleBytes = 512;
inline constexpr std::uint64_t kUnitBytes = 4096;
inline constexpr std::uint64_t kChunkBytes = 128 << 10;
inline constexpr std::uint64_t kPageBytes = 2 << 20;

inline constexpr std::uint32_t kUnitsPerChunk = kChunkBytes / kUnitBytes;
inline constexpr std::uint32_t kUnitsPerPage = kPageBytes / kUnitBytes;
inline constexpr std::uint32_t kGranulesPerUnit = kUnitBytes / kGranuleBytes;
inline constexpr std::uint32_t kGranulesPerChunk = kChunkBytes / kGranuleBytes;

/// `value` rounded up to a multiple of `step`, a power of two. Requires: no overflow.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) & ~(step - 1);
}
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t step) {
  return value & ~(step - 1);
}
constexpr std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) {
  return value / by + (value % by != 0);
}
constexpr bool is_power_of_two(std::uint64_t value) { return std::has_single_bit(value); }
/// floor(log2(value)). Requires: value > 0.
constexpr unsigned log2_floor(std::uint64_t value) {
  return static_cast<unsigned>(std::bit_width(value)) - 1;
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_UNITS_H_
