// Requests fail because what the job could have is gone at once: a neighbour, another limit.
#include <algorithm>

#include "tests/scenarios/scenario.h"
#include "tests/scenarios/training.h"

namespace gpupool::test {
namespace {

// Training, then a phase in which the job needs little: data is prepared, metrics are reckoned.
void train_then_rest(Run& run, Training& training) {
  training.train(run.between(minutes(30), minutes(80)));
  run.pass(run.between(minutes(2), minutes(5)));
}

// The job gives back what it does not use, and another process takes it.
void neighbour_takes_card(Run& run) {
  ProcessOptions options;
  options.pool.runtime.trim.idle_after_ns = 20'000'000'000;
  Process& process = run.start(options);
  Training training(run, process, draw_training(run));
  train_then_rest(run, training);
  const std::uint64_t left = mib(run.between(200, 2000));
  process.others_take(gib(80), left);
  run.note_cause();
  run.pass(run.between(minutes(2), minutes(8)));
  training.train(minutes(10));
}

// Another configuration gives the process less than it has had.
void limit_cut(Run& run) {
  Process& process = run.start({});
  const TrainingShape shape = draw_training(run);
  Training training(run, process, shape);
  train_then_rest(run, training);
  const auto part = static_cast<std::uint64_t>(run.between(0.2, 0.8) *
                                               static_cast<double>(shape.activation_bytes));
  process.set_capacity(shape.peak_bytes() - part);
  run.note_cause();
  run.pass(run.between(minutes(2), minutes(8)));
  training.train(minutes(30));
}

}  // namespace

std::vector<Scenario> sudden_scenarios() {
  return {{"neighbour_takes_card", Ending::sudden,
           "another process takes what the job does not use just now", neighbour_takes_card},
          {"limit_cut", Ending::sudden, "the pool's limit is set below the job's peak", limit_cut}};
}

}  // namespace gpupool::test
