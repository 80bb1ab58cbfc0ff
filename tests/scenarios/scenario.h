// The scenarios: what each is about, and the function that plays it. Every number that is not part
// of the story is drawn by the run's seed.
#ifndef GPUPOOL_TESTS_SCENARIOS_SCENARIO_H_
#define GPUPOOL_TESTS_SCENARIOS_SCENARIO_H_

#include <vector>

#include "tests/scenarios/run.h"

namespace gpupool::test {

enum class Ending {
  builds_up,  // a request fails, of a cause that grows
  sudden,     // a request fails, of a cause that comes at once (Run::note_cause)
  benign,     // none does
};
const char* to_string(Ending ending);

struct Scenario {
  const char* name;
  Ending ending;
  const char* story;
  void (*play)(Run& run);
};

/// Every scenario, in the order of the table.
std::vector<Scenario> all_scenarios();

std::vector<Scenario> growing_scenarios();
std::vector<Scenario> squeezed_scenarios();
std::vector<Scenario> fragmenting_scenarios();
std::vector<Scenario> sudden_scenarios();
std::vector<Scenario> benign_training_scenarios();
std::vector<Scenario> benign_serving_scenarios();
std::vector<Scenario> benign_cluster_scenarios();

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SCENARIOS_SCENARIO_H_
