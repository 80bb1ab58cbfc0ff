// Pairs of a temporary and a small result behind it, at most a page long together: when the
// temporaries go, a result is left in each page and none is empty.
#ifndef GPUPOOL_TESTS_SCENARIOS_HOLES_H_
#define GPUPOOL_TESTS_SCENARIOS_HOLES_H_

#include <cstdint>
#include <vector>

#include "tests/scenarios/run.h"

namespace gpupool::test {

class Holes {
 public:
  Holes(Run& run, Process& process) : run_(run), process_(process) {}

  /// Takes pairs until less than `rest` of the limit is left, in about `seconds`.
  void fill_but(std::uint64_t rest, double seconds) {
    const StatsV1 stats = process_.pool().stats();
    const std::uint64_t occupied = stats.live_requested_bytes + stats.waste_bytes;
    fill(stats.limit_in_force_bytes - occupied - rest, seconds);
  }
  /// Takes pairs of so much in sum.
  void fill(std::uint64_t bytes, double seconds) {
    const std::uint64_t count = bytes / (kTemporaryBytes + kResultBytes);
    for (std::uint64_t i = 0; i < count; ++i) {
      temporaries_.push_back(process_.take(kTemporaryBytes, "activations"));
      process_.take(kResultBytes);
      if (i % 64 == 0) run_.pass(64 * seconds / static_cast<double>(count));
    }
  }
  void give_temporaries() {
    for (void* block : temporaries_) process_.give(block);
    temporaries_.clear();
  }

 private:
  static constexpr std::uint64_t kTemporaryBytes = std::uint64_t{1856} << 10;
  static constexpr std::uint64_t kResultBytes = std::uint64_t{192} << 10;

  Run& run_;
  Process& process_;
  std::vector<void*> temporaries_;
};

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SCENARIOS_HOLES_H_
