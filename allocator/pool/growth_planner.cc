#include "pool/growth_planner.h"

#include <algorithm>

#include "base/units.h"

namespace gpupool::internal {

using Charge = Stretch::Charge;

template <class Holes, class Visit>
void GrowthPlanner::for_each_stretch(const Holes& holes, StreamIndex stream, bool may_extend,
                                     Spared spared, Visit visit) const {
  Stretch stretch;
  const auto add = [&](PageSpan hole) {
    if (hole.count == 0) return;
    const std::uint64_t start = hole.first * kUnitsPerPage;
    const std::uint64_t end = hole.end() * kUnitsPerPage;
    if (stretch.is_empty() || stretch.end() != start) {
      if (!stretch.is_empty()) visit(stretch);
      stretch.clear();
      const std::uint64_t before = may_extend ? runs_.usable_units_before(start, stream) : 0;
      add_backed(start - before, start, spared, stretch);
    }
    stretch.add(start, end, false, Charge::by_page);
    const std::uint64_t after = may_extend ? runs_.usable_units_after(end, stream) : 0;
    add_backed(end, end + after, spared, stretch);
  };
  for (const PageSpan& hole : holes) add(hole);
  add(arena_.tail());
  if (!stretch.is_empty()) visit(stretch);
}

void GrowthPlanner::add_backed(std::uint64_t start, std::uint64_t end, Spared spared,
                               Stretch& stretch) const {
  if (spared == Spared::nothing) return stretch.add(start, end, true, Charge::nothing);
  for (std::uint64_t unit = start; unit < end;) {
    const RunId id = runs_.free_at(unit);
    const Run& run = runs_[id];
    const std::uint64_t last_page = run.end() / kUnitsPerPage;
    for (std::uint64_t page = divide_up(unit, kUnitsPerPage); page < last_page;) {
      const Mapping& mapping = arena_.mapping_of(page);
      const PageSpan pages = mapping.pages;
      page = pages.end();
      const bool is_spared =
          pages.first * kUnitsPerPage >= unit && pages.end() <= last_page &&
          (spared == Spared::whole || (run.holder == kAnybody && runs_.are_idle(id, pages)));
      if (!is_spared) continue;
      stretch.add(unit, pages.first * kUnitsPerPage, true, Charge::nothing);
      stretch.add(pages.first * kUnitsPerPage, pages.end() * kUnitsPerPage, true,
                  pages.count == 1 ? Charge::by_page : Charge::whole);
      unit = pages.end() * kUnitsPerPage;
    }
    stretch.add(unit, run.end(), true, Charge::nothing);
    unit = run.end();
  }
}

std::uint64_t GrowthPlanner::empty_pages(std::uint64_t start, std::uint64_t end_unit,
                                         PageSpan window) const {
  std::uint64_t pages = 0;
  for (std::uint64_t unit = start; unit < end_unit;) {
    const Run& run = runs_[runs_.free_at(unit)];
    unit = run.end();
    if (run.holder != kAnybody) continue;
    // A handle that begins or ends in the window is occupied as a whole.
    std::uint64_t first = divide_up(run.start, kUnitsPerPage);
    std::uint64_t end = run.end() / kUnitsPerPage;
    if (first >= end || first >= window.end() || end <= window.first) continue;
    if (first < window.first) first = std::max(first, arena_.mapping_of(window.first).pages.first);
    if (end > window.end()) end = std::min(end, arena_.mapping_of(window.end() - 1).pages.end());
    pages += arena_.whole_pages(first, end);
  }
  return pages;
}

std::optional<GrowthPlan> GrowthPlanner::plan(std::uint32_t units, std::uint32_t align_units,
                                              StreamIndex stream, bool may_extend,
                                              Spared spared) const {
  if (!arena_.is_contiguous()) {
    const auto pages = arena_.find_unbacked(divide_up(units, kUnitsPerPage));
    if (!pages.has_value()) return std::nullopt;
    return GrowthPlan{{*pages}, pages->count, *pages, pages->count, pages->count};
  }
  Stretch::Window best;
  Stretch around;
  for_each_stretch(arena_.holes(), stream, may_extend, spared, [&](const Stretch& stretch) {
    if (stretch.end() - stretch.start() < units) return;
    const Stretch::Window window = stretch.best_window(units, align_units);
    if (window.cost >= best.cost) return;
    best = window;
    around = stretch;
  });
  if (around.is_empty()) return std::nullopt;
  GrowthPlan plan;
  const std::uint64_t end = best.start + units;
  plan.window.first = best.start / kUnitsPerPage;
  plan.window.count = divide_up(end, kUnitsPerPage) - plan.window.first;
  plan.exact_pages = divide_up(units, kUnitsPerPage);
  std::uint64_t backed_start = around.start();
  for (const Stretch::Piece& piece : around.pieces()) {
    if (piece.is_backed) continue;
    plan.fresh_pages += empty_pages(backed_start, piece.start, plan.window);
    backed_start = piece.end;
    if (piece.end <= best.start || piece.start >= end) continue;
    const std::uint64_t first = std::max(best.start, piece.start) / kUnitsPerPage;
    plan.spans.push_back({first, divide_up(std::min(end, piece.end), kUnitsPerPage) - first});
    plan.pages += plan.spans.back().count;
  }
  plan.fresh_pages += empty_pages(backed_start, around.end(), plan.window) + plan.pages;
  return plan;
}

std::optional<std::uint64_t> GrowthPlanner::fewest_pages_later(std::uint32_t units,
                                                               StreamIndex stream) const {
  Stretch::Window best;
  for_each_stretch(arena_.holes_once_unmapped(), stream, true, Spared::whole,
                   [&](const Stretch& stretch) {
                     if (stretch.end() - stretch.start() < units) return;
                     best.cost = std::min(best.cost, stretch.best_window(units, 1).cost);
                   });
  if (best.cost == Stretch::Window().cost) return std::nullopt;
  return best.cost;
}

std::uint64_t GrowthPlanner::largest_units(std::uint64_t pages) const {
  std::uint64_t largest = 0;
  if (pages == 0) return 0;
  if (!arena_.is_contiguous()) {
    return arena_.find_unbacked(pages).has_value() ? pages * kUnitsPerPage : 0;
  }
  for_each_stretch(arena_.holes(), kAnybody, true, Spared::nothing, [&](const Stretch& stretch) {
    largest = std::max(largest, stretch.longest_window(pages));
  });
  return largest;
}

}  // namespace gpupool::internal
