// Jobs of several processes, and several jobs on one machine, that look alarming and are not.
#include <algorithm>
#include <vector>

#include "tests/scenarios/scenario.h"
#include "tests/scenarios/training.h"

namespace gpupool::test {
namespace {

// A rank that goes through its steps together with its fellows.
struct Rank {
  Process* process = nullptr;
  std::vector<void*> activations;
};

void load(Process& process, std::uint64_t bytes) {
  for (int i = 0; i < 32; ++i) process.take(bytes / 32, "weights");
}

void lock_step(Run& run, std::vector<Rank>& ranks, double seconds, double activation_gib) {
  const double end = run.now() + seconds;
  while (run.now() < end) {
    for (Rank& rank : ranks) {
      const double scale = run.between(0.9, 1);
      for (int i = 0; i < 16; ++i) {
        rank.activations.push_back(
            rank.process->take(gib(scale * activation_gib / 16), "activations"));
      }
      rank.process->compute(1);
    }
    run.pass(1.2);
    for (Rank& rank : ranks) {
      for (void* block : rank.activations) rank.process->give(block);
      rank.activations.clear();
    }
    run.pass(0.6);
  }
}

// One of four ranks dies and is back within minutes; the others wait for it.
void rank_restart(Run& run) {
  const std::uint64_t weights = run.bytes_between(15, 30);
  const double activation_gib = run.between(15, 40);
  std::vector<Rank> ranks(4);
  const auto start = [&](int index) {
    ProcessOptions options;
    options.rank = index;
    options.world_size = 4;
    ranks[static_cast<std::size_t>(index)].process = &run.start(options);
    load(*ranks[static_cast<std::size_t>(index)].process, weights);
  };
  for (int i = 0; i < 4; ++i) start(i);
  for (int restart = 0; restart < 2; ++restart) {
    lock_step(run, ranks, run.between(minutes(20), minutes(45)), activation_gib);
    const int dies = static_cast<int>(run.between(0, 4));
    run.kill(*ranks[static_cast<std::size_t>(dies)].process);
    run.pass(run.between(30, 200));
    start(dies);
  }
  lock_step(run, ranks, minutes(20), activation_gib);
}

// A neighbour takes a part of what is free for some minutes, now and then.
void neighbour_visits(Run& run) {
  Process& process = run.start({});
  const TrainingShape shape = draw_training(run);
  Training training(run, process, shape);
  while (run.now() < hours(2.5)) {
    training.train(run.between(minutes(10), minutes(30)));
    const double free = static_cast<double>(gib(80) - process.pool().stats().held_bytes);
    process.others_take(static_cast<std::uint64_t>(free * run.between(0.3, 0.85)));
    training.train(run.between(minutes(3), minutes(20)));
    process.others_take(0);
  }
}

// Jobs of some minutes one after the other, each on the same port and with an id of its own.
void short_jobs(Run& run) {
  const int jobs = static_cast<int>(run.between(6, 12));
  for (int i = 1; i <= jobs; ++i) {
    ProcessOptions options;
    options.job = std::to_string(i);
    Process& process = run.start(options);
    {
      const TrainingShape shape = draw_training(run);
      Training training(run, process, shape);
      training.train(run.between(minutes(3), minutes(18)), {}, run.between(0.5, 2));
      training.finish();
    }
    run.end(process);
    run.pass(run.between(10, 180));
  }
}

}  // namespace

std::vector<Scenario> benign_cluster_scenarios() {
  return {{"rank_restart", Ending::benign, "one of four ranks dies and is back within minutes",
           rank_restart},
          {"neighbour_visits", Ending::benign, "a neighbour comes and goes", neighbour_visits},
          {"short_jobs", Ending::benign, "many short jobs one after the other", short_jobs}};
}

}  // namespace gpupool::test
