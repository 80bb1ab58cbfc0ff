// The line of pages: what moves, what it leaves behind, what is stuck, and how the line goes on.
#include "arena/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "tests/unit/arena_fixture.h"

namespace gpupool::internal {
namespace {

class ArenaTest : public ArenaFixture {
 protected:
  ArenaTest() : ArenaFixture(2) {}  // 15 pages a range

  /// Whether the device lets work touch `page`.
  bool can_be_touched(std::uint64_t page) {
    SimulatedWork work;
    work.address = arena_->address_of(page * kUnitsPerPage);
    work.bytes = kPageBytes;
    return device_.launch(raw_[0], work).ok();
  }
};

TEST_F(ArenaTest, WhatMovedIsMappedAtBothPlacesUntilTheOldOneIsUnmapped) {
  map(0);
  map(1, 2);
  const std::uint64_t held = device_.held_bytes();
  move(1, 5);
  EXPECT_EQ(device_.held_bytes(), held);
  EXPECT_EQ(arena_->held_bytes(), held);
  EXPECT_EQ(arena_->backed_pages(), 3u);
  EXPECT_EQ(arena_->mapping_count(), 2u);
  EXPECT_EQ(arena_->stale_pages(), 2u);
  EXPECT_EQ(arena_->high_water(), 7u);
  EXPECT_EQ(holes(), (Holes{{3, 2}}));  // the old place is none yet
  for (const std::uint64_t page : {1u, 2u}) {
    EXPECT_FALSE(arena_->is_backed(page));
    EXPECT_TRUE(can_be_touched(page));
  }
  const Mapping& mapping = arena_->mapping_of(5);
  EXPECT_EQ(mapping.pages.first, 5u);
  EXPECT_EQ(mapping.address, arena_->address_of(std::uint64_t{5} * kUnitsPerPage));
  EXPECT_EQ(mapping.aliases, 1u);
  EXPECT_EQ(&arena_->mapping_of(6), &mapping);
  EXPECT_TRUE(can_be_touched(5));

  EXPECT_EQ(unmap_stale(), 2u);
  EXPECT_EQ(arena_->stale_pages(), 0u);
  EXPECT_EQ(arena_->mapping_of(5).aliases, 0u);
  EXPECT_EQ(holes(), (Holes{{1, 4}}));
  EXPECT_EQ(device_.held_bytes(), held);
  arena_->check_invariants();
  EXPECT_EQ(device_.violation_count(), 0u);
}

TEST_F(ArenaTest, AnOldAddressWaitsForWhoMayUseIt) {
  map(0);
  map(1);
  map(2);
  move(0, 4, busy({0}));
  move(1, 5);
  move(2, 6, busy({0, 1}));
  const auto taken = arena_->take_stale(streams_, kUnlimited);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].pages.first, 1u);
  EXPECT_EQ(taken[0].address, arena_->address_of(kUnitsPerPage));
  EXPECT_EQ(arena_->stale_pages(), 3u);  // what is being unmapped included
  EXPECT_TRUE(arena_->take_stale(streams_, kUnlimited).empty());
  ASSERT_TRUE(arena_->unmap(taken[0].address, kPageBytes).ok());
  arena_->end_stale(taken, true);
  EXPECT_EQ(arena_->stale_pages(), 2u);
  complete_all();
  const auto rest = arena_->take_stale(streams_, 1);  // no more than that, the oldest
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].pages.first, 0u);
  arena_->end_stale(rest, false);
  EXPECT_EQ(unmap_stale(), 2u);
}

TEST_F(ArenaTest, AnOldAddressThatTheDriverWouldNotUnmapIsTriedAgain) {
  map(0);
  move(0, 2);
  backend_.fail_nth(BackendCall::unmap, 1, Error::backend_failure);
  const auto taken = arena_->take_stale(streams_, kUnlimited);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_FALSE(arena_->unmap(taken[0].address, kPageBytes).ok());
  arena_->end_stale(taken, false);
  arena_->check_invariants();
  EXPECT_EQ(arena_->stale_pages(), 1u);
  EXPECT_EQ(arena_->mapping_of(2).aliases, 1u);
  EXPECT_EQ(holes(), (Holes{{1, 1}}));
  EXPECT_EQ(unmap_stale(), 1u);
  EXPECT_EQ(holes(), (Holes{{0, 2}}));
}

TEST_F(ArenaTest, WhatMovesTwiceHasTwoOldAddresses) {
  map(0);
  move(0, 2, busy({0}));
  move(2, 1);
  EXPECT_EQ(arena_->mapping_of(1).aliases, 2u);
  EXPECT_EQ(unmap_stale(), 1u);
  EXPECT_EQ(arena_->mapping_of(1).aliases, 1u);
  complete_all();
  EXPECT_EQ(unmap_stale(), 1u);
  EXPECT_EQ(arena_->mapping_of(1).aliases, 0u);
  EXPECT_EQ(holes(), (Holes{{0, 1}, {2, 1}}));
}

TEST_F(ArenaTest, WhatIsMappedElsewhereAsWellIsNotWithdrawn) {
  map(0);
  move(0, 1);
  EXPECT_DEATH(arena_->withdraw(arena_->mapping_of(1)), "internal error");
}

TEST_F(ArenaTest, MovingToWhereSomethingIsEndsTheProgram) {
  map(0);
  map(1);
  EXPECT_DEATH(arena_->relocate(moved_target(0, 1), TicketSet()), "internal error");
}

TEST_F(ArenaTest, WholePagesAreThoseOfMappingsThatLieInside) {
  map(0, 4);
  map(4);
  map(5, 2);
  map(7);
  EXPECT_EQ(arena_->whole_pages(0, 8), 8u);
  EXPECT_EQ(arena_->whole_pages(1, 8), 4u);
  EXPECT_EQ(arena_->whole_pages(0, 6), 5u);
  EXPECT_EQ(arena_->whole_pages(1, 6), 1u);
  EXPECT_EQ(arena_->whole_pages(1, 4), 0u);
  EXPECT_EQ(arena_->whole_pages(1, 3), 0u);
  EXPECT_EQ(arena_->whole_pages(3, 5), 1u);
  EXPECT_EQ(arena_->whole_pages(4, 6), 1u);
  EXPECT_EQ(arena_->whole_pages(5, 6), 0u);
  EXPECT_EQ(arena_->whole_pages(6, 8), 1u);
  EXPECT_EQ(arena_->whole_pages(4, 5), 1u);
  EXPECT_EQ(arena_->whole_pages(5, 5), 0u);
  EXPECT_EQ(arena_->whole_pages(6, 5), 0u);
}

TEST_F(ArenaTest, AnAliasThatIsStuckIsStaleAndNotHeldTwice) {
  map(0);
  map(1);
  const std::uint64_t held = arena_->held_bytes();
  std::vector<Mapping> targets{moved_target(0, 4), moved_target(1, 6)};
  backend_.fail_nth(BackendCall::set_access, 1, Error::backend_failure);
  backend_.fail_nth(BackendCall::unmap, 2, Error::backend_failure);
  std::vector<Mapping> stuck;
  EXPECT_EQ(arena_->back(targets, 0, stuck).error(), Error::backend_failure);
  ASSERT_EQ(stuck.size(), 1u);
  EXPECT_TRUE(stuck[0].is_alias);
  arena_->keep_stuck(stuck);
  arena_->check_invariants();
  EXPECT_TRUE(arena_->stuck().empty());  // nothing that unback() could give back
  EXPECT_EQ(arena_->stuck_bytes(), 0u);
  EXPECT_EQ(arena_->held_bytes(), held);
  EXPECT_EQ(device_.held_bytes(), held);
  EXPECT_EQ(arena_->stale_pages(), 1u);
  EXPECT_EQ(arena_->mapping_of(0).aliases, 0u);
  EXPECT_EQ(arena_->mapping_of(1).aliases, 1u);
  EXPECT_TRUE(arena_->is_backed(0));
  EXPECT_FALSE(arena_->is_backed(6));
  EXPECT_EQ(holes(), (Holes{{2, 4}}));  // the place of the one that was unmapped is one again
  EXPECT_EQ(unmap_stale(), 1u);
  EXPECT_EQ(holes(), (Holes{{2, 5}}));
}

TEST_F(ArenaTest, WhatIsStuckOnTheLineKeepsItsPagesAndWhatIsNotDoesNot) {
  std::vector<Mapping> targets{new_target(0), new_target(1)};
  backend_.fail_nth(BackendCall::set_access, 1, Error::out_of_memory);
  backend_.fail_nth(BackendCall::unmap, 1, Error::backend_failure);
  backend_.fail_nth(BackendCall::release, 1, Error::backend_failure);
  std::vector<Mapping> stuck;
  EXPECT_EQ(arena_->back(targets, kUnlimited, stuck).error(), Error::out_of_memory);
  ASSERT_EQ(stuck.size(), 2u);
  arena_->keep_stuck(stuck);
  arena_->check_invariants();
  EXPECT_EQ(arena_->held_bytes(), 2 * kPageBytes);
  EXPECT_EQ(device_.held_bytes(), 2 * kPageBytes);
  EXPECT_EQ(arena_->stuck_bytes(), 2 * kPageBytes);
  EXPECT_TRUE(arena_->is_backed(0));
  EXPECT_FALSE(arena_->is_backed(1));
  EXPECT_EQ(arena_->tail().first, 1u);
  const std::vector<Mapping> again = arena_->stuck();
  for (const Mapping& mapping : again) {
    ASSERT_TRUE(arena_->unback(mapping, stuck).ok());
    arena_->forget_stuck(mapping);
  }
  arena_->check_invariants();
  EXPECT_EQ(arena_->stuck_bytes(), 0u);
  EXPECT_EQ(arena_->held_bytes(), 0u);
  EXPECT_EQ(device_.held_bytes(), 0u);
}

// Ranges.

TEST_F(ArenaTest, TheLineGoesOnOverFourRanges) {
  constexpr std::uint64_t kRange = 16;
  map(3);
  std::vector<DeviceAddress> bases{arena_->address_of(0)};
  for (std::uint64_t range = 1; range < AddressMap::kMaxRanges; ++range) {
    ASSERT_TRUE(arena_->can_extend());
    bases.push_back(arena_->reserve_more().value());
    arena_->extend(bases.back());
    arena_->check_invariants();
    EXPECT_EQ(arena_->tail().first, range * kRange);
    EXPECT_EQ(arena_->tail().count, kRange - 1);
    EXPECT_EQ(arena_->address_of(range * kRange * kUnitsPerPage), bases.back());
    map(range * kRange + 3);
  }
  EXPECT_FALSE(arena_->can_extend());
  EXPECT_EQ(arena_->page_capacity(), 4 * kRange);
  // The last page of each range is in no hole: nothing reaches from one into the next.
  Holes expected;
  for (std::uint64_t range = 0; range < AddressMap::kMaxRanges; ++range) {
    expected.emplace_back(range * kRange, 3);
    if (range < 3) expected.emplace_back(range * kRange + 4, kRange - 5);
  }
  EXPECT_EQ(holes(), expected);
  EXPECT_EQ(arena_->tail().end(), 4 * kRange - 1);

  for (std::uint64_t range = 0; range < AddressMap::kMaxRanges; ++range) {
    const std::uint64_t unit = (range * kRange + 3) * kUnitsPerPage;
    const DeviceAddress address = bases[range] + 3 * kPageBytes;
    EXPECT_EQ(arena_->address_of(unit), address);
    EXPECT_EQ(arena_->address_of(unit + 7), address + 7 * kUnitBytes);
    EXPECT_EQ(arena_->find_unit(address), unit);
    EXPECT_EQ(arena_->find_unit(address + kPageBytes - 1), unit + kUnitsPerPage - 1);
    EXPECT_EQ(arena_->find_unit(address - 1), std::nullopt);  // there, and not backed
    EXPECT_EQ(arena_->find_unit(address + kPageBytes), std::nullopt);
    EXPECT_TRUE(can_be_touched(range * kRange + 3));
  }
  // A page moves from range to range.
  move(3, 2 * kRange + 5);
  EXPECT_EQ(arena_->mapping_of(2 * kRange + 5).address, bases[2] + 5 * kPageBytes);
  EXPECT_TRUE(can_be_touched(2 * kRange + 5));
  EXPECT_EQ(unmap_stale(), 1u);
  EXPECT_EQ(backend_.call_count(BackendCall::reserve_address), 4u);
}

TEST_F(ArenaTest, AccessIsSetForEachRangeByItself) {
  map(14);  // the last that may be
  arena_->extend(arena_->reserve_more().value());
  std::vector<Mapping> targets{new_target(13), new_target(16), new_target(17)};
  std::vector<Mapping> stuck;
  const std::uint64_t calls = backend_.call_count(BackendCall::set_access);
  ASSERT_TRUE(arena_->back(targets, kUnlimited, stuck).ok());
  arena_->commit(targets);
  EXPECT_EQ(backend_.call_count(BackendCall::set_access), calls + 2);
  for (const std::uint64_t page : {13u, 14u, 16u, 17u}) EXPECT_TRUE(can_be_touched(page));
  EXPECT_EQ(holes(), (Holes{{0, 13}}));
}

TEST_F(ArenaTest, AHandleMayLieAcrossTheHighestPageEverBacked) {
  for (std::uint64_t page = 0; page < 4; ++page) map(page);
  give_back(2);
  give_back(3);
  map(3, 4);
  arena_->check_invariants();
  EXPECT_EQ(holes(), (Holes{{2, 1}}));
  EXPECT_EQ(arena_->high_water(), 7u);
  for (const std::uint64_t page : {3u, 6u}) EXPECT_TRUE(can_be_touched(page));
  EXPECT_FALSE(arena_->is_backed(2));
}

TEST_F(ArenaTest, ARangeThatTheDeviceDoesNotGiveChangesNothing) {
  map(0);
  backend_.fail_nth(BackendCall::reserve_address, 1, Error::out_of_memory);
  refused_reservations_ = 1;
  EXPECT_EQ(arena_->reserve_more().error(), Error::out_of_memory);
  arena_->check_invariants();
  EXPECT_TRUE(arena_->can_extend());
  EXPECT_EQ(arena_->tail().end(), 15u);
  EXPECT_EQ(arena_->addresses().range_count(), 1u);
  arena_->extend(arena_->reserve_more().value());
  EXPECT_EQ(arena_->addresses().range_count(), 2u);
}

TEST_F(ArenaTest, SegmentsHaveOneLineAndNothingMoves) {
  auto segments = make_segment_arena(driver_, 4 * kPageBytes).value();
  EXPECT_FALSE(segments->can_extend());
  EXPECT_EQ(segments->reserve_more().error(), Error::not_supported);
  EXPECT_EQ(segments->unmap(kPageBytes, kPageBytes).error(), Error::not_supported);
}

// Very many old addresses.

class ArenaOfMany : public ArenaFixture {
 protected:
  ArenaOfMany() : ArenaFixture(16384) {}

  /// The one page that there is goes on, and leaves its address; the device knows nothing of it.
  void go_to(std::uint64_t page, const TicketSet& tickets = TicketSet()) {
    Mapping target = arena_->mapping_of(at_);
    target.pages.first = page;
    target.aliases = 0;
    target.address = arena_->address_of(page * kUnitsPerPage);
    arena_->relocate(target, tickets);
    at_ = page;
  }
  void leave(std::uint64_t count, const TicketSet& tickets = TicketSet()) {
    for (std::uint64_t i = 0; i < count; ++i) go_to(at_ + 1, tickets);
  }
  /// Takes what may be taken, a little at a time; how many pages.
  std::uint64_t take_all() {
    std::uint64_t pages = 0;
    while (true) {
      const auto taken = arena_->take_stale(streams_, 16);
      if (taken.empty()) return pages;
      arena_->end_stale(taken, true);
      pages += taken.size();
    }
  }
  void go_home() {
    go_to(0);
    EXPECT_EQ(take_all(), 1u);
  }
  /// The least time that `step` takes of several.
  template <class Prepare, class Step>
  static double seconds(Prepare prepare, Step step) {
    double least = 1e9;
    for (int i = 0; i < 5; ++i) {
      prepare();
      const auto start = std::chrono::steady_clock::now();
      step();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      least = std::min(least, took.count());
    }
    return least;
  }

  std::uint64_t at_ = 0;
};

TEST_F(ArenaOfMany, TwiceAsManyOldAddressesTakeTwiceAsLongToUnmap) {
  map(0);
  const auto time = [&](std::uint64_t count) {
    const auto prepare = [&] {
      if (at_ != 0) go_home();
      leave(count);
    };
    return seconds(prepare, [&] { EXPECT_EQ(take_all(), count); });
  };
  const double once = time(20'000);
  EXPECT_LT(time(40'000), 3.2 * once);
  go_home();
  arena_->check_invariants();
}

TEST_F(ArenaOfMany, WhatWaitsIsNotLookedAtAgainUntilMoreIsComplete) {
  map(0);
  constexpr std::uint64_t kCount = 60'000;
  leave(kCount, busy({0}));
  const auto look = [&] { EXPECT_TRUE(arena_->take_stale(streams_, 16).empty()); };
  const auto complete_another = [&] {
    busy({1});
    device_.complete(raw_[1]);
    streams_.poll();
  };
  const double once = seconds(complete_another, look);
  const double again = seconds([] {},
                               [&] {
                                 for (int i = 0; i < 1000; ++i) look();
                               });
  EXPECT_LT(again, 100 * once);
  complete_all();
  EXPECT_EQ(take_all(), kCount);
  go_home();
}

}  // namespace
}  // namespace gpupool::internal
