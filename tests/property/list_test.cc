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

#include <optional>
#include <ostream>
#include <string>
#include <tuple>

#include "tests/property/choices.h"
#include "tests/support/generator.h"

namespace gpupool::test {
namespace {

struct ListKind {
  const char* name;
  GeneratorOptions options;
  std::uint64_t lists;
  friend std::ostream& operator<<(std::ostream& out, const ListKind& kind) {
    return out << kind.name;
  }
};

void run_lists(GeneratorOptions options, std::uint64_t lists) {
  options.operations = operation_count(options.operations);
  const auto failure = try_seeds(first_seed(1), list_count(lists),
                                 [&](std::uint64_t seed) { return generate(seed, options); });
  EXPECT_FALSE(failure.has_value()) << *failure;
}

class ListTest : public testing::TestWithParam<ListKind> {};

TEST_P(ListTest, PoolAgreesWithTheModelAfterEachOperation) {
  run_lists(GetParam().options, GetParam().lists);
}

INSTANTIATE_TEST_SUITE_P(
    All, ListTest,
    testing::Values(ListKind{"Vmm", {kVmm, kAddresses, 1000, false, false}, 300},
                    ListKind{"CudaMalloc", {kSegments, kAddresses, 1000, false, false}, 200},
                    ListKind{"VmmRealMemory", {kVmm, kReal, 500, false, false}, 200},
                    ListKind{"CudaMallocRealMemory", {kSegments, kReal, 500, false, false}, 100},
                    ListKind{"VmmFaults", {kVmm, kAddresses, 500, true, false}, 300},
                    ListKind{"CudaMallocFaults", {kSegments, kAddresses, 500, true, false}, 200},
                    ListKind{"VmmUnannouncedStreams", {kVmm, kReal, 500, false, true}, 300},
                    ListKind{"Long", {kVmm, kAddresses, 5000, false, false}, 30},
                    ListKind{"VmmOthers", {kVmm, kReal, 500, false, false, true}, 100},
                    ListKind{"CudaMallocOthers", {kSegments, kReal, 500, false, true, true}, 60},
                    ListKind{"VmmOthersFaults", {kVmm, kAddresses, 500, true, false, true}, 100}),
    [](const auto& kind) { return kind.param.name; });

/// The same checks while pages move, in each of the four ways in which they do.
struct Way {
  const char* name;
  Recycling recycling;
  AliasReuse alias_reuse;
  friend std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }
};

class RecyclingListTest : public testing::TestWithParam<std::tuple<Way, ListKind>> {};

TEST_P(RecyclingListTest, PoolAgreesWithTheModelAfterEachOperation) {
  const auto& [way, kind] = GetParam();
  GeneratorOptions options = kind.options;
  options.recycling = way.recycling;
  options.alias_reuse = way.alias_reuse;
  run_lists(options, kind.lists);
}

/// The same under the other policies of what one stream may have of another's.
class PolicyListTest
    : public testing::TestWithParam<std::tuple<CrossStreamPolicy, Recycling, ListKind>> {};

TEST_P(PolicyListTest, PoolAgreesWithTheModelAfterEachOperation) {
  const auto& [policy, recycling, kind] = GetParam();
  GeneratorOptions options = kind.options;
  options.policy = policy;
  // Segments do not move, so that empty ones are owed to nobody.
  options.recycling = options.backing == kSegments ? Recycling::off : recycling;
  run_lists(options, kind.lists);
}

INSTANTIATE_TEST_SUITE_P(
    All, PolicyListTest,
    testing::Combine(
        testing::Values(CrossStreamPolicy::wait, CrossStreamPolicy::never),
        testing::Values(Recycling::off, Recycling::eager),
        testing::Values(ListKind{"Vmm", {kVmm, kAddresses, 500, false, false}, 40},
                        ListKind{"RealMemory", {kVmm, kReal, 500, false, false}, 30},
                        ListKind{"CudaMalloc", {kSegments, kReal, 500, false, false}, 30},
                        ListKind{"Faults", {kVmm, kAddresses, 500, true, false}, 40},
                        ListKind{"Unannounced", {kVmm, kReal, 500, false, true}, 30},
                        ListKind{"Others", {kVmm, kReal, 500, false, false, true}, 20})),
    [](const auto& param) {
      return std::string(to_string(std::get<0>(param.param))) + "_" +
             to_string(std::get<1>(param.param)) + "_" + std::get<2>(param.param).name;
    });

constexpr GeneratorOptions one_stream(SimulatedMemory memory) {
  GeneratorOptions options{kVmm, memory, 500};
  options.has_one_stream = true;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    All, RecyclingListTest,
    testing::Combine(
        testing::Values(Way{"Eager", Recycling::eager, AliasReuse::wait},
                        Way{"EagerSameStream", Recycling::eager, AliasReuse::same_stream},
                        Way{"Pressure", Recycling::pressure, AliasReuse::wait},
                        Way{"PressureSameStream", Recycling::pressure, AliasReuse::same_stream}),
        testing::Values(ListKind{"Vmm", {kVmm, kAddresses, 1000, false, false}, 60},
                        ListKind{"RealMemory", {kVmm, kReal, 500, false, false}, 60},
                        ListKind{"OneStream", one_stream(kAddresses), 40},
                        ListKind{"OneStreamRealMemory", one_stream(kReal), 40},
                        ListKind{"Faults", {kVmm, kAddresses, 500, true, false}, 80},
                        ListKind{"UnannouncedStreams", {kVmm, kReal, 500, false, true}, 60},
                        ListKind{"Others", {kVmm, kReal, 500, false, false, true}, 40},
                        ListKind{"OthersFaults", {kVmm, kAddresses, 500, true, false, true}, 40})),
    [](const auto& param) {
      return std::string(std::get<0>(param.param).name) + std::get<1>(param.param).name;
    });

}  // namespace
}  // namespace gpupool::test
