#include "tools/replay/report.h"

#include <nlohmann/json.hpp>

#include "tools/json_value.h"
#include "tools/seconds.h"
#include "tools/terminal/table.h"
#include "tools/terminal/units.h"

namespace gpupool::tools {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const PassResult& result) {
  return {{"trace", result.trace_path},
          {"pass", result.pass},
          {"operations", result.operations},
          {"failed", result.failed},
          {"ns_per_op", result.ns_per_op},
          {"trace_seconds", or_null(result.trace_seconds)},
          {"hits", result.hits},
          {"misses", result.misses},
          {"fallbacks", result.fallbacks},
          {"driver_calls", result.driver_calls},
          {"driver_seconds", result.driver_seconds},
          {"driver_wait_seconds", result.driver_wait_seconds},
          {"peak_requested_bytes", result.peak_requested_bytes},
          {"peak_held_bytes", result.peak_held_bytes},
          {"largest_free_block_bytes", result.largest_free_block_bytes},
          {"smallest_capacity_bytes", or_null(result.smallest_capacity_bytes)}};
}

double ratio(std::uint64_t part, std::uint64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

std::string ratio_or_dash(std::uint64_t part, std::uint64_t whole, double factor, int decimals) {
  return whole == 0 ? "-" : fixed(ratio(part, whole) * factor, decimals);
}

/// In place of the last column, where it was searched for.
const std::vector<Column> kCapacityColumns = {{"smallest\ncapacity", false, true},
                                              {"ratio", false, false}};

std::vector<Column> columns(bool has_capacity) {
  std::vector<Column> all = {{"trace", true, false},           {"pass", false, false},
                             {"operations", false, false},     {"failed", false, false},
                             {"ns/op", false, true},           {"hit %", false, false},
                             {"fall-\nbacks", false, false},   {"driver\ncalls", false, true},
                             {"driver\nms", false, false},     {"wait\nms", false, false},
                             {"peak\nrequested", false, true}, {"peak\nheld", false, false},
                             {"ratio", false, false}};
  if (has_capacity) {
    all.insert(all.end(), kCapacityColumns.begin(), kCapacityColumns.end());
  } else {
    all.push_back({"largest\nfree", false, false});
  }
  return all;
}

/// A dash where requests failed, since less was then held because less was served.
std::string held_ratio(const PassResult& result) {
  if (result.failed != 0) return "-";
  return ratio_or_dash(result.peak_held_bytes, result.peak_requested_bytes, 1, 3);
}

std::vector<Cell> row(const PassResult& result, bool repeats_trace, bool has_capacity) {
  std::vector<Cell> cells = {
      {result.trace_name, repeats_trace ? Style::dim : Style::bold},
      {std::to_string(result.pass)},
      {grouped(result.operations)},
      {grouped(result.failed), result.failed != 0 ? Style::red : Style::plain},
      {fixed(result.ns_per_op, 1)},
      {ratio_or_dash(result.hits, result.hits + result.misses, 100, 2)},
      {grouped(result.fallbacks)},
      {grouped(result.driver_calls)},
      {fixed(result.driver_seconds * kMsPerSecond, 1)},
      {fixed(result.driver_wait_seconds * kMsPerSecond, 1)},
      {human_bytes(result.peak_requested_bytes)},
      {human_bytes(result.peak_held_bytes)},
      {held_ratio(result)}};
  const std::optional<std::uint64_t>& capacity = result.smallest_capacity_bytes;
  if (!has_capacity) {
    cells.push_back({human_bytes(result.largest_free_block_bytes)});
  } else if (capacity.has_value()) {
    cells.push_back({human_bytes(*capacity)});
    cells.push_back({ratio_or_dash(*capacity, result.peak_requested_bytes, 1, 3)});
  } else {
    cells.push_back({"none", Style::red});
    cells.push_back({"-"});
  }
  return cells;
}

std::string heading(const ReplayOptions& options, const ReplaySetting& setting) {
  const std::string limit = setting.is_search ? "at the smallest capacity that will do"
                                              : "limit " + human_bytes(setting.limit_bytes);
  std::string text = setting.device_name + ", " + limit + ", " + to_string(options.backing) +
                     ", recycling " + to_string(options.runtime.recycling);
  if (options.runtime.recycling == Recycling::eager) {
    text += " with " + percent_text(options.runtime.slack * 100) + " slack";
    if (options.runtime.recycling_wait != RuntimeOptions().recycling_wait) {
      text += ", waits up to " + percent_text(options.runtime.recycling_wait * 100);
    }
  }
  const bool moves = options.runtime.recycling != Recycling::off && options.backing == Backing::vmm;
  if (moves && options.runtime.alias_reuse != RuntimeOptions().alias_reuse) {
    text += std::string(", alias reuse ") + to_string(options.runtime.alias_reuse);
  }
  if (options.cache_large_bytes != PoolOptions().cache_large_bytes) {
    text += ", large blocks in caches " + human_bytes(options.cache_large_bytes);
  }
  if (options.reserve_bytes != 0) text += ", reserve " + human_bytes(options.reserve_bytes);
  if (options.scale != 1) text += ", sizes times " + std::to_string(options.scale);
  if (options.honour_completions) text += ", completions honoured";
  if (options.fault_probability > 0) {
    text += ", faults with probability " + fixed(options.fault_probability, 4);
  }
  return text;
}

}  // namespace

std::string to_json(const std::vector<PassResult>& results) {
  Json array = Json::array();
  for (const PassResult& result : results) array.push_back(to_json(result));
  // File names need not be UTF-8, JSON must be.
  return array.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_table(const std::vector<PassResult>& results, const ReplayOptions& options,
                     const ReplaySetting& setting, const Terminal& terminal) {
  Table table(columns(setting.is_search));
  std::string last_trace;
  for (const PassResult& result : results) {
    table.add_row(
        row(result, result.pass > 1 && result.trace_path == last_trace, setting.is_search));
    last_trace = result.trace_path;
  }
  return terminal.styled(heading(options, setting), Style::dim) + "\n\n" + table.render(terminal);
}

}  // namespace gpupool::tools
