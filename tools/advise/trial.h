// One setting tried on every trace: what it cost on each, and on the one where it costs most.
//
// "Cold" is the first pass, "warm" the worst of the others. Shares are of a trace's recorded
// seconds; where it has none, of the seconds that its operations take at an assumed rate, so that
// one budget serves all traces.
//
// Thread safety: plain values; a SettingTester is called from several threads at once.
#ifndef GPUPOOL_TOOLS_ADVISE_TRIAL_H_
#define GPUPOOL_TOOLS_ADVISE_TRIAL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpupool/status.h"
#include "tools/advise/setting.h"
#include "tools/bounds.h"
#include "tools/replay/replay.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

struct AdviseOptions {
  /// Backing, capacities, passes (2 at least) and completions of every setting that is tried.
  ReplayOptions replay;
  /// The most that allocating threads may wait for the driver, warm, in percent of the seconds.
  double budget_percent = 0.3;
  /// Of traces without recorded time.
  std::uint64_t operations_per_second = 10'000;
  /// `alias_reuse: same_stream` asks something of the program's kernels, so that only who knows
  /// them can choose it. It is tried in any case.
  bool allows_same_stream = false;
  bool searches_capacity = false;
};

struct DriverCost {
  double wait_seconds = 0;    // of allocating threads
  double driver_seconds = 0;  // all calls, any thread
  std::uint64_t driver_calls = 0;
};

/// One setting on one trace.
struct TraceCost {
  double seconds = 1;  // what shares are of
  std::uint64_t failed = 0;
  std::uint64_t failed_bytes = 0;          // what those asked for
  std::uint64_t peak_requested_bytes = 0;  // of all passes, as held
  std::uint64_t peak_held_bytes = 0;
  DriverCost cold;
  DriverCost warm;
  /// Share of requests that the callers' caches served, without a lock; of the warm pass with the
  /// least.
  double cache_hit_share = 0;
  /// Where it was searched for, and found.
  std::optional<std::uint64_t> smallest_capacity_bytes;
  /// Warm, at that capacity.
  double smallest_capacity_wait_seconds = 0;

  /// Held by requested; 1 where nothing was requested, so that such a trace decides nothing.
  double held_ratio() const;
  double wait_share(const DriverCost& cost) const { return cost.wait_seconds / seconds; }
};

/// One setting, with a cost for each trace.
struct Trial {
  Setting setting;
  std::vector<TraceCost> traces;

  std::uint64_t failed() const;
  std::uint64_t failed_bytes() const;
  double worst_ratio() const;
  double mean_ratio() const;
  double warm_wait_share() const;
  double cold_wait_share() const;
  DriverCost warm() const;  // in sum
  DriverCost cold() const;
  double cache_hit_share() const;              // of the trace with the least
  std::uint64_t peak_held_bytes() const;       // of the trace with the most
  std::uint64_t peak_requested_bytes() const;  // the same
};

/// What trials are made with.
class SettingTester {
 public:
  virtual ~SettingTester() = default;
  /// Why a pool cannot have `setting` at all; empty where it can.
  virtual std::string find_refusal(const Setting& setting) = 0;
  virtual Result<TraceCost, ReplayFailure> measure(const Setting& setting, const Trace& trace) = 0;
  /// The smallest capacity with which `setting` serves every request, on a device that is as large
  /// as one can be; none where that is too small, too.
  virtual Result<std::optional<std::uint64_t>, ReplayFailure> find_need(const Setting& setting,
                                                                        const Trace& trace) = 0;
};

/// By replays on a simulated device, the same that `gpupool replay` makes.
class ReplayTester final : public SettingTester {
 public:
  /// Called before each pass, from whichever thread plays it.
  using Hook = std::function<void(const Setting&, const Trace&)>;

  ReplayTester(AdviseOptions options, Hook hook);
  std::string find_refusal(const Setting& setting) override;
  Result<TraceCost, ReplayFailure> measure(const Setting& setting, const Trace& trace) override;
  Result<std::optional<std::uint64_t>, ReplayFailure> find_need(const Setting& setting,
                                                                const Trace& trace) override;

 private:
  AdviseOptions options_;
  Hook hook_;
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_ADVISE_TRIAL_H_
