#include "pool/growth_planner.h"

#include <algorithm>

#include "base/units.h"

namespace gpupool::internal {
namespace {

/// A stretch of more pieces than this is looked at in parts: the cost of a look is its square.
constexpr std::size_t kMaxPieces = 32;

}  // namespace

template <class Visit>
void GrowthPlanner::for_each_stretch(StreamIndex stream, bool may_extend, Visit visit) const {
  const std::vector<PageSpan>& holes = arena_.holes();
  const PageSpan tail = arena_.tail();
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i <= holes.size(); ++i) {
    const PageSpan hole = i < holes.size() ? holes[i] : tail;
    if (hole.count == 0) continue;
    const std::uint64_t start = hole.first * kUnitsPerPage;
    const std::uint64_t end = hole.end() * kUnitsPerPage;
    const bool goes_on = !pieces.empty() && pieces.back().end == start;
    if (!goes_on || pieces.size() >= kMaxPieces) {
      if (!pieces.empty()) visit(pieces);
      pieces.clear();
      const std::uint64_t before = may_extend ? runs_.usable_units_before(start, stream) : 0;
      if (before > 0) pieces.push_back({start - before, start, true});
    }
    pieces.push_back({start, end, false});
    const std::uint64_t after = may_extend ? runs_.usable_units_after(end, stream) : 0;
    if (after > 0) pieces.push_back({end, end + after, true});
  }
  if (!pieces.empty()) visit(pieces);
}

std::uint64_t GrowthPlanner::unbacked_pages(const std::vector<Piece>& pieces, std::uint64_t start,
                                            std::uint64_t end) {
  std::uint64_t pages = 0;
  for (const Piece& piece : pieces) {
    if (piece.is_backed || piece.end <= start || piece.start >= end) continue;
    pages += divide_up(std::min(end, piece.end), kUnitsPerPage) -
             std::max(start, piece.start) / kUnitsPerPage;
  }
  return pages;
}

std::uint64_t GrowthPlanner::unshared_pages(const std::vector<Piece>& pieces, PageSpan window) {
  // Where the stretch begins or ends inside a page of the window, the rest of that is somebody's.
  const std::uint64_t first = pieces.front().start;
  const std::uint64_t last = pieces.back().end;
  const bool shares_first = first % kUnitsPerPage != 0 && first / kUnitsPerPage == window.first;
  const bool shares_last = last % kUnitsPerPage != 0 && last / kUnitsPerPage == window.end() - 1;
  const bool is_one = shares_first && shares_last && window.count == 1;
  return window.count - (shares_first ? 1 : 0) - (shares_last && !is_one ? 1 : 0);
}

std::uint64_t GrowthPlanner::empty_pages(const Piece& piece, PageSpan window) const {
  std::uint64_t pages = 0;
  for (std::uint64_t unit = piece.start; unit < piece.end;) {
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

GrowthPlanner::Window GrowthPlanner::best_window(const std::vector<Piece>& pieces,
                                                 std::uint32_t units, std::uint32_t align_units) {
  Window best;
  const std::uint64_t first = pieces.front().start;
  const std::uint64_t last = pieces.back().end;
  const auto consider = [&](std::uint64_t start) {
    if (start < first || start + units > last) return;
    const std::uint64_t pages = unbacked_pages(pieces, start, start + units);
    if (pages < best.pages || (pages == best.pages && start < best.start)) best = {start, pages};
  };
  // One that needs the fewest begins or ends where a piece does.
  for (const Piece& piece : pieces) {
    consider(first_place(piece.start, units, align_units));
    if (piece.end >= units) consider(last_place(piece.end - units, units, align_units));
  }
  return best;
}

std::optional<GrowthPlan> GrowthPlanner::plan(std::uint32_t units, std::uint32_t align_units,
                                              StreamIndex stream, bool may_extend) const {
  if (!arena_.is_contiguous()) {
    const auto pages = arena_.find_unbacked(divide_up(units, kUnitsPerPage));
    if (!pages.has_value()) return std::nullopt;
    return GrowthPlan{{*pages}, pages->count, *pages, pages->count, pages->count, pages->count};
  }
  Window best;
  std::vector<Piece> around;
  for_each_stretch(stream, may_extend, [&](const std::vector<Piece>& pieces) {
    if (pieces.back().end - pieces.front().start < units) return;
    const Window window = best_window(pieces, units, align_units);
    if (window.pages >= best.pages) return;
    best = window;
    around = pieces;
  });
  if (around.empty()) return std::nullopt;
  GrowthPlan plan;
  plan.pages = best.pages;
  const std::uint64_t end = best.start + units;
  plan.window.first = best.start / kUnitsPerPage;
  plan.window.count = divide_up(end, kUnitsPerPage) - plan.window.first;
  plan.exact_pages = divide_up(units, kUnitsPerPage);
  plan.unshared_pages = unshared_pages(around, plan.window);
  plan.fresh_pages = plan.pages;
  for (const Piece& piece : around) {
    if (piece.end <= best.start || piece.start >= end) continue;
    if (piece.is_backed) {
      plan.fresh_pages += empty_pages(piece, plan.window);
      continue;
    }
    const std::uint64_t first = std::max(best.start, piece.start) / kUnitsPerPage;
    plan.spans.push_back({first, divide_up(std::min(end, piece.end), kUnitsPerPage) - first});
  }
  return plan;
}

template <class Iterator>
std::uint64_t GrowthPlanner::longest_from_pieces(Iterator first, Iterator end,
                                                 std::uint64_t pages) {
  std::uint64_t longest = 0;
  for (; first != end; ++first) {
    std::uint64_t left = pages;
    std::uint64_t units = 0;
    for (Iterator piece = first; piece != end; ++piece) {
      const std::uint64_t here = piece->end - piece->start;
      const std::uint64_t taken = piece->is_backed ? here : std::min(here, left * kUnitsPerPage);
      units += taken;
      if (taken < here) break;
      if (!piece->is_backed) left -= taken / kUnitsPerPage;
    }
    longest = std::max(longest, units);
  }
  return longest;
}

std::uint64_t GrowthPlanner::largest_units(std::uint64_t pages) const {
  std::uint64_t largest = 0;
  if (pages == 0) return 0;
  if (!arena_.is_contiguous()) {
    return arena_.find_unbacked(pages).has_value() ? pages * kUnitsPerPage : 0;
  }
  for_each_stretch(kAnybody, true, [&](const std::vector<Piece>& pieces) {
    // One that begins and ends inside holes may be shifted until it does not.
    largest = std::max(largest, longest_from_pieces(pieces.begin(), pieces.end(), pages));
    largest = std::max(largest, longest_from_pieces(pieces.rbegin(), pieces.rend(), pages));
  });
  return largest;
}

}  // namespace gpupool::internal
