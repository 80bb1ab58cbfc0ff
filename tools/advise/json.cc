#include <nlohmann/json.hpp>

#include "tools/advise/report.h"
#include "tools/advise/yaml.h"
#include "tools/json_value.h"

namespace gpupool::tools {
namespace {

using Json = nlohmann::ordered_json;

/// What is held where requests failed says nothing of what would be if none had.
Json ratio_or_null(double ratio, std::uint64_t failed) {
  return failed == 0 ? Json(ratio) : Json(nullptr);
}

Json to_json(const Need& need) {
  return {{"recycling", to_string(need.setting.recycling)},
          {"slack_percent", need.setting.slack_percent},
          {"alias_reuse", to_string(need.setting.alias_reuse)},
          {"cache_large_bytes", need.setting.cache_large_bytes},
          {"smallest_capacity_bytes", or_null(need.capacity_bytes)}};
}

Json to_json(const Trace& trace, const TraceCost& cost) {
  return {
      {"trace", trace.path},
      {"failed", cost.failed},
      {"failed_bytes", cost.failed_bytes},
      {"peak_requested_bytes", cost.peak_requested_bytes},
      {"peak_held_bytes", cost.peak_held_bytes},
      {"held_ratio", ratio_or_null(cost.held_ratio(), cost.failed)},
      {"wait_share_warm", cost.wait_share(cost.warm)},
      {"wait_share_cold", cost.wait_share(cost.cold)},
      {"driver_wait_seconds_warm", cost.warm.wait_seconds},
      {"driver_wait_seconds_cold", cost.cold.wait_seconds},
      {"driver_seconds_warm", cost.warm.driver_seconds},
      {"driver_seconds_cold", cost.cold.driver_seconds},
      {"driver_calls_warm", cost.warm.driver_calls},
      {"driver_calls_cold", cost.cold.driver_calls},
      {"cache_hit_share", cost.cache_hit_share},
      {"smallest_capacity_bytes", or_null(cost.smallest_capacity_bytes)},
      {"smallest_capacity_wait_seconds",
       cost.smallest_capacity_bytes ? Json(cost.smallest_capacity_wait_seconds) : Json(nullptr)}};
}

Json to_json(const Advice& advice, std::size_t index, const std::vector<Trace>& traces,
             const AdviseOptions& options) {
  const Trial& trial = advice.trials[index];
  const Setting& setting = trial.setting;
  const DriverCost warm = trial.warm();
  const DriverCost cold = trial.cold();
  Json costs = Json::array();
  for (std::size_t i = 0; i < traces.size(); ++i) {
    costs.push_back(to_json(traces[i], trial.traces[i]));
  }
  return {{"recycling", to_string(setting.recycling)},
          {"slack_percent", setting.slack_percent},
          {"alias_reuse", to_string(setting.alias_reuse)},
          {"cache_large_bytes", setting.cache_large_bytes},
          {"is_chosen", advice.chosen == index},
          {"is_default", advice.defaults == index},
          {"is_allowed", is_allowed(setting, options)},
          {"is_within_budget", is_within_budget(trial, options)},
          {"failed", trial.failed()},
          {"failed_bytes", trial.failed_bytes()},
          {"peak_requested_bytes", trial.peak_requested_bytes()},
          {"peak_held_bytes", trial.peak_held_bytes()},
          {"held_ratio", ratio_or_null(trial.worst_ratio(), trial.failed())},
          {"held_ratio_mean", ratio_or_null(trial.mean_ratio(), trial.failed())},
          {"wait_share_warm", trial.warm_wait_share()},
          {"wait_share_cold", trial.cold_wait_share()},
          {"driver_wait_seconds_warm", warm.wait_seconds},
          {"driver_wait_seconds_cold", cold.wait_seconds},
          {"driver_seconds_warm", warm.driver_seconds},
          {"driver_seconds_cold", cold.driver_seconds},
          {"driver_calls_warm", warm.driver_calls},
          {"driver_calls_cold", cold.driver_calls},
          {"cache_hit_share", trial.cache_hit_share()},
          {"traces", std::move(costs)}};
}

}  // namespace

std::string to_json(const Advice& advice, const std::vector<Trace>& traces,
                    const AdviseOptions& options) {
  Json played = Json::array();
  for (std::size_t i = 0; i < traces.size(); ++i) {
    played.push_back({{"trace", traces[i].path},
                      {"operations", traces[i].operation_count},
                      {"trace_seconds", or_null(traces[i].seconds)},
                      {"share_of_seconds", advice.trials.front().traces[i].seconds}});
  }
  Json settings = Json::array();
  for (std::size_t i = 0; i < advice.trials.size(); ++i) {
    settings.push_back(to_json(advice, i, traces, options));
  }
  Json needs = Json::array();
  for (const Need& need : advice.needs) needs.push_back(to_json(need));
  const Json object = {
      {"device", "simulated"},
      {"device_capacity_bytes", options.replay.device_capacity_bytes},
      {"capacity_bytes", or_null(options.replay.capacity_bytes)},
      {"backing", to_string(options.replay.backing)},
      {"passes", options.replay.passes},
      {"scale", options.replay.scale},
      {"completions", options.replay.honour_completions},
      {"budget_percent", options.budget_percent},
      {"recycling_wait_percent", options.replay.runtime.recycling_wait * 100},
      {"unavailable", advice.unavailable},
      {"traces", std::move(played)},
      {"settings", std::move(settings)},
      {"needs", std::move(needs)},
      {"yaml", advice.chosen ? Json(to_yaml(advice, traces, options)) : Json(nullptr)}};
  // File names need not be UTF-8, JSON must be.
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gpupool::tools
