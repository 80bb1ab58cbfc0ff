// Which pages move, and when new ones are created instead.
#include "pool/recycler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <tuple>
#include <vector>

#include "tests/support/random.h"
#include "tests/unit/arena_fixture.h"

namespace gpupool::internal {
namespace {

class RecyclerTest : public ArenaFixture {
 protected:
  explicit RecyclerTest(std::uint64_t limit_pages = 16,
                        std::uint64_t device_bytes = std::uint64_t{1} << 30,
                        StreamIndex streams = 3)
      : ArenaFixture(limit_pages, device_bytes) {
    const std::uint64_t units = arena_->page_capacity() * kUnitsPerPage;
    EXPECT_TRUE(runs_.reserve(units, units, arena_.get()));
    runs_.track_pages(true);
    for (StreamIndex i = 0; i < streams; ++i) runs_.know_stream(i);
    options_.recycling = Recycling::eager;
    options_.slack = 0;
  }

  GrowthPlan plan(std::uint32_t units, StreamIndex stream = 0, std::uint32_t align_units = 1) {
    const auto it = planner_.plan(units, align_units, stream, true);
    EXPECT_TRUE(it.has_value());
    return *it;
  }
  PageSupply prepare(const GrowthPlan& plan, StreamIndex stream = 0, bool is_needed = true) {
    return recycler_.prepare(plan, options_, stream, limit_pages_, is_needed);
  }
  /// What RunTable::idle_pages() counts, found page by page.
  std::uint64_t walked_idle_pages() const {
    std::uint64_t pages = 0;
    for_each_free(*arena_, runs_, kAnybody, [&](RunId id, const Mapping& mapping) {
      if (runs_.are_idle(id, mapping.pages)) pages += mapping.pages.count;
      return true;
    });
    return pages;
  }
  void back(PageSupply& supply) {
    std::vector<Mapping> stuck;
    ASSERT_TRUE(arena_->back(supply.targets, supply.new_pages * kPageBytes, stuck).ok());
    recycler_.commit(supply);
    arena_->check_invariants();
    runs_.check_invariants();
    EXPECT_EQ(arena_->held_bytes(), device_.held_bytes());
  }
  /// Serves a request as the pool does; 0 where there are no pages.
  RunId serve(std::uint32_t units, StreamIndex stream = 0, std::uint32_t align_units = 1) {
    RunId id = runs_.take(units, align_units, stream, Reach::everywhere, RunKind::block);
    if (id != 0) return id;
    const auto it = planner_.plan(units, align_units, stream, true);
    if (!it.has_value()) return 0;
    PageSupply supply = prepare(*it, stream);
    if (supply.missing_pages > 0) {
      recycler_.call_off(supply);
      return 0;
    }
    back(supply);
    id = runs_.take(units, align_units, stream, Reach::everywhere, RunKind::block);
    EXPECT_NE(id, 0u);
    return id;
  }
  RunId serve_pages(std::uint32_t pages) { return serve(pages * kUnitsPerPage); }
  void put(RunId id, const TicketSet& tickets = TicketSet()) { runs_.put(id, tickets); }
  /// Blocks of so many pages each, side by side.
  std::vector<RunId> serve_row(std::initializer_list<std::uint32_t> pages) {
    std::vector<RunId> row;
    for (const std::uint32_t count : pages) row.push_back(serve_pages(count));
    return row;
  }
  /// Where the supply's moved pages come from, by the arena as it is before the commit.
  std::vector<std::uint64_t> sources(const PageSupply& supply) const {
    std::vector<std::uint64_t> pages;
    for (const PageSupply::Moved& moved : supply.moved)
      pages.push_back(runs_[moved.run].start / kUnitsPerPage);
    return pages;
  }
  using Pages = std::vector<std::uint64_t>;

  RunTable runs_{streams_, {}};
  GrowthPlanner planner_{*arena_, runs_};
  Recycler recycler_{*arena_, runs_};
  RuntimeOptions options_;
  std::uint64_t limit_pages_ = 64;
};

TEST_F(RecyclerTest, WhatEachPolicyAllows) {
  const auto row = serve_row({10, 10});
  const GrowthPlan more = plan(5 * kUnitsPerPage);
  EXPECT_EQ(recycler_.allowed_pages(more, options_, 64), 25u);
  EXPECT_EQ(recycler_.allowed_pages(more, options_, 22), 22u);
  options_.slack = 0.1;
  EXPECT_EQ(recycler_.allowed_pages(more, options_, 64), 27u);
  put(row[0]);
  EXPECT_EQ(recycler_.allowed_pages(plan(15 * kUnitsPerPage), options_, 64), 27u);
  EXPECT_EQ(recycler_.allowed_pages(plan(11 * kUnitsPerPage), options_, 64), 23u);
  // The most that were ever occupied, until that is to be forgotten.
  const GrowthPlan little = plan(10 * kUnitsPerPage + 1, 0);
  EXPECT_EQ(recycler_.allowed_pages(little, options_, 64), 23u);
  put(row[1]);
  EXPECT_EQ(recycler_.allowed_pages(plan(21 * kUnitsPerPage), options_, 64), 23u);
  recycler_.restart();
  EXPECT_EQ(recycler_.allowed_pages(plan(21 * kUnitsPerPage), options_, 64), 23u);
  const RunId one = serve_pages(1);
  EXPECT_EQ(recycler_.allowed_pages(plan(20 * kUnitsPerPage), options_, 64), 23u);
  put(one);
  for (const Recycling policy : {Recycling::off, Recycling::pressure}) {
    options_.recycling = policy;
    EXPECT_EQ(recycler_.allowed_pages(more, options_, 64), 64u);
  }
}

TEST_F(RecyclerTest, EagerMovesPressureMovesAtTheLimitOffNever) {
  const auto row = serve_row({1, 1, 1, 1, 1, 1});
  for (const std::size_t i : {0u, 2u, 4u}) put(row[i]);
  const GrowthPlan it = plan(2 * kUnitsPerPage);
  const auto moved_pages = [&](Recycling policy, std::uint64_t limit) {
    options_.recycling = policy;
    limit_pages_ = limit;
    const PageSupply supply = prepare(it);
    EXPECT_EQ(supply.moved_pages + supply.new_pages, 2u);
    const std::uint64_t headroom = limit - 6;
    EXPECT_EQ(supply.missing_pages, supply.new_pages - std::min(supply.new_pages, headroom));
    recycler_.call_off(supply);
    return supply.moved_pages;
  };
  EXPECT_EQ(moved_pages(Recycling::eager, 64), 2u);
  EXPECT_EQ(moved_pages(Recycling::eager, 6), 2u);
  EXPECT_EQ(moved_pages(Recycling::pressure, 64), 0u);
  EXPECT_EQ(moved_pages(Recycling::pressure, 7), 1u);
  EXPECT_EQ(moved_pages(Recycling::pressure, 6), 2u);
  EXPECT_EQ(moved_pages(Recycling::off, 64), 0u);
  EXPECT_EQ(moved_pages(Recycling::off, 6), 0u);
  EXPECT_EQ(runs_.empty_pages(), 3u);
  EXPECT_EQ(recycler_.recycled_pages(), 0u);
}

TEST_F(RecyclerTest, WhereNothingIsEmptyEagerCreates) {
  const auto row = serve_row({1, 1});
  put(row[0]);
  PageSupply supply = prepare(plan(3 * kUnitsPerPage));
  EXPECT_EQ(supply.moved_pages, 1u);
  EXPECT_EQ(supply.new_pages, 2u);
  EXPECT_EQ(supply.missing_pages, 0u);
  EXPECT_EQ(supply.occupied_pages, 4u);
  back(supply);
  EXPECT_EQ(recycler_.recycled_pages(), 1u);
  EXPECT_EQ(arena_->backed_pages(), 4u);
  EXPECT_EQ(arena_->stale_pages(), 1u);
  EXPECT_NE(runs_.take(3 * kUnitsPerPage, 1, 0, Reach::everywhere, RunKind::block), 0u);
}

TEST_F(RecyclerTest, ShortestRunsGiveFirstAndFromTheirEnds) {
  const auto row = serve_row({3, 1, 2, 1, 1, 1, 4, 1});
  for (const std::size_t i : {0u, 2u, 4u, 6u}) put(row[i]);  // pages 0-2, 4-5, 7, 9-12
  const auto chosen = [&](std::uint32_t pages) {
    const PageSupply supply = prepare(plan(pages * kUnitsPerPage));
    Pages from = sources(supply);
    recycler_.call_off(supply);
    runs_.check_invariants();
    return from;
  };
  EXPECT_EQ(chosen(5), (Pages{7, 5, 4, 2, 1}));
  EXPECT_EQ(chosen(10), (Pages{7, 5, 4, 2, 1, 0, 12, 11, 10, 9}));
  // In every order they go to rising addresses.
  const PageSupply supply = prepare(plan(5 * kUnitsPerPage));
  for (std::size_t i = 0; i < supply.targets.size(); ++i) {
    EXPECT_EQ(supply.targets[i].pages.first, 14 + i);
    EXPECT_EQ(supply.targets[i].aliases, 0u);
  }
  recycler_.call_off(supply);
}

TEST_F(RecyclerTest, NothingComesOutOfTheWindow) {
  const auto row = serve_row({1, 1, 2});
  put(row[0]);
  put(row[2]);  // the end, 2 pages, which a request for 4 uses
  const PageSupply supply = prepare(plan(4 * kUnitsPerPage));
  EXPECT_EQ(sources(supply), (Pages{0}));
  EXPECT_EQ(supply.new_pages, 1u);
  recycler_.call_off(supply);
}

TEST_F(RecyclerTest, WaitNeverMovesWhatIsUnfinished) {
  const auto row = serve_row({1, 1, 1, 1, 1, 1, 1});
  put(row[0], busy({0}));
  put(row[2], busy({1}));
  put(row[4]);
  EXPECT_EQ(runs_.idle_pages(), 1u);
  const PageSupply supply = prepare(plan(3 * kUnitsPerPage));
  EXPECT_EQ(sources(supply), (Pages{4}));
  EXPECT_EQ(supply.new_pages, 2u);
  for (const PageSupply::Moved& moved : supply.moved) EXPECT_TRUE(moved.tickets.empty());
  recycler_.call_off(supply);
  complete_all();
  runs_.refresh();
  const PageSupply all = prepare(plan(3 * kUnitsPerPage));
  EXPECT_EQ(all.moved_pages, 3u);
  recycler_.call_off(all);
}

TEST_F(RecyclerTest, WhereOneStreamIsAloneItsPagesAreLookedAtOneByOne) {
  RunTable runs(streams_, {});
  const std::uint64_t units = arena_->page_capacity() * kUnitsPerPage;
  ASSERT_TRUE(runs.reserve(units, units, arena_.get()));
  runs.track_pages(true);
  runs.know_stream(0);
  for (const std::uint64_t page : {0u, 1u, 2u}) {
    map(page);
    runs.set_end((page + 1) * kUnitsPerPage);
    runs.add(page * kUnitsPerPage, kUnitsPerPage);
  }
  runs.take(kUnitsPerPage, 1, 0, Reach::everywhere, RunKind::block);
  runs.put(runs.take(kUnitsPerPage, 1, 0, Reach::everywhere, RunKind::block), busy({0}));
  ASSERT_TRUE(runs.is_alone());
  Recycler recycler(*arena_, runs);
  GrowthPlanner planner(*arena_, runs);
  EXPECT_EQ(runs.empty_pages(), 2u);
  EXPECT_EQ(runs.idle_pages(), 1u);
  // One long run, of which the last page was never used; the window is elsewhere.
  GrowthPlan elsewhere;
  elsewhere.spans = {{10, 2}};
  elsewhere.pages = 2;
  elsewhere.window = {10, 2};
  for (const AliasReuse reuse : {AliasReuse::wait, AliasReuse::same_stream}) {
    options_.alias_reuse = reuse;
    const PageSupply supply = recycler.prepare(elsewhere, options_, 0, 3, true);
    EXPECT_EQ(supply.moved_pages, reuse == AliasReuse::wait ? 1u : 2u);
    if (reuse == AliasReuse::same_stream) {
      // From the end; what was never used has no tickets, whatever the run's are.
      EXPECT_TRUE(supply.moved[0].tickets.empty());
      EXPECT_EQ(supply.moved[1].tickets.holder(), 0u);
    }
    recycler.call_off(supply);
    runs.check_invariants();
  }
}

TEST_F(RecyclerTest, SameStreamMovesItsOwnUnfinishedPagesAndNobodyElses) {
  options_.alias_reuse = AliasReuse::same_stream;
  const auto row = serve_row({1, 1, 1, 1, 1, 1, 1});
  put(row[0], busy({0}));
  put(row[2], busy({1}));
  put(row[4], busy({0, 1}));
  // Pending pages are occupied, so that new ones are created as long as there is room.
  EXPECT_EQ(prepare(plan(3 * kUnitsPerPage)).moved_pages, 0u);
  limit_pages_ = 9;
  PageSupply supply = prepare(plan(3 * kUnitsPerPage));
  EXPECT_EQ(sources(supply), (Pages{0}));
  ASSERT_EQ(supply.moved.size(), 1u);
  EXPECT_EQ(supply.moved[0].tickets.holder(), 0u);
  back(supply);
  EXPECT_EQ(recycler_.recycled_pages(), 1u);
  // At its new place it is the stream's alone, and by its old address until the work is done.
  EXPECT_EQ(runs_.take(3 * kUnitsPerPage, 1, 1, Reach::everywhere, RunKind::block), 0u);
  const RunId taken = runs_.take(3 * kUnitsPerPage, 1, 0, Reach::everywhere, RunKind::block);
  EXPECT_NE(taken, 0u);
  EXPECT_TRUE(arena_->take_stale(streams_, kUnlimited).empty());
  complete_all();
  EXPECT_EQ(unmap_stale(), 1u);
}

TEST_F(RecyclerTest, WhatIsCalledOffIsAsItWas) {
  options_.alias_reuse = AliasReuse::same_stream;
  const auto row = serve_row({2, 1, 2, 1});
  put(row[0], busy({0}));
  put(row[2]);
  limit_pages_ = 6;
  const std::uint64_t runs = runs_.run_count();
  const std::uint64_t empty = runs_.empty_pages();
  const std::uint64_t pending = runs_.pending_bytes();
  const PageSupply supply = prepare(plan(4 * kUnitsPerPage));
  EXPECT_EQ(supply.moved_pages, 4u);
  EXPECT_EQ(runs_.empty_pages(), 0u);
  recycler_.call_off(supply);
  runs_.check_invariants();
  EXPECT_EQ(runs_.run_count(), runs);
  EXPECT_EQ(runs_.empty_pages(), empty);
  EXPECT_EQ(runs_.pending_bytes(), pending);
  EXPECT_EQ(arena_->stale_pages(), 0u);
  // What was planned was served by nobody: it is no reason to hold more.
  EXPECT_EQ(recycler_.allowed_pages(plan(4 * kUnitsPerPage), options_, 64), 8u);
}

TEST_F(RecyclerTest, AheadOfNeedNothingIsOccupied) {
  const auto row = serve_row({2, 1, 2, 1});
  put(row[0]);
  put(row[2]);
  PageSupply supply = prepare(plan(4 * kUnitsPerPage, kAnybody), kAnybody, false);
  EXPECT_EQ(supply.occupied_pages, 0u);
  back(supply);
  EXPECT_EQ(runs_.empty_pages(), 4u);
  EXPECT_EQ(runs_.largest_ready_units(), 4 * kUnitsPerPage);
  EXPECT_EQ(recycler_.allowed_pages(plan(5 * kUnitsPerPage), options_, 64), 7u);
}

TEST_F(RecyclerTest, CanServeIsWhatPrepareDoes) {
  const auto row = serve_row({1, 1, 1, 1, 2, 1});
  for (const std::size_t i : {0u, 2u, 4u}) put(row[i]);
  for (const std::uint32_t pages : {3u, 4u, 5u, 6u}) {
    for (const std::uint64_t limit : {7u, 8u, 9u}) {
      const GrowthPlan it = plan(pages * kUnitsPerPage);
      limit_pages_ = limit;
      const bool can_serve =
          recycler_.can_serve(it, options_, 0, limit - std::min(limit, arena_->backed_pages()));
      const PageSupply supply = prepare(it);
      EXPECT_EQ(can_serve, supply.missing_pages == 0) << pages << " of " << limit;
      recycler_.call_off(supply);
    }
  }
}

TEST_F(RecyclerTest, NewHandlesAreOnePageEachWherePagesMoveAndLittleIsHeld) {
  EXPECT_EQ(recycler_.new_pages({{0, 7}}, options_).targets.size(), 7u);
  options_.recycling = Recycling::off;
  const auto targets = recycler_.new_pages({{0, 7}}, options_).targets;
  ASSERT_EQ(targets.size(), 3u);
  EXPECT_EQ(targets[0].pages.count, 4u);
  EXPECT_EQ(targets[1].pages.count, 2u);
  EXPECT_EQ(targets[2].pages.count, 1u);
  EXPECT_EQ(recycler_.new_pages({{0, 40}}, options_).targets.size(), 3u);  // 16, 16, 8
}

// Whatever is asked for and freed: no more is held than `eager` may hold, unless nothing is empty.
class EagerTest : public RecyclerTest,
                  public testing::WithParamInterface<std::tuple<double, AliasReuse>> {};

TEST_P(EagerTest, HeldIsNeverMoreThanWasEverOccupiedAndSlack) {
  std::tie(options_.slack, options_.alias_reuse) = GetParam();
  test::Random random(5);
  std::vector<RunId> live;
  std::uint64_t most = 0;
  std::uint64_t grown = 0;
  for (int step = 0; step < 3000; ++step) {
    const auto stream = static_cast<StreamIndex>(random.below(3));
    // It goes up and down.
    if (random.below(100) < (step / 300 % 2 == 0 ? 58u : 42u) || live.empty()) {
      const std::uint64_t before = arena_->backed_pages();
      const auto units = static_cast<std::uint32_t>(
          random.one_in(2) ? random.between(1, kUnitsPerPage) : random.between(1, 4000));
      constexpr std::uint32_t kAlignments[] = {1, 1, 1, kUnitsPerPage};
      const std::uint64_t idle = runs_.idle_pages();
      ASSERT_EQ(idle, walked_idle_pages());
      const RunId id = serve(units, stream, kAlignments[random.below(4)]);
      if (id == 0) continue;
      live.push_back(id);
      most = std::max(most, arena_->backed_pages() - runs_.empty_pages());
      if (arena_->backed_pages() == before) continue;
      ++grown;
      const auto allowed =
          static_cast<std::uint64_t>(static_cast<double>(most) * (1.0 + options_.slack));
      ASSERT_TRUE(arena_->backed_pages() <= allowed || idle == 0 || runs_.empty_pages() == 0)
          << "step " << step << ": " << arena_->backed_pages() << " of " << allowed;
    } else {
      std::swap(live[random.below(live.size())], live.back());
      TicketSet tickets;
      if (random.one_in(3)) tickets.add(busy({stream}), streams_);
      put(live.back(), tickets);
      live.pop_back();
      if (random.one_in(3)) {
        device_.complete(raw_[stream]);
        streams_.poll();
        runs_.refresh();
      }
      if (random.one_in(8)) runs_.part_idle();
      if (random.one_in(8)) unmap_stale();
    }
  }
  EXPECT_GT(grown, 15u);
  EXPECT_GT(recycler_.recycled_pages(), 50u);
  for (const RunId id : live) put(id);
  complete_all();
  runs_.refresh();
}

INSTANTIATE_TEST_SUITE_P(All, EagerTest,
                         testing::Combine(testing::Values(0.0, 0.05, 0.3),
                                          testing::Values(AliasReuse::wait,
                                                          AliasReuse::same_stream)));

// Large handles.

class LargeHandleTest : public RecyclerTest {
 protected:
  static constexpr std::uint64_t kHeld = 4200;  // pages; from 4000 on a handle is of two

  LargeHandleTest() : RecyclerTest(6000, std::uint64_t{16} << 30) {
    limit_pages_ = 6000;
    // Most of it, in single pages.
    serve_pages(static_cast<std::uint32_t>(kHeld));
  }
};

TEST_F(LargeHandleTest, WhereMuchIsHeldAHandleIsOfSeveralPages) {
  PageSupply supply = prepare(plan(5 * kUnitsPerPage));
  ASSERT_EQ(supply.targets.size(), 3u);
  EXPECT_EQ(supply.targets[0].pages.count, 2u);
  EXPECT_EQ(supply.targets[1].pages.count, 2u);
  EXPECT_EQ(supply.targets[2].pages.count, 1u);
  recycler_.call_off(supply);
  EXPECT_EQ(recycler_.new_pages({{0, 9000}}, options_).targets.front().pages.count, 4u);
  EXPECT_EQ(recycler_.new_pages({{0, 70'000}}, options_).targets.front().pages.count, 16u);
}

TEST_F(LargeHandleTest, TheyMoveAsAWhole) {
  const RunId pair = serve_pages(2);
  serve_pages(1);
  put(pair);
  PageSupply supply = prepare(plan(3 * kUnitsPerPage));
  EXPECT_EQ(supply.moved_pages, 2u);
  EXPECT_EQ(supply.moved.size(), 1u);
  EXPECT_EQ(supply.new_pages, 1u);
  back(supply);
  EXPECT_EQ(arena_->stale_pages(), 2u);
  EXPECT_EQ(unmap_stale(), 2u);
}

TEST_F(LargeHandleTest, OneThatIsPartlyInUseIsNotEmpty) {
  const RunId pair = serve_pages(2);
  serve_pages(1);
  const std::uint64_t first = runs_[pair].start;
  put(pair);
  const RunId half = runs_.take_at(runs_.free_at(first), first + kUnitsPerPage, 1, RunKind::block);
  EXPECT_EQ(runs_.empty_pages(), 0u);
  EXPECT_EQ(runs_.idle_pages(), 0u);
  put(half);
  EXPECT_EQ(runs_.idle_pages(), 2u);
}

TEST_F(LargeHandleTest, WhereTheyDoNotFitTheyStay) {
  const RunId pair = serve_pages(2);
  serve_pages(1);
  put(pair);
  // One page is missing, and a handle of two is empty: it cannot move there, but go back.
  limit_pages_ = arena_->backed_pages();
  const GrowthPlan one = plan(kUnitsPerPage + 7, 0, kUnitsPerPage);
  ASSERT_EQ(one.pages, 2u);
  GrowthPlan single = one;
  single.spans = {{one.spans[0].first, 1}};
  single.pages = 1;
  const PageSupply supply = prepare(single);
  EXPECT_EQ(supply.moved_pages, 0u);
  EXPECT_EQ(supply.missing_pages, 1u);
  recycler_.call_off(supply);
  EXPECT_FALSE(recycler_.can_serve(single, options_, 0, 0));
  EXPECT_EQ(runs_.idle_pages(), 2u);
}

// One stream alone, whose runs are ready whatever it is still at.

class LoneStreamTest : public RecyclerTest {
 protected:
  explicit LoneStreamTest(std::uint64_t limit_pages = 16)
      : RecyclerTest(limit_pages, std::uint64_t{64} << 30, 1) {}

  void add(std::uint64_t first, std::uint64_t pages) {
    map(first, pages);
    runs_.set_end(arena_->high_water() * kUnitsPerPage);
    runs_.add(first * kUnitsPerPage, static_cast<std::uint32_t>(pages * kUnitsPerPage));
  }
};

// Counted by bits, and found by a walk over the runs.
TEST_F(LoneStreamTest, IdlePagesAreThoseThatCouldMove) {
  test::Random random(9);
  for (std::uint64_t page = 0; page < 36; page += 3) add(page, page % 2 == 0 ? 3 : 1);
  std::vector<RunId> live;
  std::uint64_t differing = 0;
  for (int step = 0; step < 6000; ++step) {
    options_.alias_reuse = step / 500 % 2 == 0 ? AliasReuse::wait : AliasReuse::same_stream;
    const bool goes_up = random.below(100) < (step / 300 % 2 == 0 ? 58u : 42u);
    if (random.one_in(12)) {
      device_.complete(raw_[0]);
      streams_.poll();
    } else if (random.one_in(30)) {
      unmap_stale();
    } else if (goes_up || live.empty()) {
      const auto units =
          static_cast<std::uint32_t>(random.one_in(2) ? random.between(1, kUnitsPerPage)
                                                      : random.between(1, 20 * kUnitsPerPage));
      if (const RunId id = serve(units); id != 0) live.push_back(id);
    } else {
      std::swap(live[random.below(live.size())], live.back());
      put(live.back(), random.one_in(3) ? busy({0}) : TicketSet(streams_.ticket(0)));
      live.pop_back();
    }
    runs_.check_invariants();
    const std::uint64_t idle = runs_.idle_pages();
    ASSERT_EQ(idle, walked_idle_pages()) << "step " << step;
    differing += idle != 0 && idle != runs_.empty_pages() ? 1 : 0;
  }
  EXPECT_GT(differing, 300u);
  EXPECT_GT(recycler_.recycled_pages(), 300u);
  runs_.track_pages(false);
  EXPECT_EQ(runs_.idle_pages(), 0u);
  runs_.track_pages(true);
  runs_.check_invariants();
}

class ManyEmptyPages : public LoneStreamTest {
 protected:
  ManyEmptyPages() : LoneStreamTest(8192) {}
};

TEST_F(ManyEmptyPages, AreCountedWithoutAWalkOverTheirRuns) {
  constexpr std::uint64_t kPages = 16'000;
  std::vector<RunId> empty;
  for (std::uint64_t page = 0; page < kPages; ++page) {
    add(page, 1);
    const RunId id = runs_.take_at(runs_.free_at(page * kUnitsPerPage), page * kUnitsPerPage,
                                   kUnitsPerPage, RunKind::block);
    if (page % 2 == 0) empty.push_back(id);
  }
  const TicketSet tickets = busy({0});
  for (const RunId id : empty) put(id, tickets);
  const auto seconds = [](auto count) {
    double least = 1e9;
    for (int i = 0; i < 7; ++i) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(count(), 0u);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      least = std::min(least, took.count());
    }
    return least;
  };
  const double walk = seconds([&] { return walked_idle_pages(); });
  EXPECT_LT(3 * seconds([&] { return runs_.idle_pages(); }), walk);
  complete_all();
  EXPECT_EQ(runs_.idle_pages(), kPages / 2);
}

}  // namespace
}  // namespace gpupool::internal
