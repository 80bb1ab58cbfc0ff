// Which bucket of a DurationHistogram a duration falls in: upper bounds 64 ns * 2^i.
#ifndef GPUPOOL_BASE_DURATION_BUCKET_H_
#define GPUPOOL_BASE_DURATION_BUCKET_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "gpupool/stats.h"

namespace gpupool::internal {

constexpr std::size_t duration_bucket(std::uint64_t ns) {
  if (ns <= 64) return 0;
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width((ns - 1) >> 6)),
                               kDurationBuckets - 1);
}
static_assert(duration_bucket(64) == 0 && duration_bucket(65) == 1 && duration_bucket(128) == 1 &&
              duration_bucket(129) == 2);

/// Which bucket of StatsV1::requests_by_size: upper bounds 512 B * 4^i.
constexpr std::size_t size_bucket(std::uint64_t bytes) {
  if (bytes <= 512) return 0;
  const auto doublings = static_cast<std::size_t>(std::bit_width((bytes - 1) >> 9));
  return std::min<std::size_t>((doublings + 1) / 2, kSizeBuckets - 1);
}
static_assert(size_bucket(512) == 0 && size_bucket(513) == 1 && size_bucket(2048) == 1 &&
              size_bucket(2049) == 2 && size_bucket(8192) == 2);

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_DURATION_BUCKET_H_
