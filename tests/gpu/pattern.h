// What is written into a block so that any word that is not the block's own shows: each word
// depends on the block's seed and on the word's place in the block.
//
// A page of the same block at another place differs in every word (kWordStep is odd, so the
// difference vanishes only 16 GiB away); a word of another block is equal once in 2^32 times. Of a
// block whose size is no multiple of four, the last one to three bytes are left out.
// Thread safety: plain values.
#ifndef GPUPOOL_TESTS_GPU_PATTERN_H_
#define GPUPOOL_TESTS_GPU_PATTERN_H_

#include <cstdint>

#include "gpupool/backend.h"

namespace gpupool::gpu_tests {

/// The kernels have the same constant.
inline constexpr std::uint32_t kWordStep = 0x9E3779B1;

struct Pattern {
  DeviceAddress address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t seed = 0;

  std::uint64_t words() const { return bytes / sizeof(std::uint32_t); }
  std::uint32_t word(std::uint64_t index) const {
    return seed + static_cast<std::uint32_t>(index) * kWordStep;
  }
};

/// A seed for the n-th block, far from those of its neighbours.
inline std::uint32_t seed_of(std::uint64_t n) {
  std::uint64_t mixed = (n + 1) * 0x9E3779B97F4A7C15;
  mixed ^= mixed >> 29;
  return static_cast<std::uint32_t>((mixed * 0xBF58476D1CE4E5B9) >> 32);
}

/// Words that were not what their block's holder had written. Laid out as the kernels write it.
struct Mismatches {
  std::uint64_t words = 0;
  std::uint64_t first_address = 0;
  std::uint32_t first_expected = 0;
  std::uint32_t first_found = 0;
};
static_assert(sizeof(Mismatches) == 24);

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_PATTERN_H_
