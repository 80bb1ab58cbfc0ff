// Servers that look alarming and are not.
#include <algorithm>
#include <cmath>

#include "tests/scenarios/holes.h"
#include "tests/scenarios/scenario.h"
#include "tests/scenarios/serving.h"

namespace gpupool::test {
namespace {

constexpr double kPi = 3.14159265358979;

// A morning, a day and an evening in seven hours: the load rises for hours as a leak does, and the
// server turns away what would be too much.
void serving_day_night(Run& run) {
  ProcessOptions options;
  options.kind = "serve";
  Process& process = run.start(options);
  ServingShape shape = draw_serving(run);
  const double room = 80 * 0.95 - static_cast<double>(shape.weights_bytes) / gib(1);
  shape.cache_limit_bytes = gib(room - 4);
  Serving serving(run, process, shape);
  const double most = run.between(1.2, 3.5);
  const double lasts = hours(7), began = run.now(), shift = run.between(0, 0.15);
  serving.serve(lasts, [&] {
    const double hour = (run.now() - began) / lasts + shift;
    return most * (0.1 + 0.9 * std::pow(std::sin(kPi * std::min(1.0, hour)), 2));
  });
}

// The share that is in pieces stays between 0.48 and 0.52: it swings, wanders or jumps.
void hovering(Run& run) {
  Process& process = run.start({});
  process.take(run.bytes_between(15, 30), "weights");
  Holes holes(run, process);
  const auto left = static_cast<double>(process.pool().stats().limit_in_force_bytes -
                                        process.pool().stats().live_requested_bytes);
  holes.fill(static_cast<std::uint64_t>(left * 0.48), 60);
  holes.give_temporaries();
  run.pass(1);
  const double period = run.between(minutes(3), minutes(50));
  const auto manner = static_cast<int>(run.between(0, 3));
  std::vector<void*> blocks;
  double walk = 0.5;
  for (double began = run.now(); run.now() - began < hours(2.5); run.pass(run.between(1, 3))) {
    walk = std::clamp(walk + run.between(-0.002, 0.002), 0.48, 0.52);
    const double swing = 0.5 + 0.02 * std::sin(2 * kPi * (run.now() - began) / period);
    const double wanted = manner == 0 ? walk : manner == 1 ? swing : run.between(0.48, 0.52);
    // A block more takes from what is in one piece.
    while (process.pool().stats().fragmentation_ratio > wanted && !blocks.empty()) {
      process.give(blocks.back());
      blocks.pop_back();
      run.pass(0.01);
      process.pool().maintain();
      process.pool().drain_caches();
    }
    while (process.pool().stats().fragmentation_ratio < wanted)
      blocks.push_back(process.take(mib(64)));
  }
}

// Load that never changes but for chance, for hours, on a card that is well used.
void steady_serving(Run& run) {
  ProcessOptions options;
  options.kind = "serve";
  Process& process = run.start(options);
  ServingShape shape = draw_serving(run);
  const double load = run.between(1, 2.5);
  Serving serving(run, process, shape);
  serving.serve(hours(3), [&] { return load; });
}

// Graphs are captured for every batch size at the start, and kept.
void graphs_at_start(Run& run) {
  ProcessOptions options;
  options.kind = "serve";
  Process& process = run.start(options);
  ServingShape shape = draw_serving(run);
  Serving serving(run, process, shape);
  const auto graphs = static_cast<std::uint64_t>(run.between(16, 48));
  for (std::uint64_t graph = 1; graph <= graphs; ++graph) {
    const CapturePoolId id{graph, 7};
    process.begin_capture(id);
    void* output = process.take(mib(run.between(10, 60)));
    process.give(process.take(mib(run.between(50, 300))));
    process.end_capture(id);
    run.pass(run.between(0.5, 4));
    process.give(output);
  }
  serving.serve(hours(1.5));
}

}  // namespace

std::vector<Scenario> benign_serving_scenarios() {
  return {
      {"serving_day_night", Ending::benign, "load rises for hours, and falls", serving_day_night},
      {"hovering", Ending::benign, "fragmentation between 0.48 and 0.52 around 0.5", hovering},
      {"steady_serving", Ending::benign, "chance alone moves the load", steady_serving},
      {"graphs_at_start", Ending::benign, "graphs are captured at the start, and kept",
       graphs_at_start}};
}

}  // namespace gpupool::test
