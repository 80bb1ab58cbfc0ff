#include "tests/scenarios/scenario.h"

namespace gpupool::test {

const char* to_string(Ending ending) {
  switch (ending) {
    case Ending::builds_up: return "builds up";
    case Ending::sudden: return "sudden";
    case Ending::benign: break;
  }
  return "benign";
}

std::vector<Scenario> all_scenarios() {
  std::vector<Scenario> all;
  for (const auto& some :
       {growing_scenarios(), squeezed_scenarios(), fragmenting_scenarios(), sudden_scenarios(),
        benign_training_scenarios(), benign_serving_scenarios(), benign_cluster_scenarios()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace gpupool::test
