#include "tests/scenarios/churn.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpupool::test {
namespace {

struct Kept {
  void* block;
  double until;
};

class Churn {
 public:
  Churn(Run& run, Process& process, const ChurnShape& shape)
      : run_(run), process_(process), shape_(shape) {
    for (int i = 0; i < 64; ++i) {
      process.take(shape.weights_bytes / 64, "weights");
      run.pass(0.5);
    }
  }

  void step() {
    std::vector<void*> transients;
    const double total = static_cast<double>(shape_.transient_bytes) * run_.between(0.4, 1);
    const int count = static_cast<int>(run_.between(8, shape_.most_transients));
    const double pause = shape_.step_seconds / (2 * count);
    for (int i = 0; i < count; ++i) {
      const double share = run_.between(0.2, 1.8) / count;
      transients.push_back(process_.take(static_cast<std::uint64_t>(total * share), "activations"));
      keep(count);
      run_.pass(pause);
    }
    while (!transients.empty()) {
      process_.give(transients.back());
      transients.pop_back();
      run_.pass(pause);
    }
    let_go();
  }

  void large() {
    void* block = process_.take(shape_.large_bytes);
    run_.pass(20);
    process_.give(block);
  }

 private:
  void keep(int moments) {
    const double mean_block = 0.5 * static_cast<double>(shape_.kept_block);
    const double at_a_time = static_cast<double>(shape_.kept_bytes) / mean_block;
    const double a_step = at_a_time * shape_.step_seconds / shape_.kept_seconds;
    if (run_.between(0, 1) * moments > a_step) return;
    const auto bytes =
        static_cast<std::uint64_t>(run_.between(0.05, 1) * static_cast<double>(shape_.kept_block));
    const double life = -std::log(1 - run_.between(0, 0.99)) * shape_.kept_seconds;
    kept_.push_back({process_.take(bytes), run_.now() + life});
  }

  void let_go() {
    const auto gone = std::partition(kept_.begin(), kept_.end(),
                                     [&](const Kept& kept) { return kept.until > run_.now(); });
    for (auto kept = gone; kept != kept_.end(); ++kept) process_.give(kept->block);
    kept_.erase(gone, kept_.end());
  }

  Run& run_;
  Process& process_;
  const ChurnShape& shape_;
  std::vector<Kept> kept_;
};

}  // namespace

ChurnShape draw_churn(Run& run) {
  ChurnShape shape;
  shape.weights_bytes = run.bytes_between(4, 8);
  shape.transient_bytes = run.bytes_between(28, 36);
  shape.step_seconds = run.between(1, 3);
  shape.kept_seconds = run.between(minutes(60), minutes(150));
  shape.kept_bytes = run.bytes_between(16, 22);
  shape.kept_block = mib(run.between(4, 24));
  shape.large_bytes = run.bytes_between(22, 30);
  shape.large_every = run.between(minutes(15), minutes(30));
  return shape;
}

void churn(Run& run, Process& process, const ChurnShape& shape, double seconds) {
  Churn play(run, process, shape);
  const double end = run.now() + seconds;
  double next_large = run.now() + 60;
  while (run.now() < end) {
    play.step();
    if (run.now() < next_large) continue;
    play.large();
    next_large = run.now() + shape.large_every;
  }
}

}  // namespace gpupool::test
