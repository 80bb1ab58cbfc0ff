// Plays a trace through a pool as fast as possible and says what it cost: the measurement behind
// `gpupool replay`.
//
// One device and one pool for all passes of a trace, new ones for the next trace. Between passes
// what is left of a pass is freed and the caches are emptied; pages stay mapped. Every number of
// a PassResult is of that pass alone. On the simulated device the same input gives the same
// numbers, bit for bit, but for ns_per_op.
//
// Thread safety: one thread. Cost: the trace's steps at 16 bytes each, and an address a slot.
#ifndef GPUPOOL_TOOLS_REPLAY_REPLAY_H_
#define GPUPOOL_TOOLS_REPLAY_REPLAY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpupool/observer.h"
#include "gpupool/options.h"
#include "gpupool/status.h"
#include "tools/device/device.h"
#include "tools/exit_code.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

struct ReplayOptions {
  DeviceChoice device = DeviceChoice::automatic;
  Backing backing = Backing::vmm;
  RuntimeOptions runtime;
  std::optional<std::uint64_t> capacity_bytes;  // none: all of the device
  std::uint64_t device_capacity_bytes = SimulatedDeviceOptions().capacity_bytes;  // if simulated
  std::uint64_t reserve_bytes = 0;
  std::uint64_t cache_large_bytes = PoolOptions().cache_large_bytes;
  std::uint64_t passes = 2;
  bool honour_completions = false;
  std::uint64_t scale = 1;
  std::uint64_t seed = 0;
  double fault_probability = 0;
  SlowPathObserver* observer = nullptr;  // of each pool that is made
};

struct PassResult {
  std::string trace_path;
  std::string trace_name;
  std::uint64_t pass = 1;
  std::uint64_t operations = 0;
  std::uint64_t failed = 0;
  std::uint64_t failed_bytes = 0;  // what those asked for
  double ns_per_op = 0;
  std::optional<double> trace_seconds;
  std::uint64_t hits = 0;
  std::uint64_t cache_hits = 0;  // of the hits, those without a lock
  std::uint64_t misses = 0;
  std::uint64_t fallbacks = 0;
  std::uint64_t driver_calls = 0;
  double driver_seconds = 0;
  double driver_wait_seconds = 0;
  std::uint64_t peak_requested_bytes = 0;
  std::uint64_t peak_held_bytes = 0;
  std::uint64_t largest_free_block_bytes = 0;
  std::optional<std::uint64_t> smallest_capacity_bytes;  // where it was searched for, and found
  std::string last_failure;                              // its report, where one failed
};

/// What was played on, for the line above a table.
struct ReplaySetting {
  std::string device_name;
  std::uint64_t limit_bytes = 0;
  bool is_search = false;  // of the smallest capacity, one for each trace
};

struct ReplayFailure {
  ExitCode code = ExitCode::usage;
  std::string message;
};

class Replayer {
 public:
  /// Called before a pass begins, outside of what is timed.
  using PassHook = std::function<void(const Trace&, std::uint64_t pass)>;

  explicit Replayer(ReplayOptions options) : options_(options) {}

  /// Plays all passes of `trace`.
  Result<std::vector<PassResult>, ReplayFailure> play(const Trace& trace, const PassHook& hook);
  /// Of the trace played last.
  const ReplaySetting& setting() const { return setting_; }

 private:
  ReplayOptions options_;
  ReplaySetting setting_;
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_REPLAY_REPLAY_H_
