// Sizes and times as people say them, for all tests.
#pragma once

#include <cstdint>

namespace gpupool {

inline constexpr std::uint64_t kKiB = 1 << 10;
inline constexpr std::uint64_t kMiB = 1 << 20;
inline constexpr std::uint64_t kGiB = 1 << 30;
/// What the pool maps at least: a page of physical memory.
inline constexpr std::uint64_t kPage = 2 * kMiB;

inline constexpr std::uint64_t kMs = 1'000'000;  // nanoseconds
inline constexpr std::uint64_t kSecondNs = 1'000'000'000;

}  // namespace gpupool
