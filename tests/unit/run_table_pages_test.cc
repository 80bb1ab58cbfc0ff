// What the run table knows of pages: which are empty, incrementally and counted again, which parts
// of pending runs are idle, and what becomes of that as work completes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "runs/run_table.h"
#include "tests/support/random.h"
#include "tests/unit/arena_fixture.h"

namespace gpupool::internal {
namespace {

class RunTablePagesTest : public ArenaFixture {
 protected:
  RunTablePagesTest() : ArenaFixture(8) {  // 63 pages
    const std::uint64_t units = arena_->page_capacity() * kUnitsPerPage;
    EXPECT_TRUE(runs_.reserve(units, units, arena_.get()));
    runs_.track_pages(true);
    runs_.know_stream(0);
  }
  ~RunTablePagesTest() override { runs_.check_invariants(); }

  void know_others() {
    runs_.know_stream(1);
    runs_.know_stream(2);
  }
  void add(std::uint64_t first, std::uint64_t pages = 1) {
    map(first, pages);
    runs_.set_end(arena_->high_water() * kUnitsPerPage);
    runs_.add(first * kUnitsPerPage, static_cast<std::uint32_t>(pages * kUnitsPerPage));
  }
  RunId take_at(std::uint64_t start, std::uint64_t length, RunKind kind = RunKind::block) {
    const auto units = static_cast<std::uint32_t>(length);
    for (RunId id = 1; id < runs_.id_end(); ++id) {
      const auto& run = runs_[id];
      if (run.kind != RunKind::free || run.start > start || start + units > run.end()) continue;
      const RunId taken = runs_.take_at(id, start, units, kind);
      runs_.check_invariants();
      return taken;
    }
    ADD_FAILURE() << "not free: " << start;
    return 0;
  }
  void put(RunId id, const TicketSet& tickets = TicketSet()) {
    runs_.put(id, tickets);
    runs_.check_invariants();
  }
  void refresh() {
    streams_.poll();
    runs_.refresh();
    runs_.check_invariants();
  }

  /// By unit, whether it is free, for everybody or for whomever.
  std::vector<bool> free_units(bool for_whomever) const {
    std::vector<bool> is_free(arena_->page_capacity() * kUnitsPerPage);
    for (RunId id = 1; id < runs_.id_end(); ++id) {
      const auto& run = runs_[id];
      if (run.kind != RunKind::free || (run.holder != kAnybody && !for_whomever)) continue;
      std::fill_n(is_free.begin() + static_cast<std::ptrdiff_t>(run.start),
                  std::uint32_t{run.units}, true);
    }
    return is_free;
  }
  /// Whether a page of a pending run is idle.
  bool has_idle_parts() const {
    for (RunId id = 1; id < runs_.id_end(); ++id) {
      const auto& run = runs_[id];
      if (run.kind != RunKind::free || run.holder == kAnybody) continue;
      for (std::uint64_t page = run.start / kUnitsPerPage; page * kUnitsPerPage < run.end();
           ++page) {
        if (runs_.are_idle(id, {page, 1})) return true;
      }
    }
    return false;
  }
  std::uint64_t longest_free() const {
    std::uint64_t longest = 0;
    std::uint64_t units = 0;
    for (const bool is_free : free_units(true)) {
      units = is_free ? units + 1 : 0;
      longest = std::max(longest, units);
    }
    return longest;
  }
  /// Empty pages as the definition says, page by page.
  std::uint64_t count_empty(bool is_all_complete = false) const {
    const std::vector<bool> is_free = free_units(is_all_complete);
    std::uint64_t pages = 0;
    for (std::uint64_t page = 0; page < arena_->high_water(); ++page) {
      if (!arena_->is_backed(page)) continue;
      const PageSpan span = arena_->mapping_of(page).pages;
      if (page != span.first) continue;
      const auto first = is_free.begin() + static_cast<std::ptrdiff_t>(span.first * kUnitsPerPage);
      const auto end = is_free.begin() + static_cast<std::ptrdiff_t>(span.end() * kUnitsPerPage);
      if (std::all_of(first, end, [](bool it) { return it; })) pages += span.count;
    }
    return pages;
  }

  RunTable runs_{streams_, {}};
};

TEST_F(RunTablePagesTest, EmptyPagesAreThoseOfHandlesThatAreWhollyFree) {
  add(0, 4);
  add(4);
  add(5);
  EXPECT_EQ(runs_.empty_pages(), 6u);
  const RunId a = take_at(3 * kUnitsPerPage, 1);
  EXPECT_EQ(runs_.empty_pages(), 2u);
  const RunId b = take_at(5 * kUnitsPerPage + 7, 1);
  EXPECT_EQ(runs_.empty_pages(), 1u);
  put(a);
  EXPECT_EQ(runs_.empty_pages(), 5u);
  put(b);
  EXPECT_EQ(runs_.empty_pages(), 6u);
}

TEST_F(RunTablePagesTest, FewestAreThoseOfAnyMomentAndNotOfTheStepsOfOne) {
  // Lengths around a power of two, and with neighbours at both sides: there a free run is taken
  // out of its index and comes back.
  for (const std::uint64_t pages : {1u, 2u, 3u, 4u, 7u, 8u}) {
    const std::uint64_t first = arena_->high_water();
    for (std::uint64_t page = first; page < first + pages; ++page) add(page);
    const std::uint64_t all = runs_.empty_pages();
    runs_.take_fewest_empty_pages();
    const RunId middle = take_at(first * kUnitsPerPage + pages * kUnitsPerPage / 2, 1);
    EXPECT_EQ(runs_.take_fewest_empty_pages(), all - 1);
    put(middle);
    EXPECT_EQ(runs_.take_fewest_empty_pages(), all - 1);
    EXPECT_EQ(runs_.take_fewest_empty_pages(), all);
    const RunId front = take_at(first * kUnitsPerPage, 1);
    put(front);
    const RunId end = take_at((first + pages) * kUnitsPerPage - 1, 1);
    put(end);
    EXPECT_EQ(runs_.take_fewest_empty_pages(), all - 1);
    // The end of the arena is elsewhere for a moment, and more is added there.
    runs_.take_fewest_empty_pages();
    add(arena_->high_water());
    EXPECT_EQ(runs_.take_fewest_empty_pages(), all);
  }
}

TEST_F(RunTablePagesTest, FewestAreFewerOnceMoreStreamsAreKnown) {
  add(0, 1);
  add(1, 1);
  put(take_at(0, kUnitsPerPage), busy({0}));
  EXPECT_EQ(runs_.empty_pages(), 2u);  // the one stream may have them all
  runs_.take_fewest_empty_pages();
  know_others();
  EXPECT_EQ(runs_.empty_pages(), 0u);  // they had joined
  EXPECT_EQ(runs_.take_fewest_empty_pages(), 0u);
  runs_.part_idle();
  EXPECT_EQ(runs_.empty_pages(), 1u);
  complete_all();
  refresh();
  EXPECT_EQ(runs_.empty_pages(), 2u);
  EXPECT_EQ(runs_.take_fewest_empty_pages(), 0u);
  EXPECT_EQ(runs_.take_fewest_empty_pages(), 2u);
}

TEST_F(RunTablePagesTest, PagesOnceAllIsComplete) {
  know_others();
  for (std::uint64_t page = 0; page < 5; ++page) add(page);
  const RunId live = take_at(4 * kUnitsPerPage, 1);
  put(take_at(0, kUnitsPerPage + 10), busy({0}));
  put(take_at(kUnitsPerPage + 10, kUnitsPerPage), busy({0, 1}));
  EXPECT_EQ(runs_.empty_pages(), 1u);  // page 3
  EXPECT_EQ(runs_.pages_once_complete(), 4u);
  complete_all();
  refresh();
  EXPECT_EQ(runs_.empty_pages(), 4u);
  EXPECT_EQ(runs_.pages_once_complete(), 4u);
  put(live);
  EXPECT_EQ(runs_.pages_once_complete(), 5u);
}

TEST_F(RunTablePagesTest, IdlePartsOfAPendingRunBecomeEverybodys) {
  know_others();
  for (std::uint64_t page = 0; page < 6; ++page) add(page);
  // Two small pieces with unfinished work make all six pages pending.
  const RunId low = take_at(kUnitsPerPage + 3, 1);
  const RunId high = take_at(4 * kUnitsPerPage, 1);
  const RunId rest[] = {take_at(0, kUnitsPerPage + 3),
                        take_at(kUnitsPerPage + 4, 3 * kUnitsPerPage - 4),
                        take_at(4 * kUnitsPerPage + 1, 2 * kUnitsPerPage - 1)};
  const TicketSet before = busy({0});
  for (const RunId id : rest) put(id, before);
  ASSERT_TRUE(device_.complete_next(raw_[0]));
  const TicketSet later = busy({0});
  put(low, later);
  put(high, later);
  streams_.poll();
  EXPECT_EQ(runs_.run_count(), 1u);
  EXPECT_EQ(runs_.empty_pages(), 0u);
  runs_.part_idle();
  runs_.check_invariants();
  EXPECT_EQ(runs_.empty_pages(), 4u);
  EXPECT_EQ(runs_.pending_bytes(), 2 * kPageBytes);
  EXPECT_EQ(runs_.run_count(), 5u);
  EXPECT_TRUE(runs_.are_idle(runs_.free_at(0), {0, 1}));
  EXPECT_FALSE(runs_.are_idle(runs_.free_at(kUnitsPerPage), {1, 1}));
  runs_.part_idle();  // nothing more
  EXPECT_EQ(runs_.run_count(), 5u);
  complete_all();
  refresh();
  EXPECT_EQ(runs_.run_count(), 1u);
  EXPECT_EQ(runs_.empty_pages(), 6u);
}

TEST_F(RunTablePagesTest, PartsOfPagesAreIdleWithTheirPage) {
  know_others();
  for (std::uint64_t page = 0; page < 3; ++page) add(page);
  const RunId live = take_at(0, 100);
  const RunId busy_page = take_at(kUnitsPerPage, kUnitsPerPage);
  const RunId front = take_at(100, kUnitsPerPage - 100);
  const RunId back = take_at(2 * kUnitsPerPage, 200);
  const TicketSet before = busy({0});
  put(front, before);
  put(back, before);
  ASSERT_TRUE(device_.complete_next(raw_[0]));
  put(busy_page, busy({0}));
  streams_.poll();
  // Of page 2 the rest was never used: the run ends inside it, and so does the idle part.
  runs_.part_idle();
  runs_.check_invariants();
  EXPECT_EQ(runs_.pending_bytes(), kPageBytes);
  EXPECT_EQ(runs_.ready_bytes(), 2 * kPageBytes - 100 * kUnitBytes);
  put(live);
  complete_all();
  refresh();
}

TEST_F(RunTablePagesTest, ARunOfNobodyIsPartedToo) {
  know_others();
  for (std::uint64_t page = 0; page < 4; ++page) add(page);
  const RunId a = take_at(0, 2 * kUnitsPerPage);
  const RunId b = take_at(2 * kUnitsPerPage, 2 * kUnitsPerPage);
  const TicketSet both = busy({0, 1});
  put(a, both);
  device_.complete(raw_[0]);
  device_.complete(raw_[1]);
  put(b, busy({1, 2}));
  streams_.poll();
  EXPECT_EQ(runs_.pending_bytes(), 4 * kPageBytes);
  runs_.part_idle();
  runs_.check_invariants();
  EXPECT_EQ(runs_.pending_bytes(), 2 * kPageBytes);
  EXPECT_EQ(runs_.empty_pages(), 2u);
  complete_all();
  refresh();
}

// It comes from nobody's to the one stream that is left, of which nothing has become complete.
TEST_F(RunTablePagesTest, WhatIsLeftToOneStreamIsPartedToo) {
  know_others();
  for (std::uint64_t page = 0; page < 5; ++page) add(page);
  take_at(4 * kUnitsPerPage, kUnitsPerPage);
  const RunId a = take_at(0, 2 * kUnitsPerPage);
  const RunId b = take_at(2 * kUnitsPerPage, 2 * kUnitsPerPage);
  put(a, busy({0, 1}));
  put(b, busy({1, 2}));
  runs_.part_idle();
  EXPECT_EQ(runs_.run_count(), 2u);
  device_.complete(raw_[0]);
  device_.complete(raw_[1]);
  refresh();
  EXPECT_EQ(runs_.pending_bytes(), 4 * kPageBytes);
  runs_.part_idle();
  EXPECT_EQ(runs_.pending_bytes(), 2 * kPageBytes);
  complete_all();
  refresh();
}

TEST_F(RunTablePagesTest, LongRunsComeShortestFirstThenOnesOwnThenTheEnd) {
  know_others();
  for (std::uint64_t page = 0; page < 14; ++page) add(page);
  const auto hold = [&](std::uint64_t page) { take_at(page * kUnitsPerPage, kUnitsPerPage); };
  for (const std::uint64_t page : {3u, 5u, 8u, 11u}) hold(page);
  // Free: 0-2, 4, 6-7, 9-10, 12-13 at the end. Of those 6-7 is stream 0's, 9-10 stream 1's.
  put(take_at(6 * kUnitsPerPage, 2 * kUnitsPerPage), busy({0}));
  put(take_at(9 * kUnitsPerPage, 2 * kUnitsPerPage), busy({1}));
  take_at(0, kUnitsPerPage / 2);
  const auto order = [&](StreamIndex stream, std::uint64_t most) {
    std::vector<std::uint64_t> pages;
    runs_.for_each_long(stream, [&](RunId id) {
      pages.push_back(divide_up(runs_[id].start, kUnitsPerPage));
      return pages.size() < most;
    });
    return pages;
  };
  using Pages = std::vector<std::uint64_t>;
  EXPECT_EQ(order(kAnybody, 99), (Pages{4, 1, 12}));
  EXPECT_EQ(order(0, 99), (Pages{4, 1, 6, 12}));
  EXPECT_EQ(order(1, 99), (Pages{4, 1, 9, 12}));
  EXPECT_EQ(order(0, 2), (Pages{4, 1}));
  EXPECT_EQ(order(0, 3), (Pages{4, 1, 6}));
  take_at(4 * kUnitsPerPage, 1);  // less than a page is not long
  EXPECT_EQ(order(0, 99), (Pages{1, 6, 12}));
  put(take_at(12 * kUnitsPerPage, 2 * kUnitsPerPage), busy({2}));
  EXPECT_EQ(order(0, 99), (Pages{1, 6}));
  complete_all();
  refresh();
}

// Whatever happens, what was counted on the way is what there is.
TEST_F(RunTablePagesTest, EmptyPagesAreWhatACountGives) {
  test::Random random(11);
  for (std::uint64_t page = 0; page < 40;) {
    const std::uint64_t pages = random.between(1, 3);
    if (random.one_in(5)) {
      page += pages;
    } else {
      add(page, pages);
      page += pages;
    }
  }
  std::vector<RunId> taken;
  std::uint64_t fewest = runs_.empty_pages();
  runs_.take_fewest_empty_pages();
  for (int step = 0; step < 3000; ++step) {
    if (step == 500) know_others();
    const auto streams = static_cast<StreamIndex>(step < 500 ? 1 : 3);
    const auto stream = static_cast<StreamIndex>(random.below(streams));
    switch (random.below(8)) {
      case 0:
        device_.complete(raw_[stream]);
        refresh();
        break;
      case 1:
        runs_.part_idle();
        ASSERT_FALSE(has_idle_parts()) << "step " << step;
        break;
      case 2:
      case 3:
      case 4: {
        constexpr std::uint32_t kAlignments[] = {1, 1, kUnitsPerPage, kWithinPage};
        const std::uint32_t align_units = kAlignments[random.below(4)];
        const auto units = static_cast<std::uint32_t>(
            align_units == kWithinPage
                ? 32
                : random.between(1, random.one_in(3) ? 4 * kUnitsPerPage : 300));
        const RunId id = runs_.take(units, align_units, stream, Reach::everywhere, RunKind::block);
        if (id != 0) taken.push_back(id);
        break;
      }
      default: {
        if (taken.empty()) break;
        std::swap(taken[random.below(taken.size())], taken.back());
        TicketSet tickets;
        if (random.one_in(2)) tickets.add(busy({stream}), streams_);
        if (random.one_in(6)) tickets.add(busy({static_cast<StreamIndex>(streams - 1)}), streams_);
        runs_.put(taken.back(), tickets);
        taken.pop_back();
      }
    }
    runs_.check_invariants();
    const std::uint64_t empty = count_empty();
    ASSERT_EQ(runs_.empty_pages(), empty) << "step " << step;
    // Not at each step, so that what is over by then comes together.
    if (step % 50 < 10) {
      ASSERT_EQ(runs_.pages_once_complete(), count_empty(true)) << "step " << step;
    }
    if (step % 70 < 10) {
      ASSERT_EQ(runs_.largest_free_units(), longest_free()) << "step " << step;
    }
    fewest = std::min(fewest, empty);
    if (step % 7 == 0) {
      // Parts that become idle are taken and put, but they are not empty before.
      ASSERT_EQ(runs_.take_fewest_empty_pages(), fewest) << "step " << step;
      fewest = empty;
    }
  }
  complete_all();
  refresh();
}

class ManyPendingRuns : public ArenaFixture {
 protected:
  static constexpr std::uint32_t kUnits = 8;  // of a run, with as many taken behind it
  static constexpr std::uint64_t kPages = 2048;

  ManyPendingRuns() : ArenaFixture(kPages, kPages * kPageBytes) {
    EXPECT_TRUE(
        runs_.reserve(2 * kPages * kUnitsPerPage, 2 * kPages * kUnitsPerPage, arena_.get()));
    runs_.track_pages(true);
    for (StreamIndex i = 0; i < 3; ++i) runs_.know_stream(i);
    map(0, kPages);
    runs_.set_end(kPages * kUnitsPerPage);
    runs_.add(0, static_cast<std::uint32_t>(kPages * kUnitsPerPage));
  }
  void make(std::uint64_t count, const TicketSet& tickets) {
    for (; made_ < count; ++made_) {
      const auto take = [&] { return runs_.take(kUnits, 1, 0, Reach::everywhere, RunKind::block); };
      const RunId id = take();
      EXPECT_NE(take(), 0u);
      runs_.put(id, tickets);
    }
  }
  double seconds() const {
    double least = 1e9;
    for (int i = 0; i < 7; ++i) {
      const auto start = std::chrono::steady_clock::now();
      for (int n = 0; n < 20; ++n) {
        EXPECT_EQ(runs_.largest_free_units(), kPages * kUnitsPerPage - made_ * 2 * kUnits);
        EXPECT_LE(runs_.pages_once_complete(), kPages);
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      least = std::min(least, took.count());
    }
    return least;
  }

  std::uint64_t made_ = 0;
  RunTable runs_{streams_, {}};
};

// Sixteen times as many are not looked at one by one: that would take as many times longer.
TEST_F(ManyPendingRuns, AreNotLookedAtOneByOne) {
  const TicketSet tickets = busy({1});
  make(2'500, tickets);
  const double few = seconds();
  make(2'500 * 16, tickets);
  EXPECT_LT(seconds(), 8 * few);
  runs_.check_invariants();
  complete_all();
  runs_.refresh();
}

}  // namespace
}  // namespace gpupool::internal
