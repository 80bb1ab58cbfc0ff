#include "tools/top/rank.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/terminal/units.h"

namespace gpupool::tools {
namespace {

using nlohmann::json;

/// For how long a failure decides, as GpupoolOutOfMemory does.
constexpr double kFailureSeconds = 600;
/// Failures of another kind than for want of memory.
constexpr std::array<std::string_view, 2> kOtherReasons = {"invalid", "driver"};

Result<json, std::string> parse(const std::string& text, const char* schema) {
  json document = json::parse(text, nullptr, false);
  if (document.is_discarded() || !document.is_object()) return std::string("it is no JSON object");
  if (schema == nullptr) return document;
  // Of whatever type: what is compared is JSON.
  if (document["schema"] != schema) return "it is no " + std::string(schema);
  if (document["version"] != 1) {
    return std::string(schema) + " of version " + document["version"].dump() +
           ", and this program knows 1";
  }
  return document;
}

std::string ago_text(double seconds) {
  if (seconds < 120) return fixed(std::max(seconds, 0.0), 0) + " s ago";
  return fixed(seconds / 60, 0) + " min ago";
}

struct Verdict {
  Health health = Health::ok;
  std::string reason;
};

Verdict judge_failure(const json& stats, const json& failure) {
  if (!failure.value("happened", false)) return {};
  const std::string reason = failure.at("reason");
  if (std::find(kOtherReasons.begin(), kOtherReasons.end(), reason) != kOtherReasons.end()) {
    return {};
  }
  const double age =
      (stats.at("time_ns").get<double>() - failure.at("time_ns").get<double>()) / 1e9;
  if (age > kFailureSeconds) return {};
  const std::string tag = failure.value("tag", "");
  return {Health::out_of_memory,
          ago_text(age) + " a request of " + human_bytes(failure.at("requested_bytes")) +
              (tag.empty() ? "" : " for " + tag) + " failed (" + reason + "): " +
              human_bytes(failure.at("largest_satisfiable_bytes")) + " was the largest to work"};
}

Verdict judge(const Rank& rank, const json& stats) {
  const std::uint64_t required = stats.at("threshold_required_block_bytes");
  if (required > 0 && rank.largest_bytes < required) {
    return {Health::at_risk, "the next request of " + human_bytes(required) +
                                 ", which it requires, would fail: " +
                                 human_bytes(rank.largest_bytes) + " is the largest that fits"};
  }
  if (rank.limit_bytes < rank.peak_bytes) {
    return {Health::at_risk, "the peak of the last minute, " + human_bytes(rank.peak_bytes) +
                                 ", no longer fits into " + human_bytes(rank.limit_bytes) +
                                 ": others on the device took the rest"};
  }
  const double configured = stats.at("limit_bytes");
  const double total = stats.at("device_total_bytes");
  const std::uint64_t free = stats.at("device_free_bytes");
  if (total > 0 && configured > 0 && static_cast<double>(rank.limit_bytes) / configured < 0.9 &&
      static_cast<double>(free) / total < 0.03) {
    return {Health::at_risk, "the device has " + human_bytes(free) +
                                 " free, under 3 %, and the pool"
                                 " may hold " +
                                 human_bytes(rank.limit_bytes) + " instead of " +
                                 human_bytes(stats.at("limit_bytes"))};
  }
  const double critical = stats.at("threshold_critical_fragmentation_ratio");
  const double warning = stats.at("threshold_fragmentation_ratio");
  const bool is_critical = critical > 0 && rank.fragmentation > critical;
  if (!is_critical && (warning <= 0 || rank.fragmentation <= warning)) return {};
  return {is_critical ? Health::at_risk : Health::fragmented,
          "fragmentation is " + fixed(rank.fragmentation, 2) + ", above " +
              fixed(is_critical ? critical : warning, 2) + ": " + human_bytes(rank.largest_bytes) +
              " is the largest that fits"};
}

Rank rank_of(const json& answer, const json& failure) {
  const json& stats = answer.at("stats");
  const json& process = answer.at("process");
  Rank rank;
  if (process.contains("rank")) rank.rank = std::to_string(process["rank"].get<std::uint64_t>());
  rank.held_bytes = stats.at("held_bytes");
  rank.live_bytes = stats.at("live_requested_bytes");
  rank.limit_bytes = stats.at("limit_in_force_bytes");
  rank.largest_bytes = stats.at("largest_satisfiable_bytes");
  rank.peak_bytes = stats.at("window_peak_requested_bytes");
  rank.fragmentation = stats.at("fragmentation_ratio");
  rank.failures = stats.at("failures");
  rank.fallbacks = stats.at("fallbacks");
  rank.requests = stats.at("requests");
  rank.time_ns = stats.at("time_ns");
  Verdict verdict = judge_failure(stats, failure);
  if (verdict.health == Health::ok) verdict = judge(rank, stats);
  rank.health = verdict.health;
  rank.reason = std::move(verdict.reason);
  return rank;
}

/// The most of each third of the rows.
std::array<double, 3> peaks_of_thirds(const std::vector<double>& values) {
  std::array<double, 3> peaks{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    double& peak = peaks[std::min<std::size_t>(3 * i / values.size(), 2)];
    peak = std::max(peak, values[i]);
  }
  return peaks;
}

}  // namespace

const char* to_string(Health health) {
  switch (health) {
    case Health::out_of_memory: return "OUT OF MEMORY";
    case Health::no_answer: return "no answer";
    case Health::at_risk: return "at risk";
    case Health::fragmented: return "fragmented";
    case Health::ok: return "ok";
  }
  return "";
}

double Rank::headroom() const {
  if (limit_bytes == 0) return 0;
  const double peak = static_cast<double>(std::max(peak_bytes, live_bytes));
  return std::max(0.0, 1 - peak / static_cast<double>(limit_bytes));
}

Result<std::vector<PoolName>, std::string> read_pools(const std::string& text) {
  const auto document = parse(text, nullptr);
  if (!document.ok()) return document.error();
  std::vector<PoolName> pools;
  try {
    for (const json& pool : document.value().at("pools")) {
      pools.push_back({pool.at("pool"), pool.at("device")});
    }
  } catch (const json::exception& error) {
    return std::string("no list of pools: ") + error.what();
  }
  return pools;
}

Result<Rank, std::string> read_rank(const std::string& stats, const std::string& failure) {
  const auto answer = parse(stats, "gpupool.stats");
  if (!answer.ok()) return answer.error();
  const auto last = parse(failure, nullptr);
  if (!last.ok()) return last.error();
  try {
    return rank_of(answer.value(), last.value());
  } catch (const json::exception& error) {
    return std::string("an answer of another kind: ") + error.what();
  }
}

std::optional<double> full_in_seconds(const std::string& history) {
  constexpr double kLeastSeconds = 180;
  constexpr double kLeastGrowth = 0.01;
  const auto document = parse(history, "gpupool.history");
  if (!document.ok()) return std::nullopt;
  try {
    const json& columns = document.value().at("columns");
    const auto times = document.value().at("time_ms").get<std::vector<double>>();
    const auto peaks = columns.at("window_peak_requested_bytes").get<std::vector<double>>();
    const auto limits = columns.at("limit_in_force_bytes").get<std::vector<double>>();
    if (times.size() < 3 || peaks.size() != times.size() || limits.size() != times.size()) {
      return std::nullopt;
    }
    const double seconds = (times.back() - times.front()) / 1000;
    const auto [first, second, third] = peaks_of_thirds(peaks);
    const bool grows = first < second && second < third && third - first > kLeastGrowth * third;
    if (seconds < kLeastSeconds || !grows) return std::nullopt;
    const double rate = (third - first) / (seconds * 2 / 3);
    return std::max(0.0, limits.back() - third) / rate;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

bool fails_before(const Rank& one, const Rank& other) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (one.health != other.health) return one.health < other.health;
  const double full_one = one.full_in_s.value_or(kNever);
  const double full_other = other.full_in_s.value_or(kNever);
  if (full_one != full_other) return full_one < full_other;
  return one.headroom() < other.headroom();
}

}  // namespace gpupool::tools
