// What the tests of pages share: an arena of one address range on a simulated device that can be
// made to fail, and the streams whose work may still be using its pages.
#ifndef GPUPOOL_TESTS_UNIT_ARENA_FIXTURE_H_
#define GPUPOOL_TESTS_UNIT_ARENA_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "arena/arena.h"
#include "backend/driver.h"
#include "base/units.h"
#include "gpupool/faulty_backend.h"
#include "gpupool/simulated_backend.h"
#include "tests/unit/epochs.h"

namespace gpupool::internal {

class ArenaFixture : public testing::Test {
 protected:
  /// Addresses are reserved for eight times `limit_pages`, a power of two; one less can be backed.
  explicit ArenaFixture(std::uint64_t limit_pages = 1,
                        std::uint64_t device_bytes = std::uint64_t{1} << 30)
      : device_({.capacity_bytes = device_bytes}) {
    arena_ = make_vmm_arena(driver_, limit_pages * kPageBytes).value();
    for (StreamIndex i = 0; i < 3; ++i) {
      raw_.push_back(device_.create_stream());
      EXPECT_EQ(streams_.adopt(raw_[i], device_.stream_id(raw_[i]).value())->index(), i);
    }
  }
  ~ArenaFixture() override {
    complete_all();
    unmap_stale();
    give_back_all();
    arena_.reset();
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
    EXPECT_EQ(backend_.call_count(BackendCall::free_address),
              backend_.call_count(BackendCall::reserve_address) - refused_reservations_);
  }

  static Mapping new_target(std::uint64_t first, std::uint64_t pages = 1) {
    Mapping target;
    target.pages = {first, pages};
    return target;
  }
  /// What lies at `from`, whole, is to go to `to`.
  Mapping moved_target(std::uint64_t from, std::uint64_t to) const {
    Mapping target = arena_->mapping_of(from);
    target.pages.first = to;
    target.aliases = 0;
    return target;
  }
  void map(std::uint64_t first, std::uint64_t pages = 1) {
    std::vector<Mapping> targets{new_target(first, pages)};
    std::vector<Mapping> stuck;
    ASSERT_TRUE(arena_->back(targets, kUnlimited, stuck).ok());
    arena_->commit(targets);
  }
  void move(std::uint64_t from, std::uint64_t to, const TicketSet& tickets = TicketSet()) {
    std::vector<Mapping> targets{moved_target(from, to)};
    std::vector<Mapping> stuck;
    ASSERT_TRUE(arena_->back(targets, 0, stuck).ok());
    arena_->relocate(targets.front(), tickets);
    arena_->check_invariants();
  }
  /// Gives back what lies at `page`.
  void give_back(std::uint64_t page) {
    const Mapping mapping = arena_->mapping_of(page);
    std::vector<Mapping> stuck;
    ASSERT_TRUE(arena_->unback(mapping, stuck).ok());
    arena_->withdraw(mapping);
    arena_->keep_stuck(stuck);
  }
  /// Returns how many pages of addresses were unmapped.
  std::uint64_t unmap_stale() {
    std::uint64_t pages = 0;
    for (const Stale& stale : arena_->take_stale(streams_, kUnlimited)) {
      EXPECT_TRUE(arena_->unmap(stale.address, stale.pages.count * kPageBytes).ok());
      arena_->end_stale({stale}, true);
      pages += stale.pages.count;
    }
    return pages;
  }
  void give_back_all() {
    for (std::uint64_t page = 0; page < arena_->high_water(); ++page) {
      if (arena_->is_backed(page)) give_back(page);
    }
    arena_->check_invariants();
    EXPECT_EQ(arena_->held_bytes(), device_.held_bytes());
  }

  /// Tickets of work that is unfinished until complete_all().
  TicketSet busy(std::initializer_list<StreamIndex> streams) {
    TicketSet tickets;
    for (const StreamIndex stream : streams) {
      SimulatedWork work;
      work.until_completed = true;
      EXPECT_TRUE(device_.launch(raw_[stream], work).ok());
      tickets.add(streams_.ticket(stream), streams_);
    }
    streams_.close_epochs();
    return tickets;
  }
  void complete_all() {
    device_.complete_all();
    streams_.poll();
  }

  std::vector<std::pair<std::uint64_t, std::uint64_t>> holes() const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> holes;
    for (const PageSpan& hole : arena_->holes()) holes.emplace_back(hole.first, hole.count);
    return holes;
  }
  using Holes = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

  static constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

  SimulatedBackend device_;
  FaultyBackend backend_{device_};
  Driver driver_{backend_, backend_.clock(), nullptr};
  std::unique_ptr<Arena> arena_;
  Epochs streams_{backend_};
  std::vector<RawStream> raw_;
  std::uint64_t refused_reservations_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_TESTS_UNIT_ARENA_FIXTURE_H_
