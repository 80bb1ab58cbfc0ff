#include "tools/compare/comparison.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <utility>

#include "bench/baselines/metered_backend.h"
#include "tools/device/device.h"
#include "tools/replay/loop.h"
#include "tools/replay/plan.h"
#include "tools/seconds.h"

namespace gpupool::tools {
namespace {

using baselines::CatalogEntry;
using baselines::DriverUse;

/// One system on a device of its own. Ends in the reverse order.
class Stand {
 public:
  static Result<std::unique_ptr<Stand>, CompareFailure> open(
      const CatalogEntry& entry, const CompareOptions& options,
      const std::vector<std::uint64_t>& streams) {
    SimulatedDeviceOptions device_options;
    device_options.capacity_bytes = options.capacity_bytes;
    std::unique_ptr<Stand> stand(new Stand(make_simulated_device(std::move(device_options))));
    auto raw_streams = DeviceStreams::create(stand->device_, streams);
    if (!raw_streams.ok()) return failure(ExitCode::usage, entry, raw_streams.error().message);
    stand->streams_ = std::move(raw_streams).value();
    auto system = entry.create(stand->meter_, stand->streams_->handles());
    if (!system.ok()) return failure(ExitCode::usage, entry, system.error().message);
    stand->system_ = std::move(system).value();
    return stand;
  }

  // What tools/replay/loop.h plays through.
  Result<void*> allocate(std::uint64_t bytes, std::uint16_t stream) {
    return system_->allocate(bytes, stream);
  }
  bool deallocate(void* pointer, std::uint16_t stream) {
    return system_->deallocate(pointer, stream);
  }
  void pass_time(std::uint64_t ns) {
    device_.simulated->advance_ns(ns);
    // As by a thread beside the one that allocates.
    device_.simulated->begin_background();
    system_->pass_time(ns);
    device_.simulated->end_background();
  }

  void empty_caches() { system_->empty_caches(); }
  const baselines::MeteredBackend& meter() const { return meter_; }

  /// Ends the system. A failure where a free was refused, the device refused anything, or
  /// something was not given back: all of them faults of ours.
  Result<void, CompareFailure> close(const CatalogEntry& entry, std::uint64_t refused_frees) {
    system_.reset();
    std::string fault = find_violation(device_);
    if (refused_frees != 0) fault = std::to_string(refused_frees) + " frees were refused";
    if (fault.empty() && device_.simulated->object_count() != 0) {
      fault = "did not give everything back to the driver";
    }
    if (fault.empty()) return {};
    return failure(ExitCode::internal_error, entry, fault);
  }

 private:
  explicit Stand(Device device) : device_(std::move(device)) {}
  static CompareFailure failure(ExitCode code, const CatalogEntry& entry,
                                const std::string& message) {
    return {code, std::string(entry.name) + ": " + message};
  }

  Device device_;
  baselines::MeteredBackend meter_{*device_.backend};
  std::unique_ptr<DeviceStreams> streams_;
  std::unique_ptr<baselines::AllocationSystem> system_;
};

/// Of all blocks that are asked for, served or not. A trace may ask for more than 64 bits can say.
std::uint64_t peak_requested_bytes(const std::vector<Step>& steps, std::uint32_t slot_count) {
  std::vector<std::uint64_t> bytes(slot_count, 0);
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  for (const Step& step : steps) {
    if (step.kind == StepKind::allocate) {
      const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - live;
      bytes[step.slot] = std::min(step.amount, room);
      live += bytes[step.slot];
      peak = std::max(peak, live);
    } else if (step.kind == StepKind::free) {
      live -= bytes[step.slot];
      bytes[step.slot] = 0;
    }
  }
  return peak;
}

Result<TraceRow, CompareFailure> play(const Trace& trace, const std::vector<Step>& steps,
                                      const CatalogEntry& entry, const CompareOptions& options,
                                      const CompareHook& hook) {
  auto opened = Stand::open(entry, options, trace.streams);
  if (!opened.ok()) return opened.error();
  Stand& stand = *opened.value();
  Loop loop(steps, trace.slot_count);
  const auto operations = static_cast<double>(trace.operation_count);
  TraceRow row;
  std::vector<double> warm_ns;
  std::uint64_t refused = 0;
  for (std::uint64_t pass = 1; pass <= options.passes; ++pass) {
    hook(trace.name + ", " + std::string(entry.name), trace.operation_count);
    const DriverUse before = stand.meter().use();
    const LoopResult result = loop.play(stand);
    const DriverUse used = stand.meter().use() - before;
    refused += result.refused_frees + loop.free_rest(stand);
    stand.empty_caches();
    row.failed = std::max(row.failed, result.failed);
    if (pass == 1) {
      row.cold_ns_per_op = result.ns / operations;
      row.cold_driver_calls = used.calls;
      row.cold_driver_seconds = static_cast<double>(used.ns) * kSecondsPerNs;
    } else {
      warm_ns.push_back(result.ns / operations);
      row.warm_driver_calls = used.calls;
      row.warm_driver_seconds = static_cast<double>(used.ns) * kSecondsPerNs;
    }
  }
  row.warm_ns_per_op = median(std::move(warm_ns));
  row.peak_held_bytes = stand.meter().peak_held_bytes();
  if (const auto closed = stand.close(entry, refused); !closed.ok()) return closed.error();
  return row;
}

/// Calls `act` for each block and says what that cost.
template <class Act>
PhaseCost run_phase(const Stand& stand, const Act& act) {
  const DriverUse before = stand.meter().use();
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < kClassicBlocks; ++i) act(i);
  const auto end = std::chrono::steady_clock::now();
  const DriverUse used = stand.meter().use() - before;
  PhaseCost cost;
  cost.ns_per_block = std::chrono::duration<double, std::nano>(end - start).count() /
                      static_cast<double>(kClassicBlocks);
  cost.driver_calls = used.calls;
  cost.driver_seconds = static_cast<double>(used.ns) * kSecondsPerNs;
  return cost;
}

Result<std::pair<ClassicRow, ClassicRow>, CompareFailure> play_classic(
    const CatalogEntry& entry, const CompareOptions& options, const CompareHook& hook) {
  auto opened = Stand::open(entry, options, {0});
  if (!opened.ok()) return opened.error();
  Stand& stand = *opened.value();
  std::vector<void*> blocks(kClassicBlocks, nullptr);
  std::vector<double> allocate_ns;
  std::vector<double> free_ns;
  std::uint64_t refused = 0;
  ClassicRow cold;
  ClassicRow warm;
  warm.is_warm = true;
  for (std::uint64_t round = 1; round <= options.passes; ++round) {
    hook("classic test, " + std::string(entry.name), 2 * kClassicBlocks);
    ClassicRow& row = round == 1 ? cold : warm;
    std::uint64_t failed = 0;
    row.allocate = run_phase(stand, [&](std::uint64_t i) {
      const Result<void*> block = stand.allocate(kClassicBlockBytes, 0);
      blocks[i] = block.value();
      if (!block.ok()) ++failed;
    });
    row.free = run_phase(stand, [&](std::uint64_t i) {
      if (!stand.deallocate(blocks[i], 0)) ++refused;
    });
    row.failed = std::max(row.failed, failed);
    row.peak_held_bytes = stand.meter().peak_held_bytes();
    if (round == 1) continue;
    allocate_ns.push_back(row.allocate.ns_per_block);
    free_ns.push_back(row.free.ns_per_block);
  }
  warm.allocate.ns_per_block = median(std::move(allocate_ns));
  warm.free.ns_per_block = median(std::move(free_ns));
  if (const auto closed = stand.close(entry, refused); !closed.ok()) return closed.error();
  cold.system = warm.system = &entry;
  return std::pair(cold, warm);
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

Result<std::vector<TraceRow>, CompareFailure> compare_on_trace(const Trace& trace,
                                                               const CompareOptions& options,
                                                               const CompareHook& hook) {
  const auto plan = make_plan(trace, {});
  if (!plan.ok()) return CompareFailure{ExitCode::usage, plan.error().message};
  const std::uint64_t peak = peak_requested_bytes(plan.value(), trace.slot_count);
  std::vector<TraceRow> rows;
  for (const CatalogEntry* entry : options.systems) {
    Result<TraceRow, CompareFailure> played = play(trace, plan.value(), *entry, options, hook);
    if (!played.ok()) {
      return CompareFailure{played.error().code, trace.path + ": " + played.error().message};
    }
    TraceRow& row = played.value();
    row.trace_path = trace.path;
    row.trace_name = trace.name;
    row.system = entry;
    row.operations = trace.operation_count;
    row.peak_requested_bytes = peak;
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<std::vector<ClassicRow>, CompareFailure> compare_on_classic_test(
    const CompareOptions& options, const CompareHook& hook) {
  std::vector<ClassicRow> rows;
  for (const CatalogEntry* entry : options.systems) {
    const auto played = play_classic(*entry, options, hook);
    if (!played.ok()) {
      return CompareFailure{played.error().code, "classic test: " + played.error().message};
    }
    rows.push_back(played.value().first);
    rows.push_back(played.value().second);
  }
  return rows;
}

}  // namespace gpupool::tools
