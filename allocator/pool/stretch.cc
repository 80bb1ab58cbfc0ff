#include "pool/stretch.h"

#include <algorithm>
#include <iterator>

#include "base/units.h"
#include "runs/run_table.h"

namespace gpupool::internal {
namespace {

/// The longest window that begins where a piece does, from the first to the last or from the last
/// to the first: pieces in a row that cost no more than `pages`, and of the next one what is left.
template <class Iterator, class Charged>
std::uint64_t longest_from(Iterator first, Iterator end, std::uint64_t pages, Charged charged) {
  std::uint64_t longest = 0;
  std::uint64_t units = 0;  // of [first, next)
  std::uint64_t left = pages;
  for (Iterator next = first; first != end; ++first) {
    for (; next != end && charged(*next) <= left; ++next) {
      units += next->end - next->start;
      left -= charged(*next);
    }
    longest = std::max(longest, units + (next == end ? 0 : left * kUnitsPerPage));
    if (next == first) {
      ++next;
      continue;
    }
    units -= first->end - first->start;
    left += charged(*first);
  }
  return longest;
}

}  // namespace

void Stretch::add(std::uint64_t start, std::uint64_t end, bool is_backed, Charge charge) {
  if (start == end) return;
  const bool may_join = charge != Charge::whole && !pieces_.empty();
  if (may_join && pieces_.back().is_backed == is_backed && pieces_.back().charge == charge) {
    pieces_.back().end = end;
    return;
  }
  const std::uint64_t before =
      pieces_.empty() ? 0 : pieces_.back().before + charged(pieces_.back());
  pieces_.push_back({start, end, is_backed, charge, before});
}

std::uint64_t Stretch::charged(const Piece& piece, std::uint64_t start,
                               std::uint64_t end) noexcept {
  if (piece.charge == Charge::nothing) return 0;
  if (piece.charge == Charge::whole) return (piece.end - piece.start) / kUnitsPerPage;
  return divide_up(std::min(end, piece.end), kUnitsPerPage) -
         std::max(start, piece.start) / kUnitsPerPage;
}

std::size_t Stretch::piece_at(std::uint64_t unit) const noexcept {
  const auto is_after = [](std::uint64_t at, const Piece& piece) { return at < piece.start; };
  const auto next = std::upper_bound(pieces_.begin(), pieces_.end(), unit, is_after);
  return static_cast<std::size_t>(next - pieces_.begin()) - 1;
}

std::uint64_t Stretch::cost(std::uint64_t start, std::uint64_t end) const noexcept {
  const Piece& first = pieces_[piece_at(start)];
  const Piece& last = pieces_[piece_at(end - 1)];
  if (&first == &last) return charged(first, start, end);
  const std::uint64_t between = last.before - first.before - charged(first);
  return charged(first, start, end) + between + charged(last, start, end);
}

Stretch::Window Stretch::best_window(std::uint32_t units, std::uint32_t align_units) const {
  Window best;
  const auto consider = [&](std::uint64_t at) {
    if (at < start() || at + units > end()) return;
    const std::uint64_t pages = cost(at, at + units);
    if (pages < best.cost || (pages == best.cost && at < best.start)) best = {at, pages};
  };
  // The cheapest begins or ends where a piece does.
  for (const Piece& piece : pieces_) {
    consider(first_place(piece.start, units, align_units));
    if (piece.end >= units) consider(last_place(piece.end - units, units, align_units));
  }
  return best;
}

std::uint64_t Stretch::longest_window(std::uint64_t pages) const {
  // One that begins and ends inside pieces that are charged may be shifted until it does not.
  const auto of = [](const Piece& piece) { return charged(piece); };
  return std::max(longest_from(pieces_.begin(), pieces_.end(), pages, of),
                  longest_from(pieces_.rbegin(), pieces_.rend(), pages, of));
}

}  // namespace gpupool::internal
