#include "tests/gpu/peers/report.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace gpupool::gpu_tests {
namespace {

using Json = nlohmann::ordered_json;

// What goes wrong once in a loop goes wrong in each round.
constexpr std::size_t kMostFaults = 50;

Json lines_to_json(const std::vector<std::pair<std::string, std::string>>& lines) {
  Json list = Json::array();
  for (const auto& [what, why] : lines) list.push_back({{"what", what}, {"why", why}});
  return list;
}

Json to_json(const Row& row) {
  return {{"step", row.step},       {"mode", row.mode},
          {"rounds", row.rounds},   {"wanted_rounds", row.wanted_rounds},
          {"calls", row.calls},     {"others", row.others},
          {"seconds", row.seconds}, {"pages_moved", row.pages_moved},
          {"faults", row.faults}};
}

Json to_json(const Timing& timing) {
  return {{"mode", timing.mode},
          {"operation", timing.operation},
          {"is_registered", timing.is_registered},
          {"bytes", timing.bytes},
          {"pool_us", timing.pool_us},
          {"plain_us", timing.plain_us},
          {"plain_spread", timing.plain_spread},
          {"ratio", timing.ratio()}};
}

std::string join(const std::vector<std::uint64_t>& numbers) {
  std::string text;
  for (const std::uint64_t number : numbers) {
    text += (text.empty() ? "" : "+") + std::to_string(number);
  }
  return text.empty() ? "-" : text;
}

}  // namespace

void Report::fault(const std::string& what, const std::string& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++fault_count_;
  if (faults_.size() >= kMostFaults) return;
  faults_.emplace_back(what, why);
  std::fprintf(stderr, "gpupool_gpu_peers: WRONG: %s: %s\n", what.c_str(), why.c_str());
}

void Report::leave_out(const std::string& what, const std::string& why) {
  std::printf("not run: %s: %s\n", what.c_str(), why.c_str());
  left_out_.emplace_back(what, why);
}

void Report::describe(const std::string& key, const std::string& value) {
  std::printf("%s: %s\n", key.c_str(), value.c_str());
  machine_.emplace_back(key, value);
}

bool Report::save(const std::string& path) {
  std::fflush(stdout);
  if (path.empty()) return true;
  Json json;
  for (const auto& [key, value] : machine_) json["machine"][key] = value;
  json["steps"] = Json::array();
  for (const Row& row : rows_) json["steps"].push_back(to_json(row));
  json["timings"] = Json::array();
  for (const Timing& timing : timings_) json["timings"].push_back(to_json(timing));
  json["not_run"] = lines_to_json(left_out_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    json["faults"] = lines_to_json(faults_);
  }
  json["fault_count"] = fault_count();
  std::ofstream file(path, std::ios::trunc);
  file << json.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
  file.close();
  if (!file.fail()) return true;
  std::fprintf(stderr, "gpupool_gpu_peers: cannot write %s\n", path.c_str());
  return false;
}

void Report::print() {
  if (!rows_.empty()) {
    std::printf("\n%-24s %-12s %13s %9s %9s %15s %7s  %s\n", "step", "mode", "rounds", "calls",
                "others", "pages moved", "s", "result");
  }
  for (const Row& row : rows_) {
    const std::string rounds = std::to_string(row.rounds) + "/" + std::to_string(row.wanted_rounds);
    std::printf("%-24s %-12s %13s %9llu %9llu %15s %7.1f  %s\n", row.step.c_str(), row.mode.c_str(),
                rounds.c_str(), static_cast<unsigned long long>(row.calls),
                static_cast<unsigned long long>(row.others), join(row.pages_moved).c_str(),
                row.seconds, row.faults == 0 ? "passed" : "WRONG");
  }
  if (!timings_.empty()) {
    std::printf("\n%-11s %-12s %-10s %10s %11s %11s %7s %7s\n", "operation", "mode", "registered",
                "KiB", "pool us", "plain us", "ratio", "spread");
  }
  for (const Timing& timing : timings_) {
    std::printf("%-11s %-12s %-10s %10llu %11.1f %11.1f %7.3f %6.1f%%\n", timing.operation.c_str(),
                timing.mode.c_str(), timing.is_registered ? "yes" : "no",
                static_cast<unsigned long long>(timing.bytes / 1024), timing.pool_us,
                timing.plain_us, timing.ratio(), 100 * timing.plain_spread);
  }
  for (const auto& [what, why] : left_out_) {
    std::printf("not run: %s: %s\n", what.c_str(), why.c_str());
  }
  std::printf("%llu wrong\n", static_cast<unsigned long long>(fault_count()));
}

}  // namespace gpupool::gpu_tests
