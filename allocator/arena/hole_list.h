// The unbacked stretches of an arena below its high-water mark, by rising address: what lies where,
// and which is the first that is long enough.
//
//   holes are disjoint, and joined: between two of them lies at least a page
//   a block has 1 to kMost holes in a row, and knows its first page and its longest hole
//
// Blocks instead of a tree, since a walk over all of them in order, and a look at the longest of
// each, are to be quick.
//
// Thread safety: under the pool's lock. Cost: of n holes, add(), remove() and what looks at a place
// O(log n + kMost) and a step for each block where one is split or joined; find_first() a step for
// each block. Memory: 16 bytes a hole, and at most as much again.
#ifndef GPUPOOL_ARENA_HOLE_LIST_H_
#define GPUPOOL_ARENA_HOLE_LIST_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "arena/page_span.h"

namespace gpupool::internal {

class HoleList {
  struct Block {
    std::uint64_t first = 0;
    std::uint64_t longest = 0;
    std::vector<PageSpan> holes;
  };

 public:
  static constexpr std::size_t kMost = 128;

  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = PageSpan;
    using difference_type = std::ptrdiff_t;
    using pointer = const PageSpan*;
    using reference = const PageSpan&;

    Iterator(const std::vector<Block>& blocks, std::size_t block) noexcept
        : blocks_(&blocks), block_(block) {}
    reference operator*() const noexcept { return (*blocks_)[block_].holes[at_]; }
    pointer operator->() const noexcept { return &**this; }
    Iterator& operator++() noexcept {
      if (++at_ == (*blocks_)[block_].holes.size()) {
        at_ = 0;
        ++block_;
      }
      return *this;
    }
    bool operator==(const Iterator& other) const noexcept {
      return block_ == other.block_ && at_ == other.at_;
    }

   private:
    const std::vector<Block>* blocks_;
    std::size_t block_;
    std::size_t at_ = 0;
  };

  /// These pages are a hole now, or part of one. Requires: none of them was.
  void add(PageSpan pages);
  /// They are none any more. Requires: they are all of a hole, or part of one.
  void remove(PageSpan pages);

  std::size_t size() const noexcept { return size_; }
  Iterator begin() const noexcept { return {blocks_, 0}; }
  Iterator end() const noexcept { return {blocks_, blocks_.size()}; }
  /// The lowest of at least `pages` pages.
  std::optional<PageSpan> find_first(std::uint64_t pages) const noexcept;
  /// How many pages the longest has; 0 where there is none.
  std::uint64_t longest() const noexcept;
  /// The hole that ends just before `page`, or begins there.
  std::optional<PageSpan> ending_at(std::uint64_t page) const noexcept;
  std::optional<PageSpan> starting_at(std::uint64_t page) const noexcept;

  std::uint64_t metadata_bytes() const noexcept;
  /// Returns how many pages there are in sum.
  std::uint64_t check_invariants() const;

 private:
  struct Place {
    std::size_t block = 0;
    std::size_t at = 0;
  };
  /// The last that begins at `page` or before.
  std::optional<Place> last_up_to(std::uint64_t page) const noexcept;
  std::optional<Place> next(std::optional<Place> place) const noexcept;
  /// Behind `before`, or before all others.
  void insert(PageSpan hole, std::optional<Place> before);
  void set(Place place, PageSpan hole);
  void erase(Place place);
  void update(std::size_t block);
  const PageSpan& hole_at(Place place) const noexcept {
    return blocks_[place.block].holes[place.at];
  }

  std::vector<Block> blocks_;
  std::size_t size_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_ARENA_HOLE_LIST_H_
