#include "bench/peers/report.h"

#include <optional>

#include "tools/terminal/units.h"

namespace gpupool::bench {
namespace {

using tools::fixed;
using tools::human_bytes;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json to_json(const PairResult& result) {
  return {{"bytes", result.bytes},
          {"ns_median", result.ns_median},
          {"ns_least", result.ns_least},
          {"failed", result.failed}};
}

Json to_json(const ThreadsResult& result) {
  return {{"threads", result.threads},
          {"million_pairs_per_second", result.million_pairs_per_second},
          {"failed", result.failed}};
}

Json to_json(const TraceResult& result) {
  return {{"trace", result.trace},
          {"operations", result.operations},
          {"trace_operations", result.trace_operations},
          {"passes", result.passes},
          {"ns_per_op_median", result.ns_per_op_median},
          {"ns_per_op_least", result.ns_per_op_least},
          {"failed", result.failed},
          {"peak_requested_bytes", result.peak_requested_bytes},
          {"peak_held_bytes", or_null(result.peak_held_bytes)},
          {"driver_allocations_cold", or_null(result.driver_allocations_cold)},
          {"driver_allocations_warm", or_null(result.driver_allocations_warm)},
          {"driver_calls_cold", or_null(result.driver_calls_cold)},
          {"driver_calls_warm", or_null(result.driver_calls_warm)}};
}

Json to_json(const BurstRound& round) {
  return {
      {"allocate_us", round.allocate_us}, {"free_us", round.free_us}, {"total_ms", round.total_ms}};
}

Json to_json(const BurstResult& result) {
  return {{"blocks", result.blocks},           {"bytes", result.bytes},
          {"cold", to_json(result.cold)},      {"warm", to_json(result.warm)},
          {"warm_rounds", result.warm_rounds}, {"failed", result.failed}};
}

template <class T>
Json to_array(const std::vector<T>& results) {
  Json array = Json::array();
  for (const T& result : results) array.push_back(to_json(result));
  return array;
}

std::string failures(std::uint64_t failed) {
  return failed == 0 ? "" : "  FAILED " + std::to_string(failed);
}

std::string to_text(const TraceResult& result) {
  std::string text = "  " + result.trace + ": " + fixed(result.ns_per_op_median, 1) + " ns/op";
  if (result.operations < result.trace_operations) {
    text += " over the first " + std::to_string(result.operations) + " operations";
  }
  if (result.peak_held_bytes && result.peak_requested_bytes != 0) {
    text += ", held/requested " + fixed(static_cast<double>(*result.peak_held_bytes) /
                                            static_cast<double>(result.peak_requested_bytes),
                                        3);
  }
  if (result.driver_allocations_cold && result.driver_allocations_warm) {
    text += ", driver allocations " + std::to_string(*result.driver_allocations_cold) + " cold, " +
            std::to_string(*result.driver_allocations_warm) + " warm";
  }
  return text + " (" + std::to_string(result.passes) + " passes)" + failures(result.failed) + "\n";
}

std::string to_text(const char* name, const BurstRound& round) {
  return "  " + std::string(name) + ": " + fixed(round.allocate_us, 3) + " us an allocation, " +
         fixed(round.free_us, 3) + " us a free, " + fixed(round.total_ms, 2) + " ms in all\n";
}

}  // namespace

Json to_json(const SystemResult& result) {
  return {{"system", result.system},
          {"error", result.error.empty() ? Json(nullptr) : Json(result.error)},
          {"pairs", to_array(result.pairs)},
          {"threads_bytes", result.threads_bytes},
          {"threads", to_array(result.threads)},
          {"traces", to_array(result.traces)},
          {"burst", result.burst ? to_json(*result.burst) : Json(nullptr)}};
}

std::string to_text(const SystemResult& result) {
  std::string text = result.system + "\n";
  for (const PairResult& pair : result.pairs) {
    text += "  " + human_bytes(pair.bytes) + " pair: " + fixed(pair.ns_median, 1) + " ns (least " +
            fixed(pair.ns_least, 1) + ")" + failures(pair.failed) + "\n";
  }
  for (const ThreadsResult& threads : result.threads) {
    text += "  " + std::to_string(threads.threads) + " threads, " +
            human_bytes(result.threads_bytes) +
            " pairs: " + fixed(threads.million_pairs_per_second, 3) + " million pairs/s" +
            failures(threads.failed) + "\n";
  }
  for (const TraceResult& trace : result.traces) text += to_text(trace);
  if (result.burst) {
    const BurstResult& burst = *result.burst;
    text += "  " + std::to_string(burst.blocks) + " blocks of " + human_bytes(burst.bytes) +
            failures(burst.failed) + "\n" + to_text("  cold", burst.cold) +
            to_text("  warm", burst.warm);
  }
  if (!result.error.empty()) text += "  not measured: " + result.error + "\n";
  return text;
}

}  // namespace gpupool::bench
