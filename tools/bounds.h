// The most and least that commands which play traces take of an option.
#ifndef GPUPOOL_TOOLS_BOUNDS_H_
#define GPUPOOL_TOOLS_BOUNDS_H_

#include <cstdint>

namespace gpupool::tools {

inline constexpr std::uint64_t kMaxTrialPasses = 1'000;
inline constexpr std::uint64_t kMinCapacityBytes = std::uint64_t{2} << 20;  // a page
/// More than any device has; the most that --capacity takes.
inline constexpr std::uint64_t kMaxCapacityBytes = std::uint64_t{1} << 40;

/// The most that --scale takes.
inline constexpr std::uint64_t kMaxScale = std::uint64_t{1} << 40;

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_BOUNDS_H_
