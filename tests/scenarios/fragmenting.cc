// Requests fail although enough memory is free, because it is in pieces: slowly, and at once.
#include <algorithm>
#include <utility>
#include <vector>

#include "tests/scenarios/holes.h"
#include "tests/scenarios/scenario.h"

namespace gpupool::test {
namespace {

// The training between evaluations: one large block a step.
void train_with_large_block(Run& run, Process& process, std::uint64_t large, double seconds) {
  const double end = run.now() + seconds;
  while (run.now() < end) {
    void* block = process.take(large, "activations");
    process.compute(1);
    run.pass(run.between(1, 3));
    process.give(block);
    run.pass(run.between(0.5, 2));
  }
}

// A cache of entries of all sizes has filled the card. To make room for larger batches it gives
// back one entry in two or so, whichever was not used: much becomes free, and hardly a page becomes
// empty.
void shrinking_cache(Run& run) {
  ProcessOptions options;
  const std::uint64_t large = run.bytes_between(2, 4);
  const std::uint64_t larger = large + run.bytes_between(5, 8);
  if (run.one_in(2)) options.pool.runtime.thresholds.required_block_bytes = larger;
  Process& process = run.start(options);
  process.take(run.bytes_between(12, 30), "weights");
  const StatsV1 stats = process.pool().stats();
  const std::uint64_t cache = stats.limit_bytes - stats.live_requested_bytes - large - gib(1);
  std::vector<void*> entries;
  for (std::uint64_t bytes = 0; bytes < cache;) {
    const std::uint64_t entry = mib(run.between(0.2, 1.1));
    entries.push_back(process.take(entry));
    bytes += entry;
    if (entries.size() % 64 == 0) run.pass(1);
  }
  train_with_large_block(run, process, large, run.between(minutes(20), minutes(40)));
  const double lasts = run.between(minutes(40), hours(3));
  const double share = run.between(0.35, 0.55);
  const auto most = static_cast<double>(entries.size());
  const double began = run.now();
  while (run.now() - began < lasts) {
    train_with_large_block(run, process, large, 5);
    const double left = most * (1 - share * (run.now() - began) / lasts);
    while (static_cast<double>(entries.size()) > left) {
      std::swap(entries[static_cast<std::size_t>(run.between(0, 1) *
                                                 static_cast<double>(entries.size()))],
                entries.back());
      process.give(entries.back());
      entries.pop_back();
    }
  }
  train_with_large_block(run, process, larger, minutes(5));
}

// An evaluation keeps a small result of each sample beside its large temporaries. When these go, no
// page is empty. The training step that comes next needs large blocks.
void holes_after_evaluation(Run& run) {
  ProcessOptions options;
  const std::uint64_t large = run.bytes_between(3, 8);
  options.pool.runtime.thresholds.required_block_bytes = large;
  Process& process = run.start(options);
  Holes holes(run, process);
  process.take(run.bytes_between(15, 35), "weights");
  train_with_large_block(run, process, large, run.between(minutes(30), minutes(50)));
  const std::uint64_t rest = gib(run.between(0.3, 1.5));
  holes.fill_but(rest, run.between(20, 60));
  holes.give_temporaries();
  run.note_cause();
  run.pass(run.between(minutes(2), minutes(8)));
  process.take(large);
}

}  // namespace

std::vector<Scenario> fragmenting_scenarios() {
  return {{"shrinking_cache", Ending::builds_up,
           "a cache gives back one entry in two: no piece is large enough", shrinking_cache},
          {"holes_after_evaluation", Ending::sudden,
           "an evaluation leaves a small result in every page", holes_after_evaluation}};
}

}  // namespace gpupool::test
