// Where free runs lie side by side that stay apart, since not the same streams may use them: what
// makes a stretch of free runs longer than each of them.
//
//   a border between two free runs is noted;   one that is noted may be none any more
//
// Runs note a border where it comes about, which is seldom, and say nothing where it goes, which
// may be with any of two neighbours that is taken: whoever looks at all of them drops what is over.
// Three levels of bits, a bit of one for a word of the one below.
//
// Thread safety: under the pool's lock. Cost: note() O(1), and no memory from the heap; a look at
// all a step for each that is noted, and one for each 2^18 units. Memory: a bit for each unit of
// the parts of the arena that ever had one.
#ifndef GPUPOOL_RUNS_SEAMS_H_
#define GPUPOOL_RUNS_SEAMS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/lazy_array.h"

namespace gpupool::internal {

class Seams {
 public:
  enum class Is : std::uint8_t { there, over };

  bool reserve(std::uint64_t unit_capacity) {
    std::uint64_t words = unit_capacity / 64 + 1;
    for (LazyArray<std::uint64_t>& level : levels_) {
      if (!level.reserve(words)) return false;
      words = words / 64 + 1;
    }
    return true;
  }
  /// The border before `unit`.
  void note(std::uint64_t unit) noexcept {
    end_ = std::max(end_, unit + 1);
    for (LazyArray<std::uint64_t>& level : levels_) {
      std::uint64_t& word = level[unit / 64];
      const bool was_empty = word == 0;
      word |= std::uint64_t{1} << unit % 64;
      if (!was_empty) return;
      unit /= 64;
    }
  }
  bool has(std::uint64_t unit) const noexcept {
    return (levels_[0][unit / 64] >> unit % 64 & 1) != 0;
  }
  /// Calls `visit(unit)` for each, which says whether it is there, by rising address.
  template <class Visit>
  void for_each(Visit visit) {
    const std::uint64_t words = (end_ + kTopUnits - 1) / kTopUnits;
    for (std::uint64_t word = 0; word < words; ++word) look(kLevels - 1, word, visit);
  }

 private:
  static constexpr std::size_t kLevels = 3;
  static constexpr std::uint64_t kTopUnits = std::uint64_t{64} * 64 * 64;  // of a word on top

  template <class Visit>
  void look(std::size_t level, std::uint64_t index, Visit& visit) {
    std::uint64_t& word = levels_[level][index];
    for (std::uint64_t left = word; left != 0; left &= left - 1) {
      const auto bit = static_cast<unsigned>(std::countr_zero(left));
      const std::uint64_t below = index * 64 + bit;
      bool is_over = false;
      if (level == 0) {
        is_over = visit(below) == Is::over;
      } else {
        look(level - 1, below, visit);
        is_over = levels_[level - 1][below] == 0;
      }
      if (is_over) word &= ~(std::uint64_t{1} << bit);
    }
  }

  std::array<LazyArray<std::uint64_t>, kLevels> levels_;
  std::uint64_t end_ = 0;  // past the highest that was ever noted
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_RUNS_SEAMS_H_
