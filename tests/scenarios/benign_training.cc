// Training jobs that look alarming and are not.
#include <algorithm>
#include <cmath>

#include "tests/scenarios/buffer.h"
#include "tests/scenarios/churn.h"
#include "tests/scenarios/scenario.h"
#include "tests/scenarios/training.h"

namespace gpupool::test {
namespace {

// What a job may have beside its steps up to this share of the limit.
double room_up_to(Process& process, const TrainingShape& shape, double share) {
  return share * static_cast<double>(process.pool().stats().limit_bytes) -
         static_cast<double>(shape.peak_bytes());
}

// A buffer of samples fills and is emptied, again and again.
void saw_tooth(Run& run) {
  Process& process = run.start({});
  const TrainingShape shape = draw_training(run);
  Training training(run, process, shape);
  const double tooth = room_up_to(process, shape, run.between(0.8, 0.95));
  const double period = run.between(minutes(5), minutes(40));
  Buffer buffer(process);
  double began = run.now();
  training.train(hours(3), [&] {
    if (run.now() - began > period) {
      buffer.shrink_to(0);
      began = run.now();
    }
    buffer.grow_to(static_cast<std::uint64_t>(tooth * (run.now() - began) / period));
  });
}

// A cache of samples fills once, and stays full.
void warm_up(Run& run) {
  Process& process = run.start({});
  const TrainingShape shape = draw_training(run);
  Training training(run, process, shape);
  const double cache = room_up_to(process, shape, run.between(0.7, 0.95));
  const double lasts = run.between(minutes(5), minutes(25));
  Buffer buffer(process);
  const double began = run.now();
  training.train(hours(2.5), [&] {
    const double share = std::min(1.0, (run.now() - began) / lasts);
    buffer.grow_to(static_cast<std::uint64_t>(cache * share));
  });
}

// Each hour an evaluation with larger batches.
void evaluation_each_hour(Run& run) {
  Process& process = run.start({});
  const TrainingShape shape = draw_training(run);
  Training training(run, process, shape);
  const double most =
      room_up_to(process, shape, 0.95) / static_cast<double>(shape.activation_bytes);
  const double scale = 1 + most * run.between(0.3, 1);
  training.train(run.between(minutes(10), minutes(60)));
  while (run.now() < hours(4)) {
    training.train(run.between(minutes(3), minutes(10)), {}, scale);
    training.train(minutes(55));
  }
}

// A notebook: some work in the evening, nothing at night, work again.
void idle_night(Run& run) {
  Process& process = run.start({});
  const TrainingShape shape = draw_training(run);
  Training training(run, process, shape);
  Buffer buffer(process);
  training.train(run.between(minutes(20), minutes(50)));
  buffer.grow_to(static_cast<std::uint64_t>(room_up_to(process, shape, 0.9) * run.between(0, 1)));
  run.pass(run.between(hours(3), hours(5)));
  training.train(minutes(30));
}

// The work that fragments segments, where pages move.
void dynamic_shapes_recycled(Run& run) {
  const ChurnShape shape = draw_churn(run);
  ProcessOptions options;
  options.pool.runtime.thresholds.required_block_bytes = shape.large_bytes;
  churn(run, run.start(options), shape, hours(3));
}

void lost_scrapes(Run& run) {
  Process& process = run.start({});
  const TrainingShape shape = draw_training(run);
  run.lose_every(5);
  Training training(run, process, shape);
  training.train(hours(2), {},
                 1 + room_up_to(process, shape, run.between(0.6, 0.95)) /
                         static_cast<double>(shape.activation_bytes));
}

// A copy of the state each quarter of an hour, for less than a minute.
void checkpoint_spikes(Run& run) {
  Process& process = run.start({});
  const TrainingShape shape = draw_training(run);
  Training training(run, process, shape);
  const auto copy = static_cast<std::uint64_t>(room_up_to(process, shape, run.between(0.85, 0.97)));
  const double every = run.between(minutes(8), minutes(30));
  const double lasts = run.between(10, 50);
  while (run.now() < hours(3)) {
    training.train(every);
    Buffer buffer(process, mib(256));
    buffer.grow_to(copy);
    training.train(lasts);
    buffer.shrink_to(0);
  }
}

// 98 of 100 parts of the limit at the peak of each step, all the time.
void nearly_full(Run& run) {
  Process& process = run.start({});
  TrainingShape shape = draw_training(run);
  shape.spread = run.between(0.01, 0.05);
  Training training(run, process, shape);
  training.train(run.between(minutes(1), minutes(10)));
  Buffer buffer(process, mib(32));
  buffer.grow_to(static_cast<std::uint64_t>(room_up_to(process, shape, run.between(0.975, 0.983))));
  training.train(hours(2.5));
}

// At start each layer's algorithms are tried with the workspaces that they would like, as far as
// there is memory for them: a library asks before it takes.
void trial_allocations(Run& run) {
  Process& process = run.start({});
  const TrainingShape shape = draw_training(run);
  Training training(run, process, shape);
  const int trials = static_cast<int>(run.between(40, 200));
  for (int i = 0; i < trials; ++i) {
    const std::uint64_t workspace = mib(std::exp(run.between(std::log(32.0), std::log(70000.0))));
    if (process.pool().would_fit(workspace) != Fit::no) {
      void* block = process.take(workspace, "activations");
      process.compute(0.1);
      run.pass(0.2);
      process.give(block);
    }
    run.pass(run.between(0.1, 2));
  }
  training.train(hours(1.5));
}

}  // namespace

std::vector<Scenario> benign_training_scenarios() {
  return {
      {"saw_tooth", Ending::benign, "a buffer fills and is emptied", saw_tooth},
      {"warm_up", Ending::benign, "a cache fills once, and stays", warm_up},
      {"evaluation_each_hour", Ending::benign, "larger batches for minutes", evaluation_each_hour},
      {"idle_night", Ending::benign, "nothing happens for hours", idle_night},
      {"dynamic_shapes_recycled", Ending::benign, "what fragments segments, where pages move",
       dynamic_shapes_recycled},
      {"lost_scrapes", Ending::benign, "every fifth scrape is lost", lost_scrapes},
      {"checkpoint_spikes", Ending::benign, "a copy of the state for less than a minute",
       checkpoint_spikes},
      {"nearly_full", Ending::benign, "98 % of the limit at each step", nearly_full},
      {"trial_allocations", Ending::benign, "workspaces are tried at the start, each if it fits",
       trial_allocations}};
}

}  // namespace gpupool::test
