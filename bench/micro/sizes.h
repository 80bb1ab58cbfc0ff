// The block sizes of the pair rows: one of each tier, and the edges that the targets name.
#ifndef GPUPOOL_BENCH_MICRO_SIZES_H_
#define GPUPOOL_BENCH_MICRO_SIZES_H_

#include <array>
#include <cstddef>

namespace gpupool::bench {

inline constexpr std::array<std::size_t, 7> kPairBytes = {512,     4 << 10,  64 << 10, 128 << 10,
                                                          1 << 20, 16 << 20, 256 << 20};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_MICRO_SIZES_H_
