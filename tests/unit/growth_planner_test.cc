// Which pages a request would be served by, by hand, and what that costs where holes are many.
#include <chrono>
#include <vector>

#include "tests/unit/growth_planner_fixture.h"

namespace gpupool::internal {
namespace {

TEST_F(GrowthPlannerTest, AnEmptyArenaGrowsFromItsStart) {
  const auto it = plan(2 * kUnitsPerPage + 1);
  ASSERT_TRUE(it.has_value());
  EXPECT_EQ(spans(*it), (Holes{{0, 3}}));
  EXPECT_EQ(it->pages, 3u);
  EXPECT_EQ(it->fresh_pages, 3u);
  EXPECT_EQ(it->window.first, 0u);
  EXPECT_EQ(it->window.count, 3u);
}

TEST_F(GrowthPlannerTest, TheLineIsAsLongAsItIs) {
  EXPECT_TRUE(plan(15 * kUnitsPerPage).has_value());
  EXPECT_FALSE(plan(15 * kUnitsPerPage + 1).has_value());
  add(7);
  take(7 * kUnitsPerPage, 1);
  EXPECT_FALSE(plan(8 * kUnitsPerPage).has_value());
  EXPECT_TRUE(plan(8 * kUnitsPerPage - 1).has_value());
}

TEST_F(GrowthPlannerTest, AFreeEndIsExtended) {
  add(0, 2);
  take(0, kUnitsPerPage + 100);
  const auto it = plan(kUnitsPerPage + 400);
  ASSERT_TRUE(it.has_value());
  EXPECT_EQ(spans(*it), (Holes{{2, 1}}));
  EXPECT_EQ(it->window.first, 1u);
  EXPECT_EQ(it->window.count, 2u);
  EXPECT_EQ(it->fresh_pages, 1u);  // the other has something in it already
  const auto alone = plan(kUnitsPerPage + 400, 1, false);
  ASSERT_TRUE(alone.has_value());
  EXPECT_EQ(spans(*alone), (Holes{{2, 2}}));
  EXPECT_EQ(alone->fresh_pages, 2u);
}

TEST_F(GrowthPlannerTest, OneWindowOverSeveralHoles) {
  for (const std::uint64_t page : {0u, 2u, 4u, 6u, 8u, 9u, 14u}) add(page);
  for (const std::uint64_t page : {0u, 6u, 14u}) take(page * kUnitsPerPage, kUnitsPerPage);
  // 1 to 5 are free or not backed, and so are 7 to 13.
  const auto five = plan(5 * kUnitsPerPage);
  EXPECT_EQ(spans(*five), (Holes{{1, 1}, {3, 1}, {5, 1}}));
  EXPECT_EQ(five->fresh_pages, 5u);
  const auto three = plan(3 * kUnitsPerPage);
  EXPECT_EQ(spans(*three), (Holes{{3, 1}}));  // 2 to 4: 7 to 9 and 8 to 10 are no better
  EXPECT_EQ(spans(*plan(6 * kUnitsPerPage)), (Holes{{7, 1}, {10, 3}}));
  EXPECT_FALSE(plan(8 * kUnitsPerPage).has_value());
}

TEST_F(GrowthPlannerTest, OfEqualsTheLowest) {
  for (const std::uint64_t page : {0u, 3u, 6u, 9u}) {
    add(page);
    take(page * kUnitsPerPage, kUnitsPerPage);
  }
  EXPECT_EQ(spans(*plan(kUnitsPerPage)), (Holes{{1, 1}}));
  EXPECT_EQ(spans(*plan(2 * kUnitsPerPage)), (Holes{{1, 2}}));
  EXPECT_EQ(spans(*plan(3 * kUnitsPerPage)), (Holes{{10, 3}}));
}

TEST_F(GrowthPlannerTest, AlignmentMayCostAPage) {
  add(0);
  take(0, 200);
  // From unit 200 on, or, at a boundary of 256, from there.
  EXPECT_EQ(plan(kUnitsPerPage + 312)->pages, 1u);
  EXPECT_EQ(plan(kUnitsPerPage + 256, 256)->pages, 1u);
  EXPECT_EQ(plan(kUnitsPerPage + 257, 256)->pages, 2u);
  EXPECT_EQ(spans(*plan(300, kUnitsPerPage)), (Holes{{1, 1}}));
}

TEST_F(GrowthPlannerTest, WhatIsToLieWithinAPageDoesNotReachOverABorder) {
  add(0);
  take(0, kUnitsPerPage - 20);
  EXPECT_EQ(plan(32)->window.count, 2u);
  const auto within = plan(32, kWithinPage);
  EXPECT_EQ(within->window.first, 1u);
  EXPECT_EQ(within->window.count, 1u);
  EXPECT_EQ(within->fresh_pages, 1u);
}

TEST_F(GrowthPlannerTest, AWindowInsideOnePageThatOthersShareAtBothEndsTakesNoFreshOne) {
  add(0);
  add(2);
  take(0, 500);
  take(2 * kUnitsPerPage + 12, 500);
  const auto it = plan(kUnitsPerPage + 24);
  EXPECT_EQ(it->window.count, 3u);
  EXPECT_EQ(it->fresh_pages, 1u);
  EXPECT_EQ(it->pages, 1u);
}

TEST_F(GrowthPlannerTest, UnfinishedWorkOfOthersIsInTheWay) {
  add(0, 3);
  const RunId own = take(0, kUnitsPerPage);
  const RunId others = take(kUnitsPerPage, kUnitsPerPage);
  take(2 * kUnitsPerPage, 1);
  runs_.put(own, busy({0}));
  runs_.put(others, busy({1}));
  // What it freed itself counts, and nothing else that is pending.
  EXPECT_EQ(largest(0), 0u);
  EXPECT_EQ(spans(*plan(2 * kUnitsPerPage - 1)), (Holes{{3, 1}}));
  EXPECT_EQ(spans(*plan(2 * kUnitsPerPage - 1, 1, true, 1)), (Holes{{3, 1}}));
  complete_all();
  runs_.refresh();
}

// Pages that are pending are occupied already, whoever may use them.
TEST_F(GrowthPlannerTest, PagesWithOnesOwnUnfinishedWorkAreNotFresh) {
  add(0, 1);
  add(1, 1);
  add(2, 1);
  const RunId own = take(kUnitsPerPage, 2 * kUnitsPerPage);
  take(0, kUnitsPerPage);
  runs_.put(own, busy({0}));
  const auto it = plan(3 * kUnitsPerPage);
  ASSERT_TRUE(it.has_value());
  EXPECT_EQ(spans(*it), (Holes{{3, 1}}));
  EXPECT_EQ(it->window.count, 3u);
  EXPECT_EQ(it->fresh_pages, 1u);
  complete_all();
  runs_.refresh();
  EXPECT_EQ(plan(3 * kUnitsPerPage)->fresh_pages, 3u);
}

// The whole of a large handle is occupied by the first block in it.
TEST_F(GrowthPlannerTest, PagesOfAHandleThatIsOccupiedAreNotFresh) {
  add(0, 4);
  take(0, 1);
  EXPECT_EQ(plan(4 * kUnitsPerPage)->fresh_pages, 1u);
}

TEST_F(GrowthPlannerTest, TheLongestRequestUsesPagesAtBothEnds) {
  for (const std::uint64_t page : {5u, 6u, 7u}) add(page);
  add(9);
  take(9 * kUnitsPerPage, 1);
  // 0 to 4 are a hole, 8 is one, 9 is somebody's; 10 to 14 are the tail.
  EXPECT_EQ(largest(0), 0u);
  EXPECT_EQ(largest(1), 4 * kUnitsPerPage);
  EXPECT_EQ(largest(2), 5 * kUnitsPerPage);  // one on each side
  EXPECT_EQ(largest(5), 8 * kUnitsPerPage);
  EXPECT_EQ(largest(6), 9 * kUnitsPerPage);
  EXPECT_EQ(largest(100), 9 * kUnitsPerPage);
}

// Of two windows that need as many pages, that one in which nothing is that could serve it.
TEST_F(GrowthPlannerTest, WhatCouldMoveIsSparedWhereItIsToBe) {
  for (const std::uint64_t page : {0u, 2u, 3u, 5u, 7u, 8u}) add(page);
  take(0, kUnitsPerPage);
  take(5 * kUnitsPerPage, kUnitsPerPage);
  const RunId own = take(7 * kUnitsPerPage, 2 * kUnitsPerPage);
  // 1 to 4: two of the four pages are empty; 6 to 9: two are unfinished.
  runs_.put(own, busy({0}));
  EXPECT_EQ(plan(4 * kUnitsPerPage)->window.first, 1u);
  const GrowthPlanner planner(*arena_, runs_);
  const auto idle = planner.plan(4 * kUnitsPerPage, 1, 0, true, Spared::idle);
  EXPECT_EQ(idle->window.first, 6u);
  EXPECT_EQ(idle->charged_pages, 2u);
  EXPECT_EQ(idle->pages, 2u);
  // Where the unfinished ones could move as well, the lower.
  const auto whole = planner.plan(4 * kUnitsPerPage, 1, 0, true, Spared::whole);
  EXPECT_EQ(whole->window.first, 1u);
  EXPECT_EQ(whole->charged_pages, 4u);
  complete_all();
  runs_.refresh();
}

TEST_F(GrowthPlannerTest, SegmentsAreOneStretchEach) {
  auto segments = make_segment_arena(driver_, 8 * kPageBytes).value();
  GrowthPlanner planner(*segments, runs_);
  const auto first = planner.plan(3 * kUnitsPerPage - 5, 1, 0, true);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(spans(*first), (Holes{{0, 3}}));
  EXPECT_EQ(first->fresh_pages, 3u);
  EXPECT_EQ(planner.largest_units(3), 3 * kUnitsPerPage);
  EXPECT_EQ(planner.largest_units(65), 0u);  // not that many page numbers
}

// Very many holes.

class ManyHoles : public GrowthPlannerTest {
 protected:
  ManyHoles() : GrowthPlannerTest(8192, std::uint64_t{64} << 30) {}

  /// Up to so many, each of one page, and a page between two that is taken.
  void make(std::uint64_t holes) {
    for (std::uint64_t page = 2 * arena_->holes().size(); page <= 2 * holes; page += 2) {
      if (arena_->is_backed(page)) continue;
      map(page);
      runs_.set_end(arena_->high_water() * kUnitsPerPage);
      runs_.add(page * kUnitsPerPage, kUnitsPerPage);
      runs_.take_at(runs_.free_at(page * kUnitsPerPage), page * kUnitsPerPage, kUnitsPerPage,
                    RunKind::block);
    }
    ASSERT_EQ(arena_->holes().size(), holes);
  }
  /// Frees what there is of `units` before or after the hole at `page`.
  void free_before(std::uint64_t page, std::uint64_t units) {
    free(page * kUnitsPerPage - units, units);
  }
  void free_after(std::uint64_t page, std::uint64_t units) {
    free((page + 1) * kUnitsPerPage, units);
  }
  void free(std::uint64_t start, std::uint64_t units) {
    if (units == 0) return;
    const std::uint64_t page = start / kUnitsPerPage * kUnitsPerPage;
    runs_.put(runs_.at(page), TicketSet());
    if (start > page) runs_.take_at(runs_.free_at(page), page, to_units(start - page), kBlock);
    const std::uint64_t end = start + units;
    if (end == page + kUnitsPerPage) return;
    runs_.take_at(runs_.free_at(start), end, to_units(page + kUnitsPerPage - end), kBlock);
  }
  static std::uint32_t to_units(std::uint64_t units) { return static_cast<std::uint32_t>(units); }
  static constexpr RunKind kBlock = RunKind::block;

  /// The least time that `step` takes of several.
  template <class Step>
  static double seconds(Step step) {
    double least = 1e9;
    for (int i = 0; i < 7; ++i) {
      const auto start = std::chrono::steady_clock::now();
      for (int n = 0; n < 20; ++n) step();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      least = std::min(least, took.count());
    }
    return least;
  }
};

TEST_F(ManyHoles, TheShortestRunsThatMakeOneOfThemBetterAreSeen) {
  make(20);
  std::uint64_t hole = 3;
  for (const std::uint64_t units : {1u, 2u, 3u, 100u, 509u, 510u, 511u, 512u}) {
    // The other way round at every other one.
    const std::uint64_t half = hole % 8 == 3 ? units / 2 : (units + 1) / 2;
    EXPECT_EQ(plan(kUnitsPerPage + units)->pages, 2u) << units;
    free_before(hole, half);
    free_after(hole, units - half);
    EXPECT_EQ(spans(*plan(kUnitsPerPage + units)), (Holes{{hole, 1}})) << units;
    const std::uint64_t line_end = arena_->tail().count * kUnitsPerPage;
    EXPECT_EQ(largest(1), kUnitsPerPage + units) << units;
    EXPECT_EQ(largest(arena_->tail().count), line_end);
    hole += 4;
  }
}

// Sixteen times as many holes are not looked at one by one: that would take as many times longer.
TEST_F(ManyHoles, APlanDoesNotLookAtEach) {
  const auto plan_all = [&] {
    ASSERT_EQ(spans(*plan(kUnitsPerPage)), (Holes{{1, 1}}));
    ASSERT_EQ(plan(2 * kUnitsPerPage)->pages, 2u);
    ASSERT_EQ(plan(2 * kUnitsPerPage, 1, false)->pages, 2u);
    ASSERT_EQ(plan(40 * kUnitsPerPage)->pages, 40u);
    ASSERT_EQ(largest(2), 2 * kUnitsPerPage);
    ASSERT_EQ(planner().fewest_pages_later(2 * kUnitsPerPage, 0), 2u);
  };
  make(1'400);
  const double few = seconds(plan_all);
  make(1'400 * 16);
  const double many = seconds(plan_all);
  EXPECT_LT(many, 8 * few);
}

TEST_F(ManyHoles, MorePagesAndFewerCostNoWalk) {
  const auto fill_and_empty = [&] {
    const std::uint64_t page = arena_->holes().size() / 2 * 2 + 1;
    map(page);
    give_back(page);
  };
  make(1'400);
  const double few = seconds(fill_and_empty);
  make(1'400 * 16);
  const double many = seconds(fill_and_empty);
  EXPECT_LT(many, 8 * few);
}

}  // namespace
}  // namespace gpupool::internal
