// What was measured of a trace under a setting, as plain values.
//
// Thread safety: plain values.
#ifndef GPUPOOL_TESTS_GPU_REPLAY_FIGURES_H_
#define GPUPOOL_TESTS_GPU_REPLAY_FIGURES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpupool/stats.h"
#include "tests/gpu/pattern.h"

namespace gpupool::gpu_tests {

/// Where a trace is played.
enum class Mode : std::uint8_t {
  modelled,  // on the simulated device, no work given to its streams
  idle,      // the same on the device that was chosen: what its driver takes for the same calls
  busy,      // on that device, with work on each block, as fast as the host gives it
};
const char* to_string(Mode mode);

/// Calls of one kind on any thread.
struct DriverFigures {
  std::uint64_t calls = 0;
  std::uint64_t ns = 0;
};

/// Of one pass alone.
struct PassFigures {
  std::uint64_t operations = 0;
  std::uint64_t failed = 0;
  /// Requests that failed and were served once the device had nothing left to do; busy only.
  std::uint64_t served_after_wait = 0;
  double seconds = 0;  // of the host, until the device was done
  std::uint64_t peak_requested_bytes = 0;
  std::uint64_t peak_held_bytes = 0;
  std::uint64_t pages_recycled = 0;
  std::uint64_t driver_wait_ns = 0;  // of the allocating thread
  std::array<DriverFigures, kDriverOperationCount> driver{};
  std::uint64_t wrong_words = 0;
};

struct RunFigures {
  std::vector<PassFigures> passes;  // the first is cold
  Mismatches mismatches;            // of all passes
  std::string error;                // why it was not measured, or not to its end
};

/// A trace under a setting.
struct TraceFigures {
  std::string trace;
  std::string setting;
  std::optional<double> trace_seconds;
  std::optional<std::uint64_t> capacity_bytes;    // where it is not the whole device
  std::array<std::optional<RunFigures>, 3> runs;  // by Mode
};

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_REPLAY_FIGURES_H_
