// Requests fail because something takes away what the job could have: a stream that hangs, or
// somebody else on the card.
#include <algorithm>

#include "tests/scenarios/scenario.h"
#include "tests/scenarios/training.h"

namespace gpupool::test {
namespace {

// Tensors are handed to a second stream, which hangs: what it may still use does not come back.
void hung_stream(Run& run) {
  Process& process = run.start({});
  const TrainingShape shape = draw_training(run);
  Training training(run, process, shape);
  const double room = static_cast<double>(process.pool().stats().limit_bytes) -
                      static_cast<double>(shape.peak_bytes());
  const double filled_in = run.between(minutes(20), minutes(90));
  const auto handed = static_cast<std::uint64_t>(room * shape.step_seconds / filled_in);
  const auto hand_over = [&] {
    void* block = process.take(handed, "communication");
    if (process.pool().record_stream(block, process.beside_stream())) process.give(block);
  };
  training.train(run.between(minutes(20), minutes(60)), hand_over);
  process.hang_beside();
  training.train(kForever, hand_over);
}

// Another process on the card leaks. This one gives back what it does not use, and finds less each
// time that it comes to its peak.
void growing_neighbour(Run& run) {
  ProcessOptions options;
  options.pool.runtime.trim.idle_after_ns = 30'000'000'000;
  Process& process = run.start(options);
  const TrainingShape shape = draw_training(run);
  Training training(run, process, shape);
  const double evaluation_scale = run.between(1.2, 1.6);
  const double every = run.between(minutes(15), minutes(45));
  const double began = run.now();
  const double pace = static_cast<double>(gib(80)) / run.between(hours(2), hours(6));
  const auto neighbour = [&] {
    const auto wanted = static_cast<std::uint64_t>(pace * (run.now() - began));
    process.others_take(wanted);
  };
  while (run.now() - began < kForever) {
    training.train(every, neighbour, run.between(0.4, 0.6));
    training.train(run.between(minutes(1), minutes(4)), neighbour, evaluation_scale);
  }
}

}  // namespace

std::vector<Scenario> squeezed_scenarios() {
  return {
      {"hung_stream", Ending::builds_up,
       "freed memory waits for a stream that hangs, more of it each step", hung_stream},
      {"growing_neighbour", Ending::builds_up,
       "another process on the card leaks, and the job's peak finds no room", growing_neighbour}};
}

}  // namespace gpupool::test
