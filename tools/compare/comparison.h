// Plays the same work through several allocation systems (bench/baselines) on the simulated device:
// the measurement behind `gpupool compare`.
//
// Each system gets a fresh device for each trace and for the classic test, plays all passes on it,
// and must give everything back. The first pass is cold; `warm` times are the median of the others,
// warm driver counts those of the last. Driver calls, their modelled time and what is held are
// counted between system and device, by the same means for everyone. All numbers but the wall times
// repeat bit for bit.
//
// Thread safety: one thread. Cost: passes x systems x the work.
#ifndef GPUPOOL_TOOLS_COMPARE_COMPARISON_H_
#define GPUPOOL_TOOLS_COMPARE_COMPARISON_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/baselines/catalog.h"
#include "gpupool/simulated_backend.h"
#include "gpupool/status.h"
#include "tools/exit_code.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

struct CompareOptions {
  std::uint64_t passes = 5;  // at least 2: one is cold
  std::uint64_t capacity_bytes = SimulatedDeviceOptions().capacity_bytes;
  std::vector<const baselines::CatalogEntry*> systems;
};

/// One system on one trace.
struct TraceRow {
  std::string trace_path;
  std::string trace_name;
  const baselines::CatalogEntry* system = nullptr;
  std::uint64_t operations = 0;
  std::uint64_t failed = 0;  // of the pass with the most
  double cold_ns_per_op = 0;
  double warm_ns_per_op = 0;
  std::uint64_t cold_driver_calls = 0;
  std::uint64_t warm_driver_calls = 0;
  double cold_driver_seconds = 0;
  double warm_driver_seconds = 0;
  std::uint64_t peak_requested_bytes = 0;  // of the trace, whoever serves it
  std::uint64_t peak_held_bytes = 0;       // of all passes

  /// With the driver's modelled time.
  double warm_total_ns_per_op() const {
    return warm_ns_per_op + warm_driver_seconds * 1e9 / static_cast<double>(operations);
  }
};

inline constexpr std::uint64_t kClassicBlocks = 10'000;
inline constexpr std::uint64_t kClassicBlockBytes = std::uint64_t{1} << 20;

/// One phase of the classic test: all blocks allocated, or all freed.
struct PhaseCost {
  double ns_per_block = 0;
  std::uint64_t driver_calls = 0;
  double driver_seconds = 0;
};

/// One system's first round of the classic test, or its later ones.
struct ClassicRow {
  const baselines::CatalogEntry* system = nullptr;
  bool is_warm = false;
  std::uint64_t failed = 0;  // of the round with the most
  PhaseCost allocate;
  PhaseCost free;
  std::uint64_t peak_held_bytes = 0;

  /// Of a whole round, with the driver's modelled time.
  double total_seconds() const {
    return (allocate.ns_per_block + free.ns_per_block) * static_cast<double>(kClassicBlocks) *
               1e-9 +
           allocate.driver_seconds + free.driver_seconds;
  }
};

struct CompareFailure {
  ExitCode code = ExitCode::internal_error;
  std::string message;
};

/// Told before each pass or round, outside of what is timed: what is played, and how many
/// operations.
using CompareHook = std::function<void(const std::string& what, std::uint64_t operations)>;

/// A row for each system, in the order of `options.systems`.
Result<std::vector<TraceRow>, CompareFailure> compare_on_trace(const Trace& trace,
                                                               const CompareOptions& options,
                                                               const CompareHook& hook);
/// Two rows for each system: cold and warm.
Result<std::vector<ClassicRow>, CompareFailure> compare_on_classic_test(
    const CompareOptions& options, const CompareHook& hook);

/// The middle one, or the mean of the middle two. Requires: there is one.
double median(std::vector<double> values);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_COMPARE_COMPARISON_H_
