// VmmArena::back() with pages that move and new ones in one call, while the driver refuses one call
// or two: on an error everything is as before, but for what the driver would not take back.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "arena/arena.h"
#include "tests/unit/arena_fixture.h"

namespace gpupool::internal {
namespace {

class VmmArenaTest : public ArenaFixture {
 protected:
  VmmArenaTest() : ArenaFixture(4) {
    map(0);
    map(1, 2);
    map(3);
    held_ = device_.held_bytes();
    objects_ = device_.object_count();
  }

  /// Two rows, of moved and new by turns.
  std::vector<Mapping> targets() const {
    return {moved_target(0, 10), new_target(11, 2), moved_target(1, 13), new_target(20),
            moved_target(3, 21)};
  }
  static constexpr std::uint64_t kNewBytes = 3 * kPageBytes;
  static constexpr std::uint64_t kCalls = 3 + 2 * 2 + 2;  // moved, new, rows

  bool can_be_touched(std::uint64_t page) {
    SimulatedWork work;
    work.address = arena_->address_of(page * kUnitsPerPage);
    work.bytes = kPageBytes;
    return device_.launch(raw_[0], work).ok();
  }
  void expect_as_before() {
    arena_->check_invariants();
    EXPECT_EQ(device_.held_bytes(), held_);
    EXPECT_EQ(arena_->held_bytes(), held_);
    EXPECT_EQ(device_.object_count(), objects_);
    EXPECT_EQ(arena_->mapping_count(), 3u);
    EXPECT_EQ(arena_->stuck_bytes(), 0u);
    EXPECT_EQ(arena_->stale_pages(), 0u);
    for (const std::uint64_t page : {0u, 1u, 2u, 3u}) {
      ASSERT_TRUE(arena_->is_backed(page));
      EXPECT_TRUE(can_be_touched(page));
    }
    EXPECT_EQ(arena_->mapping_of(2).pages.first, 1u);
    for (const auto& [first, pages] : holes()) EXPECT_GE(first, 4u) << pages;
  }
  /// Keeps what is stuck, and tries until the driver has taken it.
  void recover(const std::vector<Mapping>& stuck) {
    arena_->keep_stuck(stuck);
    arena_->check_invariants();
    EXPECT_EQ(arena_->held_bytes(), device_.held_bytes());
    EXPECT_EQ(arena_->held_bytes(), held_ + arena_->stuck_bytes());
    const std::vector<Mapping> again = arena_->stuck();
    for (const Mapping& mapping : again) {
      std::vector<Mapping> still;
      ASSERT_TRUE(arena_->unback(mapping, still).ok());
      arena_->forget_stuck(mapping);
      EXPECT_TRUE(still.empty());
    }
    unmap_stale();
  }
  void expect_that_it_works() {
    std::vector<Mapping> all = targets();
    std::vector<Mapping> stuck;
    ASSERT_TRUE(arena_->back(all, kNewBytes, stuck).ok());
    EXPECT_TRUE(stuck.empty());
    for (const Mapping& target : all) {
      if (target.index != 0) {
        arena_->relocate(target, TicketSet());
      } else {
        arena_->commit({target});
      }
    }
    arena_->check_invariants();
    EXPECT_EQ(device_.held_bytes(), held_ + kNewBytes);
    EXPECT_EQ(arena_->held_bytes(), held_ + kNewBytes);
    for (const std::uint64_t page : {10u, 11u, 12u, 13u, 14u, 20u, 21u}) {
      EXPECT_TRUE(arena_->is_backed(page));
      EXPECT_TRUE(can_be_touched(page));
    }
    EXPECT_EQ(unmap_stale(), 4u);
  }

  std::uint64_t held_ = 0;
  std::uint64_t objects_ = 0;
};

TEST_F(VmmArenaTest, MovedAndNewInOneCall) {
  const std::uint64_t calls = backend_.call_count();
  std::vector<Mapping> all = targets();
  std::vector<Mapping> stuck;
  EXPECT_EQ(arena_->back(all, kNewBytes - 1, stuck).error(), Error::out_of_memory);
  EXPECT_EQ(backend_.call_count(), calls);
  expect_as_before();
  expect_that_it_works();
}

TEST_F(VmmArenaTest, EachCallThatFailsLeavesEverythingAsItWas) {
  for (std::uint64_t n = 1; n <= kCalls; ++n) {
    std::vector<Mapping> all = targets();
    std::vector<Mapping> stuck;
    backend_.fail_nth_of_all(n, n % 2 == 0 ? Error::out_of_memory : Error::backend_failure);
    const auto backed = arena_->back(all, kNewBytes, stuck);
    ASSERT_FALSE(backed.ok()) << "call " << n;
    EXPECT_EQ(backed.error(), n % 2 == 0 ? Error::out_of_memory : Error::backend_failure);
    EXPECT_TRUE(stuck.empty()) << "call " << n;
    expect_as_before();
  }
  expect_that_it_works();
  EXPECT_EQ(backend_.failed_count(), kCalls);
}

TEST_F(VmmArenaTest, EachSecondFailureInTheRollbackIsKeptAccountOf) {
  std::uint64_t aliases = 0;
  std::uint64_t on_the_line = 0;
  std::uint64_t off_the_line = 0;
  for (std::uint64_t n = 1; n <= kCalls; ++n) {
    for (std::uint64_t later = 1;; ++later) {
      std::vector<Mapping> all = targets();
      std::vector<Mapping> stuck;
      const std::uint64_t failed = backend_.failed_count();
      backend_.fail_nth_of_all(n, Error::backend_failure);
      backend_.fail_nth_of_all(n + later, Error::backend_failure);
      ASSERT_FALSE(arena_->back(all, kNewBytes, stuck).ok());
      const bool has_failed_twice = backend_.failed_count() == failed + 2;
      backend_.clear();
      EXPECT_EQ(stuck.size(), has_failed_twice ? 1u : 0u) << n << " and " << n + later;
      for (const Mapping& mapping : stuck) {
        aliases += mapping.is_alias ? 1 : 0;
        on_the_line += !mapping.is_alias && mapping.address != 0 ? 1 : 0;
        off_the_line += !mapping.is_alias && mapping.address == 0 ? 1 : 0;
      }
      recover(stuck);
      expect_as_before();
      if (!has_failed_twice || HasFailure()) break;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(aliases, 3u);
  EXPECT_GT(on_the_line, 3u);
  EXPECT_GT(off_the_line, 3u);
  expect_that_it_works();
}

TEST_F(VmmArenaTest, ARollbackInWhichNothingWorks) {
  std::vector<Mapping> all = targets();
  std::vector<Mapping> stuck;
  for (std::uint64_t n = kCalls; n < kCalls + 20; ++n) {
    backend_.fail_nth_of_all(n, Error::backend_failure);
  }
  ASSERT_FALSE(arena_->back(all, kNewBytes, stuck).ok());
  backend_.clear();
  EXPECT_EQ(stuck.size(), all.size());
  recover(stuck);
  expect_as_before();
  expect_that_it_works();
}

}  // namespace
}  // namespace gpupool::internal
