// A few lists of operations, each again and again: the first, second, ... n-th call of the backend
// fails, from the pool's start on, until a run makes fewer calls than that. After each operation
// from there on the books must be right (tests/support/world.h), and at the end nothing may be left
// on the device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "tests/property/choices.h"
#include "tests/support/generator.h"

namespace gpupool::test {
namespace {

struct SweepKind {
  const char* name;
  Backing backing;
  Error error;
  Recycling recycling = Recycling::off;
  AliasReuse alias_reuse = AliasReuse::wait;
  friend std::ostream& operator<<(std::ostream& out, const SweepKind& kind) {
    return out << kind.name;
  }
};

class FaultSweepTest : public testing::TestWithParam<SweepKind> {};

Scenario make_scenario(const SweepKind& kind, std::uint64_t seed) {
  Scenario scenario =
      generate(seed, {kind.backing, SimulatedMemory::address_only, 150, false, false});
  scenario.world.capacity_bytes = std::uint64_t{48} << 20;
  scenario.world.reserve_bytes = std::uint64_t{4} << 20;
  scenario.world.stream_count = 5;
  scenario.world.failing_error = kind.error;
  scenario.world.recycling = kind.recycling;
  scenario.world.alias_reuse = kind.alias_reuse;
  return scenario;
}

std::uint64_t step() {
#if defined(__SANITIZE_THREAD__)
  // Of one thread: the order of locks shows in few calls.
  return std::getenv("GPUPOOL_SOAK") != nullptr ? 7 : 53;
#elif defined(__SANITIZE_ADDRESS__)
  return 7;
#else
  return 1;
#endif
}

/// Fails no call of the scenario, then the first, second, ... until it has no more. Up to that call
/// a run is the first one again, and not judged again.
std::optional<std::string> sweep(Scenario scenario, Progress& progress) {
  constexpr std::uint64_t kTooMany = 5000;
  progress.call = 0;
  if (auto failure = run_scenario(scenario).failure) return failure;
  for (progress.call = 1; progress.call < kTooMany; progress.call += step()) {
    scenario.world.failing_call = progress.call;
    Trial trial = run_scenario(scenario);
    if (trial.failure) return std::move(trial.failure);
    if (!trial.has_hit_fault) return std::nullopt;
    progress.calls += step();
  }
  return "the list does not come to an end";
}

TEST_P(FaultSweepTest, BooksAreRightWhicheverCallFails) {
  const auto run = [](Progress& progress) -> std::optional<std::string> {
    for (progress.seed = 1; progress.seed <= 8; ++progress.seed) {
      if (auto failure = sweep(make_scenario(GetParam(), progress.seed), progress)) return failure;
    }
    return std::nullopt;
  };
  Progress progress;
  if (const auto failure = run_in_child(run, progress)) {
    Scenario scenario = make_scenario(GetParam(), progress.seed);
    scenario.world.failing_call = progress.call;
    FAIL() << *failure << "\n" << explain_failure(progress.seed, scenario);
  }
  EXPECT_GT(progress.calls, 1000u) << "the lists are too short to say anything";
}

INSTANTIATE_TEST_SUITE_P(
    All, FaultSweepTest,
    testing::Values(SweepKind{"VmmOutOfMemory", Backing::vmm, Error::out_of_memory},
                    SweepKind{"VmmBackendFailure", Backing::vmm, Error::backend_failure},
                    SweepKind{"EagerOutOfMemory", Backing::vmm, Error::out_of_memory, kEager},
                    SweepKind{"EagerBackendFailure", Backing::vmm, Error::backend_failure, kEager},
                    SweepKind{"EagerSameStreamOutOfMemory", Backing::vmm, Error::out_of_memory,
                              kEager, AliasReuse::same_stream},
                    SweepKind{"EagerSameStreamBackendFailure", Backing::vmm, Error::backend_failure,
                              kEager, AliasReuse::same_stream},
                    SweepKind{"PressureBackendFailure", Backing::vmm, Error::backend_failure,
                              Recycling::pressure},
                    SweepKind{"CudaMallocOutOfMemory", Backing::cudamalloc, Error::out_of_memory},
                    SweepKind{"CudaMallocBackendFailure", Backing::cudamalloc,
                              Error::backend_failure}),
    [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace gpupool::test
