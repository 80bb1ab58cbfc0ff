// Which pages a request would be served by, on random arenas, against a look at every single place.
#include <algorithm>
#include <vector>

#include "tests/support/random.h"
#include "tests/unit/growth_planner_fixture.h"

namespace gpupool::internal {
namespace {

/// A random arena, what each unit of it is, and what to expect of it.
class RandomArena : public GrowthPlannerTest {
 protected:
  RandomArena() : GrowthPlannerTest(8) {}
  static constexpr std::uint64_t kLine = 63;  // pages

  enum class Unit : std::uint8_t { unbacked, ready, own, taken };

  void make(test::Random& random, bool has_large_handles) {
    const std::uint64_t pages = random.one_in(2) ? random.between(1, 24) : random.between(25, 60);
    std::vector<RunId> taken;
    for (std::uint64_t page = 0; page < pages;) {
      std::uint64_t count = random.between(1, has_large_handles ? 3 : 1);
      // A hole and the tail behind it are two spans of a plan, and so no handle is in both.
      if (page < arena_->high_water()) count = std::min(count, arena_->high_water() - page);
      if (random.one_in(3)) {
        page += count;
        continue;
      }
      add(page, count);
      page += count;
    }
    // Most of it is taken piece by piece, and some of that given back.
    const std::uint64_t keep = random.between(1, 6);
    for (std::uint64_t i = random.below(4 * pages); i > 0; --i) {
      const auto units = static_cast<std::uint32_t>(random.one_in(3) ? random.between(1, 1200)
                                                                     : random.between(1, 200));
      const RunId id = runs_.take(units, random.one_in(4) ? kUnitsPerPage : 1, 0, Reach::everywhere,
                                  RunKind::block);
      if (id != 0) taken.push_back(id);
    }
    for (const RunId id : taken) {
      if (random.below(keep) != 0) continue;
      switch (random.below(4)) {
        case 0: runs_.put(id, TicketSet(own_)); break;
        case 1: runs_.put(id, TicketSet(others_)); break;
        default: runs_.put(id, TicketSet());
      }
    }
    runs_.check_invariants();
    read();
  }
  /// Work of streams 0 and 1 that is unfinished for as long as the test is.
  void start_work() {
    own_ = busy({0})[0];
    others_ = busy({1})[0];
  }
  void read() {
    units_.assign(kLine * kUnitsPerPage, Unit::unbacked);
    for (std::uint64_t page = 0; page < kLine; ++page) {
      if (!arena_->is_backed(page)) continue;
      std::fill_n(units_.begin() + static_cast<std::ptrdiff_t>(page * kUnitsPerPage), kUnitsPerPage,
                  Unit::taken);
    }
    for (RunId id = 1; id < runs_.id_end(); ++id) {
      const auto& run = runs_[id];
      if (run.kind != RunKind::free || (run.holder != kAnybody && run.holder != 0)) continue;
      std::fill_n(units_.begin() + static_cast<std::ptrdiff_t>(run.start), run.units,
                  run.holder == kAnybody ? Unit::ready : Unit::own);
    }
  }
  void clear() {
    complete_all();
    runs_.refresh();
    for (RunId id = 1; id < runs_.id_end(); ++id) {
      if (runs_[id].kind == RunKind::block) runs_.put(id, TicketSet());
    }
    while (true) {
      RunId found = 0;
      for (RunId id = 1; id < runs_.id_end(); ++id) {
        if (runs_[id].kind == RunKind::free) found = id;
      }
      if (found == 0) break;
      runs_.remove(runs_.take_at(found, runs_[found].start, runs_[found].units, RunKind::leaving));
    }
    give_back_all();
  }

  struct Best {
    std::uint64_t pages = kUnlimited;
    std::uint64_t first_span = 0;
  };
  bool is_usable(std::uint64_t unit, bool may_extend) const {
    return units_[unit] == Unit::unbacked || (may_extend && units_[unit] != Unit::taken);
  }
  std::uint64_t unbacked_pages(std::uint64_t start, std::uint64_t end) const {
    std::uint64_t pages = 0;
    for (std::uint64_t page = start / kUnitsPerPage; page * kUnitsPerPage < end; ++page) {
      if (!arena_->is_backed(page)) ++pages;
    }
    return pages;
  }
  /// The fewest pages that any window needs, and where of those the lowest begin.
  Best look(std::uint64_t units, std::uint32_t align_units, bool may_extend) const {
    Best best;
    std::vector<std::uint64_t> bad{0};  // before each unit
    for (std::uint64_t unit = 0; unit < units_.size(); ++unit) {
      bad.push_back(bad.back() + (is_usable(unit, may_extend) ? 0 : 1));
    }
    for (std::uint64_t start = 0; start + units <= units_.size(); ++start) {
      const std::uint64_t end = start + units;
      const bool is_placed = align_units != kWithinPage
                                 ? start % align_units == 0
                                 : start / kUnitsPerPage == (end - 1) / kUnitsPerPage;
      if (!is_placed || bad[start] != bad[end]) continue;
      const std::uint64_t pages = unbacked_pages(start, end);
      std::uint64_t first = start / kUnitsPerPage;
      while (first * kUnitsPerPage < end && arena_->is_backed(first)) ++first;
      if (pages < best.pages || (pages == best.pages && first < best.first_span)) {
        best = {pages, first};
      }
    }
    return best;
  }
  /// Which pages could move, one bit each; those of a mapping all together.
  std::vector<bool> movable_pages(bool is_idle) const {
    std::vector<bool> movable(kLine);
    for (RunId id = 1; id < runs_.id_end(); ++id) {
      const auto& run = runs_[id];
      if (run.kind != RunKind::free || (run.holder != kAnybody && run.holder != 0)) continue;
      for (std::uint64_t page = 0; page < kLine; ++page) {
        if (!arena_->is_backed(page)) continue;
        const PageSpan pages = arena_->mapping_of(page).pages;
        if (pages.first * kUnitsPerPage < run.start || pages.end() * kUnitsPerPage > run.end())
          continue;
        const bool is_free = run.holder == kAnybody && runs_.are_idle(id, pages);
        movable[page] = !is_idle || is_free;
      }
    }
    return movable;
  }
  /// The fewest pages that any window needs or makes immovable.
  std::uint64_t look_sparing(std::uint64_t units, const std::vector<bool>& movable) const {
    std::uint64_t best = kUnlimited;
    for (std::uint64_t start = 0; start + units <= units_.size(); ++start) {
      // Others begin and end in the same pages.
      const bool is_edge = start % kUnitsPerPage == 0 || (start + units) % kUnitsPerPage == 0 ||
                           !is_usable(start - 1, true) || start + units == units_.size() ||
                           !is_usable(start + units, true);
      if (!is_edge) continue;
      bool fits = true;
      for (std::uint64_t unit = start; unit < start + units && fits; ++unit) {
        fits = is_usable(unit, true);
      }
      if (!fits) continue;
      std::vector<bool> counted(kLine);
      for (std::uint64_t page = start / kUnitsPerPage; page * kUnitsPerPage < start + units;
           ++page) {
        if (!arena_->is_backed(page)) counted[page] = true;
        if (!movable[page]) continue;
        const PageSpan pages = arena_->mapping_of(page).pages;
        for (std::uint64_t each = pages.first; each < pages.end(); ++each) counted[each] = true;
      }
      const auto count = std::count(counted.begin(), counted.end(), true);
      best = std::min(best, static_cast<std::uint64_t>(count));
    }
    return best;
  }
  std::uint64_t occupied_pages() const { return arena_->backed_pages() - runs_.empty_pages(); }

  std::vector<Unit> units_;
  Ticket own_;
  Ticket others_;
};

TEST_F(RandomArena, NoOtherPlaceNeedsFewerPagesAndOfEqualsItIsTheLowest) {
  test::Random random(1);
  std::uint64_t planned = 0;
  std::uint64_t in_several = 0;
  for (int arena = 0; arena < 240; ++arena) {
    start_work();
    make(random, arena % 3 == 0);
    for (int i = 0; i < 12; ++i) {
      constexpr std::uint32_t kAlignments[] = {1, 1, 1, kWithinPage, 16, 256, kUnitsPerPage};
      const std::uint32_t align_units = kAlignments[random.below(std::size(kAlignments))];
      const bool may_extend = !random.one_in(4);
      const std::uint64_t units = align_units == kWithinPage ? 32
                                  : random.one_in(2)         ? random.between(1, 6000)
                                                     : random.between(1, 12) * kUnitsPerPage;
      const auto it = plan(units, align_units, may_extend);
      const bool fits =
          runs_.can_take(static_cast<std::uint32_t>(units), align_units, 0, Reach::everywhere);
      if (fits && may_extend) continue;  // for which nobody asks
      const Best best = look(units, align_units, may_extend);
      ASSERT_EQ(it.has_value(), best.pages != kUnlimited) << "arena " << arena;
      if (!it.has_value()) continue;
      ++planned;
      in_several += it->spans.size() > 1 ? 1 : 0;
      ASSERT_EQ(it->pages, best.pages)
          << "arena " << arena << " units " << units << " alignment " << align_units;
      ASSERT_EQ(it->spans.front().first, best.first_span)
          << "arena " << arena << " units " << units;
      std::uint64_t pages = 0;
      std::uint64_t end = it->window.first;
      for (const PageSpan& span : it->spans) {
        pages += span.count;
        ASSERT_GE(span.first, end);
        end = span.end();
        for (std::uint64_t page = span.first; page < end; ++page) {
          ASSERT_FALSE(arena_->is_backed(page));
        }
      }
      ASSERT_LE(end, it->window.end());
      ASSERT_EQ(pages, it->pages);
    }
    clear();
  }
  EXPECT_GT(planned, 1000u);
  EXPECT_GT(in_several, 100u);
}

TEST_F(RandomArena, WherePagesAreSparedNoOtherPlaceLeavesMoreThatCanMove) {
  test::Random random(3);
  std::uint64_t planned = 0;
  std::uint64_t differing = 0;
  for (int arena = 0; arena < 100; ++arena) {
    start_work();
    make(random, arena % 3 == 0);
    for (int i = 0; i < 8; ++i) {
      const auto units = static_cast<std::uint32_t>(
          random.one_in(2) ? random.between(1, 6000) : random.between(1, 12) * kUnitsPerPage);
      if (runs_.can_take(units, 1, 0, Reach::everywhere)) continue;
      for (const Spared spared : {Spared::idle, Spared::whole}) {
        const auto it = planner().plan(units, 1, 0, true, spared);
        const std::vector<bool> movable = movable_pages(spared == Spared::idle);
        const std::uint64_t best = look_sparing(units, movable);
        ASSERT_EQ(it.has_value(), best != kUnlimited);
        if (!it.has_value()) continue;
        ASSERT_EQ(it->charged_pages, best) << "arena " << arena << " units " << units;
        ++planned;
        differing += it->window.first != plan(units)->window.first ? 1 : 0;
      }
    }
    clear();
  }
  EXPECT_GT(planned, 200u);
  EXPECT_GT(differing, 10u);
}

TEST_F(RandomArena, OnceTheyAreBackedTheRequestIsServedAndSoManyMoreAreOccupied) {
  test::Random random(2);
  std::uint64_t served = 0;
  for (int arena = 0; arena < 300; ++arena) {
    start_work();
    make(random, false);
    constexpr std::uint32_t kAlignments[] = {1, 1, kWithinPage, 256, kUnitsPerPage};
    const std::uint32_t align_units = kAlignments[random.below(std::size(kAlignments))];
    const auto units =
        static_cast<std::uint32_t>(align_units == kWithinPage ? 32 : random.between(1, 6000));
    const auto it = plan(units, align_units);
    if (it.has_value() && !runs_.can_take(units, align_units, 0, Reach::everywhere)) {
      const std::uint64_t before = occupied_pages();
      for (const PageSpan& span : it->spans) {
        for (std::uint64_t page = span.first; page < span.end(); ++page) add(page);
      }
      const RunId id = runs_.take(units, align_units, 0, Reach::everywhere, RunKind::block);
      ASSERT_NE(id, 0u) << "arena " << arena;
      // Best fit may prefer another place now; in the window it is what was said.
      const std::uint64_t start = runs_[id].start;
      if (start / kUnitsPerPage == it->window.first &&
          divide_up(start + units, kUnitsPerPage) == it->window.end()) {
        ++served;
        ASSERT_EQ(occupied_pages() - before, it->fresh_pages) << "arena " << arena;
      }
    }
    clear();
  }
  EXPECT_GT(served, 100u);
}

TEST_F(RandomArena, NoLongerRequestIsServedByAsManyPages) {
  test::Random random(3);
  for (int arena = 0; arena < 200; ++arena) {
    start_work();
    make(random, arena % 2 == 0);
    for (const std::uint64_t pages : {1u, 2u, 3u, 5u, 9u, 40u}) {
      // By two ends that go up together; a stretch without a hole is not grown.
      std::uint64_t longest = 0;
      std::uint64_t start = 0;
      for (std::uint64_t end = 1; end <= units_.size(); ++end) {
        const Unit last = units_[end - 1];
        if (last != Unit::unbacked && last != Unit::ready) start = end;
        if (end % kUnitsPerPage != 0 && end < units_.size() && units_[end] == last) continue;
        while (unbacked_pages(start, end) > pages) start += kUnitsPerPage - start % kUnitsPerPage;
        if (unbacked_pages(start, end) > 0) longest = std::max(longest, end - start);
      }
      const std::uint64_t found = largest(pages);
      // A stretch of which nothing is missing may be longer; that is no growth.
      ASSERT_GE(found, longest) << "arena " << arena << " pages " << pages;
      if (found > longest) {
        ASSERT_LE(found, runs_.largest_ready_units()) << "arena " << arena << " pages " << pages;
      }
    }
    EXPECT_EQ(largest(0), 0u);
    clear();
  }
}

}  // namespace
}  // namespace gpupool::internal
