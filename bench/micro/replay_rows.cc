// Recorded traces, warm. A row's figure is its counter ns_per_op, the median of its passes; there
// are at least nine of them after the pass that grows the pool.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "bench/micro/rows.h"
#include "bench/support/bench_pool.h"
#include "bench/support/trace_player.h"

namespace gpupool::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFewestPasses = 9;

/// The name of a trace, or nothing where the file is none.
std::string trace_name(const fs::path& path) {
  fs::path name = path.filename();
  if (name.extension() == ".gz") name = name.stem();
  return name.extension() == ".trace" || name.extension() == ".csv" ? name.stem().string() : "";
}

/// By name, so that a sample that lies in both folders is one row.
std::map<std::string, std::string> traces_of(const std::vector<fs::path>& folders) {
  std::map<std::string, std::string> traces;
  for (const fs::path& folder : folders) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string name = trace_name(entry.path());
      if (!name.empty()) traces.emplace(name, entry.path().string());
    }
    if (error) give_up("no traces from " + folder.string() + ": " + error.message());
  }
  return traces;
}

double timed_pass(TracePlayer& player) {
  const auto start = std::chrono::steady_clock::now();
  player.play();
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / static_cast<double>(player.operation_count());
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void measure_replay(benchmark::State& state, const std::string& path, Recycling recycling) {
  TracePlayer player(path, recycling);
  player.play();  // cold
  player.end_pass();
  std::vector<double> ns_per_op;
  const auto batch = static_cast<benchmark::IterationCount>(player.operation_count());
  while (state.KeepRunningBatch(batch)) {
    ns_per_op.push_back(timed_pass(player));
    state.PauseTiming();
    player.end_pass();
    state.ResumeTiming();
  }
  while (ns_per_op.size() < kFewestPasses) {
    ns_per_op.push_back(timed_pass(player));
    player.end_pass();
  }
  state.counters["ns_per_op"] = median(ns_per_op);
  state.counters["passes"] = static_cast<double>(ns_per_op.size());
}

}  // namespace

void register_replay_rows() {
  std::vector<fs::path> folders = {GPUPOOL_BENCH_SAMPLES};
  if (const char* const more = std::getenv("GPUPOOL_TRACES")) folders.emplace_back(more);
  for (const auto& [name, path] : traces_of(folders)) {
    benchmark::RegisterBenchmark(("replay/" + name).c_str(), measure_replay, path, Recycling::off);
    benchmark::RegisterBenchmark(("eager_replay/" + name).c_str(), measure_replay, path,
                                 Recycling::eager);
  }
}

}  // namespace gpupool::bench
