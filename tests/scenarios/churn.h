// Dynamic shapes beside results that stay for a while: what makes memory fragment. Each step takes
// transients of sizes never seen before; now and then, at any moment of a step, a result is kept
// for an hour or so; every half hour a large block is needed in one piece.
#ifndef GPUPOOL_TESTS_SCENARIOS_CHURN_H_
#define GPUPOOL_TESTS_SCENARIOS_CHURN_H_

#include <cstdint>
#include <vector>

#include "tests/scenarios/run.h"

namespace gpupool::test {

struct ChurnShape {
  std::uint64_t weights_bytes = gib(8);
  std::uint64_t transient_bytes = gib(20);  // at the peak of the largest step
  int most_transients = 60;                 // each a different size from step to step
  double step_seconds = 2;
  double kept_seconds = 3600;          // mean
  std::uint64_t kept_bytes = gib(12);  // of results, once as many go as come
  std::uint64_t kept_block = mib(8);   // of one result, at most
  std::uint64_t large_bytes = gib(10);
  double large_every = 1800;
};

ChurnShape draw_churn(Run& run);
/// Until `seconds` have gone by, or a request fails.
void churn(Run& run, Process& process, const ChurnShape& shape, double seconds);

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SCENARIOS_CHURN_H_
