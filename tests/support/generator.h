// Random lists of operations from a seed, and the way from a list that fails to a short one.
//
// The same seed gives the same list on every machine. A list fails if a World says so, or if its
// process ends: each trial runs in a child process, so that a failed GPUPOOL_CHECK of the pool
// can be shrunk as well.
//
// Environment: GPUPOOL_TEST_SEED sets the first seed, GPUPOOL_TEST_LISTS how many lists,
// GPUPOOL_TEST_OPERATIONS how long each is; GPUPOOL_SOAK (scripts/dev soak) takes ten times as
// many lists, or as many more as a test says; GPUPOOL_TEST_SHRINK=0 does not shrink.
#ifndef GPUPOOL_TESTS_SUPPORT_GENERATOR_H_
#define GPUPOOL_TESTS_SUPPORT_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tests/support/operation.h"
#include "tests/support/world.h"

namespace gpupool::test {

struct Scenario {
  WorldOptions world;
  OperationList list;
};

struct GeneratorOptions {
  Backing backing = Backing::vmm;
  SimulatedMemory memory = SimulatedMemory::address_only;
  std::uint64_t operations = 500;
  bool with_faults = false;
  /// Streams that are known by their handle alone and destroyed without notice.
  bool with_unannounced_streams = false;
  /// Operations inside of others, where those are in a driver call for an event.
  bool with_others = false;
  Recycling recycling = Recycling::off;
  AliasReuse alias_reuse = AliasReuse::wait;
  CrossStreamPolicy policy = CrossStreamPolicy::when_done;
  bool has_one_stream = false;
};

Scenario generate(std::uint64_t seed, const GeneratorOptions& options);

struct Trial {
  std::optional<std::string> failure;  // what went wrong, in words
  bool has_hit_fault = false;          // a call that was to fail was made
};
/// Runs the scenario here. Requires: a child process, as what goes wrong may end it.
Trial run_scenario(const Scenario& scenario);

/// What a child is at and has counted, as its parent sees it, too, when it has ended.
struct Progress {
  std::uint64_t seed = 0;
  std::uint64_t call = 0;
  std::uint64_t calls = 0;
};
/// What went wrong first, in words.
using ChildProgram = std::function<std::optional<std::string>(Progress&)>;
/// Runs `run` in a child process. One child for many scenarios: to make one costs more than most
/// lists, under a sanitizer many times as much.
std::optional<std::string> run_in_child(const ChildProgram& run, Progress& progress);

/// Runs the scenario in a child process; whether a fault was hit is not told.
Trial try_scenario(const Scenario& scenario);

/// The scenarios of `count` seeds, until one fails: what a person needs to know of that one.
std::optional<std::string> try_seeds(std::uint64_t first, std::uint64_t count,
                                     const std::function<Scenario(std::uint64_t)>& make);

/// As short a list as removing operations one by one gives, for which `fails` still says true.
OperationList shrink(OperationList list, const std::function<bool(const OperationList&)>& fails);

/// Everything a person needs of a scenario that fails: seed, world, shrunk list, what it says.
std::string explain_failure(std::uint64_t seed, const Scenario& scenario);

/// From the environment, else the default.
std::uint64_t first_seed(std::uint64_t otherwise);
std::uint64_t list_count(std::uint64_t otherwise, std::uint64_t soak_factor = 10);
std::uint64_t operation_count(std::uint64_t otherwise);

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SUPPORT_GENERATOR_H_
