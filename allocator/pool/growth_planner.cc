#include "pool/growth_planner.h"

#include <algorithm>

#include "base/units.h"

namespace gpupool::internal {

using Charge = Stretch::Charge;

GrowthPlan plan_of(PageSpan segment) {
  GrowthPlan plan;
  plan.spans = {segment};
  plan.window = segment;
  plan.pages = plan.charged_pages = plan.fresh_pages = segment.count;
  return plan;
}

void GrowthPlanner::begin_at(PageSpan hole, const Search& search, Stretch& stretch) const {
  const std::uint64_t start = hole.first * kUnitsPerPage;
  const std::uint64_t before =
      search.may_extend ? runs_.usable_units_before(start, search.stream) : 0;
  stretch.clear();
  add_backed(start - before, start, search.spared, stretch);
}

void GrowthPlanner::add_hole(PageSpan hole, const Search& search, Stretch& stretch) const {
  const std::uint64_t end = hole.end() * kUnitsPerPage;
  stretch.add(hole.first * kUnitsPerPage, end, false, Charge::by_page);
  const std::uint64_t after = search.may_extend ? runs_.usable_units_after(end, search.stream) : 0;
  add_backed(end, end + after, search.spared, stretch);
}

template <class Holes, class Visit>
void GrowthPlanner::for_each_stretch(const Holes& holes, const Search& search, Visit visit) const {
  Stretch stretch;
  const auto add = [&](PageSpan hole) {
    if (hole.count == 0) return;
    if (stretch.is_empty() || stretch.end() != hole.first * kUnitsPerPage) {
      if (!stretch.is_empty()) visit(stretch);
      begin_at(hole, search, stretch);
    }
    add_hole(hole, search, stretch);
  };
  for (const PageSpan& hole : holes) add(hole);
  add(arena_.tail());
  if (!stretch.is_empty()) visit(stretch);
}

PageSpan GrowthPlanner::hole_at(std::uint64_t page) const {
  const PageSpan tail = arena_.tail();
  if (page == tail.first) return tail;
  if (arena_.is_backed(page)) return {};
  return arena_.holes().starting_at(page).value_or(PageSpan());
}

std::optional<PageSpan> GrowthPlanner::hole_before(std::uint64_t unit) const {
  const std::uint64_t page = unit / kUnitsPerPage;
  if (unit % kUnitsPerPage != 0 || page == 0 || arena_.is_backed(page - 1)) return std::nullopt;
  return arena_.holes().ending_at(page);
}

void GrowthPlanner::make_stretch(PageSpan hole, const Search& search, Stretch& stretch) const {
  // From its first hole on.
  for (std::optional<PageSpan> before = hole; before.has_value();) {
    hole = *before;
    std::uint64_t start = hole.first * kUnitsPerPage;
    if (search.may_extend) start -= runs_.usable_units_before(start, search.stream);
    before = hole_before(start);
  }
  begin_at(hole, search, stretch);
  while (hole.count > 0) {
    add_hole(hole, search, stretch);
    if (stretch.end() % kUnitsPerPage != 0) break;
    hole = hole_at(stretch.end() / kUnitsPerPage);
  }
}

bool GrowthPlanner::add_holes_beside_runs(std::uint64_t units, StreamIndex stream,
                                          std::vector<std::uint64_t>& holes) const {
  std::size_t left = arena_.holes().size();
  return runs_.for_each_usable(static_cast<std::uint32_t>(units), stream, [&](RunId id) {
    if (left-- == 0) return false;
    const Run& run = runs_[id];
    const std::uint64_t start = run.start - runs_.usable_units_before(run.start, stream);
    const std::uint64_t end = run.end() + runs_.usable_units_after(run.end(), stream);
    if (const auto before = hole_before(start)) holes.push_back(before->first);
    if (end % kUnitsPerPage == 0) {
      const PageSpan after = hole_at(end / kUnitsPerPage);
      if (after.count > 0) holes.push_back(after.first);
    }
    return true;
  });
}

template <class Visit>
void GrowthPlanner::for_each_stretch_at(std::vector<std::uint64_t>& holes, const Search& search,
                                        Visit visit) const {
  std::sort(holes.begin(), holes.end());
  Stretch stretch;
  std::uint64_t end = 0;
  for (const std::uint64_t first : holes) {
    const PageSpan hole = hole_at(first);
    if (hole.count == 0 || first * kUnitsPerPage < end) continue;
    make_stretch(hole, search, stretch);
    end = stretch.end();
    visit(stretch);
  }
}

template <class Visit>
void GrowthPlanner::for_each_likely(std::uint32_t units, const Search& search, Visit visit) const {
  const HoleList& all = arena_.holes();
  // Note [Stretches that matter] in the header.
  const std::uint64_t pages = divide_up(units, kUnitsPerPage);
  const std::uint64_t beyond = units - (pages - 1) * kUnitsPerPage;
  std::vector<std::uint64_t> holes{arena_.tail().first};
  if (const auto hole = all.find_first(pages)) holes.push_back(hole->first);
  const bool is_known =
      all.size() > few_holes_ &&
      (!search.may_extend || add_holes_beside_runs((beyond + 1) / 2, search.stream, holes));
  if (is_known) return for_each_stretch_at(holes, search, visit);
  for_each_stretch(all, search, visit);
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
    return plan_of(*pages);
  }
  Stretch::Window best;
  Stretch around;
  for_each_likely(units, {stream, may_extend, spared}, [&](const Stretch& stretch) {
    if (stretch.end() - stretch.start() < units) return;
    const Stretch::Window window = stretch.best_window(units, align_units);
    if (window.cost >= best.cost) return;
    best = window;
    around = stretch;
  });
  if (around.is_empty()) return std::nullopt;
  GrowthPlan plan;
  plan.charged_pages = best.cost;
  const std::uint64_t end = best.start + units;
  plan.window.first = best.start / kUnitsPerPage;
  plan.window.count = divide_up(end, kUnitsPerPage) - plan.window.first;
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
  const Search search{stream, true, Spared::whole};
  const auto look = [&](const Stretch& stretch) {
    if (stretch.end() - stretch.start() < units) return;
    best.cost = std::min(best.cost, stretch.best_window(units, 1).cost);
  };
  if (arena_.stale_pages() == 0) {
    for_each_likely(units, search, look);
  } else {
    for_each_stretch(arena_.holes_once_unmapped(), search, look);
  }
  if (best.cost == Stretch::Window().cost) return std::nullopt;
  return best.cost;
}

std::uint64_t GrowthPlanner::largest_units(std::uint64_t pages) const {
  std::uint64_t largest = 0;
  if (pages == 0) return 0;
  if (!arena_.is_contiguous()) {
    return arena_.find_unbacked(pages).has_value() ? pages * kUnitsPerPage : 0;
  }
  const Search search{kAnybody, true, Spared::nothing};
  const auto look = [&](const Stretch& stretch) {
    largest = std::max(largest, stretch.longest_window(pages));
  };
  const HoleList& all = arena_.holes();
  const std::uint64_t most = std::min(all.longest(), pages);
  std::vector<std::uint64_t> holes{arena_.tail().first};
  if (most > 0) holes.push_back(all.find_first(most)->first);
  for_each_stretch_at(holes, search, look);
  // Of those that are left, one with shorter runs than these beside its hole is no longer.
  const std::uint64_t beyond = (largest - std::min(largest, most * kUnitsPerPage)) / 2 + 1;
  const std::uint64_t units = std::min<std::uint64_t>(beyond, kUnitsPerPage);
  if (all.size() > few_holes_ && add_holes_beside_runs(units, kAnybody, holes)) {
    for_each_stretch_at(holes, search, look);
  } else {
    for_each_stretch(all, search, look);
  }
  return largest;
}

}  // namespace gpupool::internal
