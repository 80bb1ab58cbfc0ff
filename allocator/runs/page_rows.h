// Rows of pages that do not overlap, as the places where one begins or ends: a bit each, which is
// there where as many rows begin as end on its left, but for one. A row so comes, goes and changes
// with two bits, however long it is, and which pages are in one is found by going over all bits.
//
// Thread safety: under the pool's lock. Cost: O(1); for_each_word() a few instructions for 64
// pages. No memory from the heap but what is reserved once, a bit a page.
#ifndef GPUPOOL_RUNS_PAGE_ROWS_H_
#define GPUPOOL_RUNS_PAGE_ROWS_H_

#include <cstdint>

#include "arena/page_span.h"
#include "base/lazy_array.h"

namespace gpupool::internal {

class PageRows {
 public:
  bool reserve(std::uint64_t pages) { return words_.reserve(pages / 64 + 1); }
  /// Adds a row, or takes it away. What borders on another is one row with it.
  void flip(PageSpan row) noexcept {
    flip(row.first);
    flip(row.end());
  }
  /// What was `from` is `to`.
  void change(PageSpan from, PageSpan to) noexcept {
    if (from.first != to.first) {
      flip(from.first);
      flip(to.first);
    }
    if (from.end() != to.end()) {
      flip(from.end());
      flip(to.end());
    }
  }
  /// Takes away all rows below `end`, above which there is none.
  void clear(std::uint64_t end) noexcept {
    for (std::uint64_t word = 0; word <= end / 64; ++word) words_[word] = 0;
  }
  /// Calls `visit(first, bits)` for each 64 pages from `first` on of which some are in a row, up to
  /// `end`.
  template <class Visit>
  void for_each_word(std::uint64_t end, Visit visit) const {
    std::uint64_t before = 0;  // all ones where a row goes on from the word before
    for (std::uint64_t first = 0; first < end; first += 64) {
      std::uint64_t bits = words_[first / 64];
      // Of each bit the parity of it and all below it.
      for (unsigned shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
      bits ^= before;
      before = 0 - (bits >> 63);
      if (bits != 0) visit(first, bits);
    }
  }

 private:
  void flip(std::uint64_t page) noexcept { words_[page / 64] ^= std::uint64_t{1} << page % 64; }

  LazyArray<std::uint64_t> words_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_RUNS_PAGE_ROWS_H_
