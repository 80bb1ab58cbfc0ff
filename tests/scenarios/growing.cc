// Requests fail because what a job needs grows until the card is full.
#include <algorithm>
#include <cmath>

#include "tests/scenarios/buffer.h"
#include "tests/scenarios/scenario.h"
#include "tests/scenarios/serving.h"
#include "tests/scenarios/training.h"

namespace gpupool::test {
namespace {

double limit_bytes(Process& process) {
  return static_cast<double>(process.pool().stats().limit_bytes);
}

// A list on the host keeps one more tensor each step.
void slow_leak(Run& run) {
  Process& process = run.start({});
  const TrainingShape shape = draw_training(run);
  Training training(run, process, shape);
  training.train(run.between(0, minutes(30)));
  const double room = limit_bytes(process) - static_cast<double>(shape.peak_bytes());
  const double filled_in = run.between(hours(1), hours(4.5));
  const auto leaked = static_cast<std::uint64_t>(room * shape.step_seconds / filled_in);
  training.train(kForever, [&] { process.take(leaked); });
}

// Communication buffers of a few steps are never given back, under a buffer that fills and empties.
void leak_under_saw_tooth(Run& run) {
  Process& process = run.start({});
  const TrainingShape shape = draw_training(run);
  Training training(run, process, shape);
  const double room = limit_bytes(process) - static_cast<double>(shape.peak_bytes());
  const double tooth = room * run.between(0.3, 0.6);
  const double period = run.between(minutes(4), minutes(25));
  const double filled_in = run.between(hours(1.5), hours(4.5));
  const double steps = filled_in / shape.step_seconds;
  const auto leaked = static_cast<std::uint64_t>((room - tooth) / steps * 4);
  Buffer buffer(process);
  double began = run.now();
  int step = 0;
  training.train(kForever, [&] {
    if (++step % 4 == 0) process.take_beside(leaked, "communication");
    if (run.now() - began > period) {
      buffer.shrink_to(0);
      began = run.now();
    }
    buffer.grow_to(static_cast<std::uint64_t>(tooth * (run.now() - began) / period));
  });
}

// Conversations become longer from hour to hour: each answer takes more cache, for longer.
void growing_kv_cache(Run& run) {
  ProcessOptions options;
  options.kind = "serve";
  Process& process = run.start(options);
  ServingShape shape = draw_serving(run);
  shape.cache_limit_bytes = gib(1000);  // nobody has set one
  Serving serving(run, process, shape);
  serving.serve(run.between(minutes(5), minutes(30)));
  const double filled_in = run.between(hours(1), hours(4));
  const double room = limit_bytes(process) - static_cast<double>(shape.weights_bytes);
  // Twice the length is four times the cache.
  const double longest = std::sqrt(room / static_cast<double>(gib(13)));
  const double began = run.now();
  serving.serve(kForever, {}, [&] { return 1 + (longest - 1) * (run.now() - began) / filled_in; });
}

// A curriculum: every few minutes sequences become longer, and with them the peak of a step; what
// is in use between steps stays.
void longer_sequences(Run& run) {
  Process& process = run.start({});
  const TrainingShape shape = draw_training(run);
  Training training(run, process, shape);
  training.train(run.between(minutes(5), minutes(20)));
  const double room = limit_bytes(process) - static_cast<double>(shape.peak_bytes());
  const double growth = 1.05 * room / static_cast<double>(shape.activation_bytes);
  const double filled_in = run.between(hours(1), hours(4));
  const double stage = run.between(minutes(1), minutes(8));
  const double began = run.now();
  while (run.now() - began < kForever) {
    training.train(stage, {}, 1 + growth * (run.now() - began) / filled_in);
  }
}

// A server captures a graph for each shape that it has not seen before, and keeps them all.
void captured_graphs(Run& run) {
  ProcessOptions options;
  options.kind = "serve";
  Process& process = run.start(options);
  ServingShape shape = draw_serving(run);
  shape.cache_limit_bytes = gib(18);
  Serving serving(run, process, shape);
  serving.serve(run.between(minutes(5), minutes(20)));
  const double room =
      limit_bytes(process) - static_cast<double>(shape.weights_bytes + shape.cache_limit_bytes);
  const double every = run.between(20, 120);
  const double filled_in = run.between(hours(1), hours(4));
  const double pinned = room * every / filled_in;
  for (std::uint64_t graph = 1; run.now() < kForever; ++graph) {
    const CapturePoolId id{graph, 7};
    process.begin_capture(id);
    std::vector<void*> blocks;
    for (const double part : {0.5, 0.3, 0.2}) {
      blocks.push_back(
          process.take(static_cast<std::uint64_t>(part * pinned * run.between(0.6, 1.4))));
    }
    // The output stays; the rest is free, and of that graph.
    for (std::size_t i = 0; i + 1 < blocks.size(); ++i) process.give(blocks[i]);
    process.end_capture(id);
    serving.serve(every * run.between(0.5, 1.5));
  }
}

}  // namespace

std::vector<Scenario> growing_scenarios() {
  return {
      {"slow_leak", Ending::builds_up, "one tensor more is kept each step", slow_leak},
      {"leak_under_saw_tooth", Ending::builds_up,
       "communication buffers leak under a buffer that fills and empties", leak_under_saw_tooth},
      {"growing_kv_cache", Ending::builds_up, "conversations become longer", growing_kv_cache},
      {"longer_sequences", Ending::builds_up,
       "the peak of a step grows, what stays between steps does not", longer_sequences},
      {"captured_graphs", Ending::builds_up, "each new shape pins the memory of a graph",
       captured_graphs}};
}

}  // namespace gpupool::test
