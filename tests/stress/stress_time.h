// How long a program of several threads runs: a moment on every change, long in `scripts/dev soak`.
#pragma once

#include <chrono>
#include <cstdlib>

namespace gpupool {

using namespace std::chrono_literals;

inline std::chrono::milliseconds stress_time(std::chrono::milliseconds time,
                                             std::chrono::milliseconds soaking = 10s) {
  return std::getenv("GPUPOOL_SOAK") != nullptr ? soaking : time;
}

}  // namespace gpupool
