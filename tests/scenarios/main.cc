// Plays one scenario with one seed and writes what was scraped, as JSON; what scenarios_test.py
// runs.
//
//   gpupool_scenarios list
//   gpupool_scenarios SCENARIO SEED FAMILY...
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/scenarios/run.h"
#include "tests/scenarios/scenario.h"

namespace gpupool::test {
namespace {

// What a process shows after a request has failed: it writes its log, and ends.
constexpr double kAfterFailure = 60;

nlohmann::json optional_number(const std::optional<double>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

int list() {
  nlohmann::json all = nlohmann::json::array();
  for (const Scenario& scenario : all_scenarios()) {
    all.push_back({{"name", scenario.name},
                   {"ending", to_string(scenario.ending)},
                   {"story", scenario.story}});
  }
  std::puts(all.dump().c_str());
  return 0;
}

void play(const Scenario& scenario, Run& run) {
  try {
    scenario.play(run);
  } catch (const RequestFailed&) {
    run.note_failure();
    run.pass(kAfterFailure);
  }
}

int write(const Scenario& scenario, std::uint64_t seed, std::set<std::string> families) {
  Run run(scenario.name, seed, std::move(families));
  play(scenario, run);
  nlohmann::json series = nlohmann::json::array();
  run.recorder().visit([&](const std::string& selector, const std::string& values) {
    series.push_back({selector, values});
  });
  const nlohmann::json document = {
      {"scenario", scenario.name},
      {"seed", seed},
      {"job_id", run.job_id()},
      {"ends", run.now()},
      {"cause", optional_number(run.cause())},
      {"failure", optional_number(run.failure())},
      {"reason", run.failure_text()},
      {"series", series},
  };
  std::puts(document.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace gpupool::test

int main(int count, char** arguments) {
  using namespace gpupool::test;
  if (count == 2 && std::string(arguments[1]) == "list") return list();
  if (count >= 3) {
    for (const Scenario& scenario : all_scenarios()) {
      if (arguments[1] != std::string(scenario.name)) continue;
      return write(scenario, std::strtoull(arguments[2], nullptr, 10),
                   {arguments + 3, arguments + count});
    }
  }
  std::fputs("usage: gpupool_scenarios list | SCENARIO SEED FAMILY...\n", stderr);
  return 2;
}
