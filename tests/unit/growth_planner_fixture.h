// What the tests of growth plans share: an arena, its runs, and a planner over both.
#ifndef GPUPOOL_TESTS_UNIT_GROWTH_PLANNER_FIXTURE_H_
#define GPUPOOL_TESTS_UNIT_GROWTH_PLANNER_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

#include "pool/growth_planner.h"
#include "runs/run_table.h"
#include "tests/unit/arena_fixture.h"

namespace gpupool::internal {

class GrowthPlannerTest : public ArenaFixture {
 protected:
  explicit GrowthPlannerTest(std::uint64_t limit_pages = 2,
                             std::uint64_t device_bytes = std::uint64_t{1} << 30)
      : ArenaFixture(limit_pages, device_bytes) {
    const std::uint64_t units = arena_->page_capacity() * kUnitsPerPage;
    EXPECT_TRUE(runs_.reserve(units, units, arena_.get()));
    runs_.track_pages(true);
    for (StreamIndex i = 0; i < 3; ++i) runs_.know_stream(i);
  }

  /// Pages of one mapping, whose units are free for everybody.
  void add(std::uint64_t first, std::uint64_t pages = 1) {
    map(first, pages);
    runs_.set_end(arena_->high_water() * kUnitsPerPage);
    runs_.add(first * kUnitsPerPage, static_cast<std::uint32_t>(pages * kUnitsPerPage));
  }
  /// Takes units that are free.
  RunId take(std::uint64_t start, std::uint64_t units) {
    for (RunId id = 1; id < runs_.id_end(); ++id) {
      const auto& run = runs_[id];
      if (run.kind != RunKind::free || run.start > start || start + units > run.end()) continue;
      return runs_.take_at(id, start, static_cast<std::uint32_t>(units), RunKind::block);
    }
    ADD_FAILURE() << "not free";
    return 0;
  }
  /// Which goes about few holes as if they were many.
  GrowthPlanner planner() const { return {*arena_, runs_, 3}; }
  std::optional<GrowthPlan> plan(std::uint64_t units, std::uint32_t align_units = 1,
                                 bool may_extend = true, StreamIndex stream = 0) const {
    return planner().plan(static_cast<std::uint32_t>(units), align_units, stream, may_extend);
  }
  std::uint64_t largest(std::uint64_t pages) const { return planner().largest_units(pages); }
  static Holes spans(const GrowthPlan& plan) {
    Holes spans;
    for (const PageSpan& span : plan.spans) spans.emplace_back(span.first, span.count);
    return spans;
  }

  RunTable runs_{streams_, {}};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_TESTS_UNIT_GROWTH_PLANNER_FIXTURE_H_
