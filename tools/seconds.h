// Nanoseconds, as clocks and drivers count, and the seconds and milliseconds that people are shown.
#ifndef GPUPOOL_TOOLS_SECONDS_H_
#define GPUPOOL_TOOLS_SECONDS_H_

namespace gpupool::tools {

inline constexpr double kSecondsPerNs = 1e-9;
inline constexpr double kMsPerSecond = 1e3;

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SECONDS_H_
