// What page recycling promises, judged from outside on lists that leave holes everywhere: a request
// is refused only where the empty pages are fewer than it needs (tests/support/occupancy.h), and
// the same list gives the same addresses and the same statistics, whenever it is run.
//
// Of all addresses a pool may use up eight times its capacity and four times that again, which no
// list of these comes near: that addresses are used up is no excuse here.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/property/choices.h"
#include "tests/support/recycling_lists.h"
#include "tests/support/units.h"

namespace gpupool::test {
namespace {

struct RecyclingKind {
  const char* name;
  Recycling recycling;
  AliasReuse alias_reuse;
  SimulatedMemory memory = SimulatedMemory::address_only;
  friend std::ostream& operator<<(std::ostream& out, const RecyclingKind& kind) {
    return out << kind.name;
  }
};

class RecyclingTest : public testing::TestWithParam<RecyclingKind> {
 protected:
  static RecyclingListOptions options() {
    const RecyclingKind& kind = GetParam();
    return {kind.recycling, kind.alias_reuse, kind.memory, operation_count(500)};
  }
};

/// Of 500 operations each; the six kinds together make 100 000 operations, and 10 million in a
/// soak.
constexpr std::uint64_t kLists = 34;
constexpr std::uint64_t kSoakFactor = 100;

TEST_P(RecyclingTest, RefusesOnlyWhatTheEmptyPagesCannotHold) {
  const auto failure =
      try_seeds(first_seed(1), list_count(kLists, kSoakFactor),
                [](std::uint64_t seed) { return generate_recycling(seed, options()); });
  EXPECT_FALSE(failure.has_value()) << *failure;
}

/// Lists in which a forecast was wrong: what could move was inside the window that was planned, and
/// addresses that were stale were in the way of a better one.
TEST_P(RecyclingTest, ForecastsHoldWherePagesOfTheWindowItselfCouldMove) {
  for (const std::uint64_t seed : {377u, 457u}) {
    const auto failure =
        try_seeds(seed, 1, [](std::uint64_t one) { return generate_recycling(one, options()); });
    EXPECT_FALSE(failure.has_value()) << *failure;
  }
}

/// What differs, in words; nothing of it is as of the wall clock.
std::string difference(const StatsV1& one, const StatsV1& other) {
  const auto differs = [&](std::size_t begin, std::size_t end) {
    return std::memcmp(reinterpret_cast<const char*>(&one) + begin,
                       reinterpret_cast<const char*>(&other) + begin, end - begin) != 0;
  };
  // Left out: the wall clock's time of the start, sampled durations of the steady clock, and bytes
  // that belong to no field.
  if (differs(0, offsetof(StatsV1, start_unix_ns))) return "time";
  if (differs(offsetof(StatsV1, requests), offsetof(StatsV1, allocation_duration))) {
    return "requests or driver calls";
  }
  if (differs(offsetof(StatsV1, held_bytes), offsetof(StatsV1, watched))) return "bytes";
  for (std::size_t i = 0; i < kMaxWatchedSizes; ++i) {
    const WatchedSize& a = one.watched[i];
    const WatchedSize& b = other.watched[i];
    if (a.bytes != b.bytes || a.fits != b.fits || a.unusable_free_bytes != b.unusable_free_bytes) {
      return "watched sizes";
    }
  }
  if (differs(offsetof(StatsV1, watched_count),
              offsetof(StatsV1, has_asymmetric_claims) + sizeof one.has_asymmetric_claims) ||
      differs(offsetof(StatsV1, slack), offsetof(StatsV1, alias_reuse) + sizeof one.alias_reuse) ||
      differs(offsetof(StatsV1, stale_pages), sizeof(StatsV1))) {
    return "counts or options";
  }
  return "";
}

TEST_P(RecyclingTest, TheListsHaveRefusalsMovesAndRequestsForAllThatIsEmpty) {
  std::uint64_t failures = 0;
  std::uint64_t moved_pages = 0;
  std::uint64_t asked_for_all = 0;
  std::uint64_t epochs = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Scenario scenario = generate_recycling(seed, options());
    World world(scenario.world);
    const auto failure = world.run(scenario.list);
    ASSERT_FALSE(failure.has_value()) << "seed " << seed << ": " << *failure;
    failures += world.last_stats.failures;
    moved_pages += world.last_stats.pages_recycled;
    asked_for_all += world.asked_for_all;
    epochs += world.last_stats.epochs_closed;
  }
  EXPECT_GT(failures, 100u);
  EXPECT_GT(moved_pages, 100u);
  EXPECT_GT(asked_for_all, 20u);
  EXPECT_GT(epochs, 100u);
}

/// Without real memory, whose addresses are the kernel's choice.
class RepeatTest : public RecyclingTest {
 protected:
  struct Outcome {
    std::vector<char*> handed_out;
    StatsV1 stats;
  };
  /// On a device that ends with it: two that live at once have different addresses.
  static Outcome outcome(const Scenario& scenario) {
    World world(scenario.world);
    const auto failure = world.run(scenario.list);
    EXPECT_FALSE(failure.has_value()) << *failure;
    return {std::move(world.handed_out), world.last_stats};
  }
};

TEST_P(RepeatTest, TheSameListGivesTheSameAddressesAndStatistics) {
  const std::uint64_t seed = first_seed(1);
  for (std::uint64_t i = 0; i < list_count(8); ++i) {
    const Scenario scenario = generate_recycling(seed + i, options());
    const Outcome first = outcome(scenario);
    const Outcome second = outcome(scenario);
    ASSERT_TRUE(first.handed_out == second.handed_out) << "seed " << seed + i;
    ASSERT_EQ(difference(first.stats, second.stats), "") << "seed " << seed + i;
  }
}

TEST(RecyclingJudgeTest, NoticesAPoolThatDoesNotRecycle) {
  std::uint64_t noticed = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Scenario scenario = generate_recycling(seed, {});
    scenario.world.recycling = Recycling::off;
    World world(scenario.world);
    const auto failure = world.run(scenario.list);
    if (failure.has_value() && failure->find("refused, though") != std::string::npos) ++noticed;
  }
  EXPECT_GE(noticed, 8u);
}

// By hand: what is refused is served by nobody, and so is no reason to hold more.
TEST(RecyclingJudgeTest, ARefusedRequestDoesNotRaiseWhatMayBeHeld) {
  OperationList list;
  const auto fill = [&](BlockName first) {
    for (BlockName name = first; name < first + 20; ++name) {
      list.push_back(Allocate{.block = name, .bytes = kPage});
    }
  };
  fill(0);
  list.push_back(Allocate{.block = 100, .bytes = 50 * kPage});
  fill(20);
  for (BlockName name = 0; name < 40; name += 2) list.push_back(Free{.block = name});
  list.push_back(DrainCaches{});
  list.push_back(Allocate{.block = 101, .bytes = 15 * kPage});
  WorldOptions options;
  options.capacity_bytes = 64 * kPage;
  options.recycling = Recycling::eager;
  options.owes_empty_pages = true;
  World world(options);
  EXPECT_EQ(world.run(list).value_or(""), "");
  EXPECT_EQ(world.last_stats.failures, 1u);
  EXPECT_EQ(world.last_stats.peak_held_bytes, 40 * kPage);
}

constexpr RecyclingKind kKinds[] = {{"Eager", kEager, kWait},
                                    {"EagerSameStream", kEager, kSameStream},
                                    {"Pressure", kPressure, kWait},
                                    {"PressureSameStream", kPressure, kSameStream},
                                    {"EagerReal", kEager, kWait, kReal},
                                    {"EagerSameStreamReal", kEager, kSameStream, kReal}};

INSTANTIATE_TEST_SUITE_P(All, RecyclingTest, testing::ValuesIn(kKinds),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(All, RepeatTest,
                         testing::Values(kKinds[0], kKinds[1], kKinds[2], kKinds[3],
                                         RecyclingKind{"Off", Recycling::off, kWait}),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace gpupool::test
