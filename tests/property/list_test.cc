// Random lists of operations against the model: after each operation everything that can be seen
// of the pool from outside is what it must be (tests/support/world.h says what that is).
//
// Among that is the stream property: a block freed on one stream with work pending is never given
// to another before its completion, in any order of coalescing. It is judged twice, without the
// pool's tickets: by the model, which knows what the program gave to which stream and what the
// device has finished, and by the device, which refuses work that races. That these tests can fail
// is itself a test: mutation_check.py takes the ticket check out (TicketSet::holder() gives
// everything to anybody), and a dozen other rules, one at a time, and the tests must notice.
#include <gtest/gtest.h>

#include <ostream>

#include "tests/support/generator.h"

namespace gpupool::test {
namespace {

struct Kind {
  const char* name;
  GeneratorOptions options;
  std::uint64_t lists;
  friend std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }
};

class ListTest : public testing::TestWithParam<Kind> {};

TEST_P(ListTest, PoolAgreesWithTheModelAfterEachOperation) {
  const std::uint64_t seed = first_seed(1);
  const std::uint64_t lists = list_count(GetParam().lists);
  GeneratorOptions options = GetParam().options;
  options.operations = operation_count(options.operations);
  for (std::uint64_t i = 0; i < lists; ++i) {
    const Scenario scenario = generate(seed + i, options);
    if (const auto failure = try_scenario(scenario).failure) {
      FAIL() << *failure << "\n" << explain_failure(seed + i, scenario);
    }
  }
}

constexpr auto kVmm = Backing::vmm;
constexpr auto kSegments = Backing::cudamalloc;
constexpr auto kAddresses = SimulatedMemory::address_only;
constexpr auto kReal = SimulatedMemory::real;

INSTANTIATE_TEST_SUITE_P(
    All, ListTest,
    testing::Values(Kind{"Vmm", {kVmm, kAddresses, 1000, false, false}, 300},
                    Kind{"CudaMalloc", {kSegments, kAddresses, 1000, false, false}, 200},
                    Kind{"VmmRealMemory", {kVmm, kReal, 500, false, false}, 200},
                    Kind{"CudaMallocRealMemory", {kSegments, kReal, 500, false, false}, 100},
                    Kind{"VmmFaults", {kVmm, kAddresses, 500, true, false}, 300},
                    Kind{"CudaMallocFaults", {kSegments, kAddresses, 500, true, false}, 200},
                    Kind{"VmmUnannouncedStreams", {kVmm, kReal, 500, false, true}, 300},
                    Kind{"Long", {kVmm, kAddresses, 5000, false, false}, 30},
                    Kind{"VmmOthers", {kVmm, kReal, 500, false, false, true}, 100},
                    Kind{"CudaMallocOthers", {kSegments, kReal, 500, false, true, true}, 60},
                    Kind{"VmmOthersFaults", {kVmm, kAddresses, 500, true, false, true}, 100}),
    [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace gpupool::test
