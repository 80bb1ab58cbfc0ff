#include "tools/advise/trial.h"

#include <algorithm>
#include <utility>

#include "gpupool/pool.h"
#include "tools/replay/find_capacity.h"

namespace gpupool::tools {
namespace {

double reference_seconds(const Trace& trace, std::uint64_t operations_per_second) {
  // A recorded time of 0 says as little as none.
  if (trace.seconds.value_or(0) > 0) return *trace.seconds;
  return static_cast<double>(trace.operation_count) / static_cast<double>(operations_per_second);
}

/// Each figure from the pass where it is highest.
DriverCost highest(const std::vector<PassResult>& passes, std::size_t first, std::size_t last) {
  DriverCost most;
  for (std::size_t i = first; i < last; ++i) {
    most.wait_seconds = std::max(most.wait_seconds, passes[i].driver_wait_seconds);
    most.driver_seconds = std::max(most.driver_seconds, passes[i].driver_seconds);
    most.driver_calls = std::max(most.driver_calls, passes[i].driver_calls);
  }
  return most;
}

double cache_hit_share(const PassResult& pass) {
  const std::uint64_t requests = pass.hits + pass.misses;
  return requests == 0 ? 1.0 : static_cast<double>(pass.cache_hits) / static_cast<double>(requests);
}

TraceCost cost_of(const std::vector<PassResult>& passes) {
  TraceCost cost;
  cost.cache_hit_share = 1;
  for (const PassResult& pass : passes) {
    cost.failed += pass.failed;
    cost.failed_bytes += pass.failed_bytes;
    cost.peak_requested_bytes = std::max(cost.peak_requested_bytes, pass.peak_requested_bytes);
    cost.peak_held_bytes = std::max(cost.peak_held_bytes, pass.peak_held_bytes);
    if (pass.pass > 1) cost.cache_hit_share = std::min(cost.cache_hit_share, cache_hit_share(pass));
  }
  cost.cold = highest(passes, 0, 1);
  cost.warm = highest(passes, 1, passes.size());
  return cost;
}

template <class Figure>
auto most(const std::vector<TraceCost>& traces, const Figure& figure) {
  auto result = figure(traces.front());
  for (const TraceCost& trace : traces) result = std::max(result, figure(trace));
  return result;
}

template <class Figure>
auto sum(const std::vector<TraceCost>& traces, const Figure& figure) {
  auto result = decltype(figure(traces.front())){};
  for (const TraceCost& trace : traces) result += figure(trace);
  return result;
}

DriverCost sum_of(const std::vector<TraceCost>& traces, DriverCost TraceCost::*when) {
  DriverCost total;
  for (const TraceCost& trace : traces) {
    total.wait_seconds += (trace.*when).wait_seconds;
    total.driver_seconds += (trace.*when).driver_seconds;
    total.driver_calls += (trace.*when).driver_calls;
  }
  return total;
}

}  // namespace

double TraceCost::held_ratio() const {
  if (peak_requested_bytes == 0) return 1;
  return static_cast<double>(peak_held_bytes) / static_cast<double>(peak_requested_bytes);
}

std::uint64_t Trial::failed() const {
  return sum(traces, [](const TraceCost& cost) { return cost.failed; });
}

std::uint64_t Trial::failed_bytes() const {
  return sum(traces, [](const TraceCost& cost) { return cost.failed_bytes; });
}

double Trial::worst_ratio() const {
  return most(traces, [](const TraceCost& cost) { return cost.held_ratio(); });
}

double Trial::mean_ratio() const {
  return sum(traces, [](const TraceCost& cost) { return cost.held_ratio(); }) /
         static_cast<double>(traces.size());
}

double Trial::warm_wait_share() const {
  return most(traces, [](const TraceCost& cost) { return cost.wait_share(cost.warm); });
}

double Trial::cold_wait_share() const {
  return most(traces, [](const TraceCost& cost) { return cost.wait_share(cost.cold); });
}

DriverCost Trial::warm() const { return sum_of(traces, &TraceCost::warm); }

DriverCost Trial::cold() const { return sum_of(traces, &TraceCost::cold); }

double Trial::cache_hit_share() const {
  return -most(traces, [](const TraceCost& cost) { return -cost.cache_hit_share; });
}

std::uint64_t Trial::peak_held_bytes() const {
  return most(traces, [](const TraceCost& cost) { return cost.peak_held_bytes; });
}

std::uint64_t Trial::peak_requested_bytes() const {
  return most(traces, [](const TraceCost& cost) { return cost.peak_requested_bytes; });
}

ReplayTester::ReplayTester(AdviseOptions options, Hook hook)
    : options_(options), hook_(std::move(hook)) {
  options_.replay.device = DeviceChoice::simulated;
}

std::string ReplayTester::find_refusal(const Setting& setting) {
  const ReplayOptions options = replay_options(options_.replay, setting);
  Device device = make_simulated_device({});
  PoolOptions pool_options;
  pool_options.backing = options.backing;
  pool_options.runtime = options.runtime;
  const auto pool = Pool::create(*device.backend, std::move(pool_options));
  const bool is_refused = !pool.ok() && pool.error().code == Error::not_supported;
  return is_refused ? pool.error().message : std::string();
}

Result<TraceCost, ReplayFailure> ReplayTester::measure(const Setting& setting, const Trace& trace) {
  const ReplayOptions options = replay_options(options_.replay, setting);
  const auto hook = [&](const Trace& played, std::uint64_t) { hook_(setting, played); };
  const auto passes = Replayer(options).play(trace, hook);
  if (!passes.ok()) return passes.error();
  TraceCost cost = cost_of(passes.value());
  cost.seconds = reference_seconds(trace, options_.operations_per_second);
  if (!options_.searches_capacity) return cost;
  const auto found = find_capacity(trace, options, hook);
  if (!found.ok()) return found.error();
  const std::vector<PassResult>& at_capacity = found.value().passes;
  cost.smallest_capacity_bytes = at_capacity.front().smallest_capacity_bytes;
  cost.smallest_capacity_wait_seconds = highest(at_capacity, 1, at_capacity.size()).wait_seconds;
  return cost;
}

Result<std::optional<std::uint64_t>, ReplayFailure> ReplayTester::find_need(const Setting& setting,
                                                                            const Trace& trace) {
  ReplayOptions options = replay_options(options_.replay, setting);
  options.capacity_bytes.reset();
  options.device_capacity_bytes = kMaxCapacityBytes;
  const auto hook = [&](const Trace& played, std::uint64_t) { hook_(setting, played); };
  const auto found = find_capacity(trace, options, hook);
  if (!found.ok()) return found.error();
  return found.value().passes.front().smallest_capacity_bytes;
}

}  // namespace gpupool::tools
