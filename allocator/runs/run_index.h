// Free runs in order of (units, start): the smallest that is long enough, lowest address first.
//
// Runs stand in bins by their length: a bin of its own for each length up to 64 units, then 32 bins
// a doubling. A bitmap of the bins, and one of its words, tell which are not empty (as the two
// levels of TLSF: Masmano, Ripoll, Crespo and Real, ECRTS 2004).
//
// A bin is a list in no order, until a search meets more than kMaxListed runs in it: that search
// makes it a treap, which it stays until it is empty. Most bins hold few runs, and pieces that are
// too short for anybody may be many, but are put in and taken out by their neighbours alone and
// never searched. Treap: a binary tree by (units, start) in which each node's priority (a hash of
// its start) is above its children's (Seidel and Aragon, "Randomized Search Trees", Algorithmica 16
// (1996)).
//
//   bit b of the bitmap is set <=> bin b has a root;   bit w of the summary <=> word w is not 0
//
// Links lie in the runs: of a list, `parent` is the one before and `right` the one after.
//
// Thread safety: under the pool's lock, const calls included: they may order a bin. Cost: O(1) in a
// list, expected O(log(runs in the bin)) in a treap, O(1) to take out of either; making a treap
// costs each run that was put in what a treap would have cost at once. No memory of its own but the
// bins, 4 KiB.
#ifndef GPUPOOL_RUNS_RUN_INDEX_H_
#define GPUPOOL_RUNS_RUN_INDEX_H_

#include <array>
#include <bit>
#include <cstdint>

#include "base/check.h"
#include "base/lazy_array.h"
#include "runs/run.h"

namespace gpupool::internal {

class RunIndex {
 public:
  static constexpr std::uint32_t kMaxListed = 8;

  explicit RunIndex(LazyArray<Run>& runs) noexcept : runs_(&runs) {}

  void insert(RunId id) { insert(id, (*runs_)[id]); }
  /// `run` is that of `id`, for callers that have it at hand.
  void insert(RunId id, Run& run) {
    const std::uint32_t bin = bin_of(run.units);
    run.bin = static_cast<std::uint16_t>(bin);
    const RunId root = roots_[bin];
    if ((root & kTree) != 0) return insert_in_tree(id);
    run.left = 0;
    run.right = root;
    run.parent = 0;
    roots_[bin] = id;
    if (root != 0) {
      (*runs_)[root].parent = id;
    } else {
      words_[bin / 64] |= std::uint64_t{1} << bin % 64;
      summary_ |= std::uint32_t{1} << bin / 64;
    }
  }
  /// Requires: `id` is in this index; its start and units may have changed since.
  void erase(RunId id) { erase(id, (*runs_)[id]); }
  void erase(RunId id, const Run& run) {
    const std::uint32_t bin = run.bin;
    if ((run.left | run.right | run.parent) != 0) return erase_beside_others(id);
    GPUPOOL_CHECK((roots_[bin] & ~kTree) == id);
    roots_[bin] = 0;
    const std::uint64_t left = words_[bin / 64] & ~(std::uint64_t{1} << bin % 64);
    words_[bin / 64] = left;
    if (left == 0) summary_ &= ~(std::uint32_t{1} << bin / 64);
  }
  /// Whether `run`, which is in this index, may have `units` units without being moved.
  bool stays(const Run& run, std::uint32_t units) const noexcept {
    return bin_of(units) == run.bin && (roots_[run.bin] & kTree) == 0;
  }
  /// The first with at least `units` units, 0 if none.
  [[gnu::always_inline]] RunId find_at_least(std::uint32_t units) const {
    const std::uint32_t bin = bin_of(units);
    if (roots_[bin] != 0) {
      if (const RunId found = first_in(bin, units); found != 0) return found;
    }
    return first_of_bins_from(bin + 1);
  }
  /// A walk over all in no order, until 0; the run it has come to may be erased once the next one
  /// is known.
  RunId first_walked() const noexcept { return first_walked_from(0); }
  RunId next_walked(RunId id) const noexcept;
  /// The one after `id` in order, 0 if none.
  RunId after(RunId id) const;
  /// Of the last one in order, 0 if there is none.
  std::uint32_t longest_units() const;
  bool empty() const noexcept { return summary_ == 0; }
  /// Ends the program if bitmaps, bins and trees contradict each other; gives how many runs it
  /// finds by way of the bitmaps, which the caller compares with how many there should be.
  std::uint64_t check_invariants() const;

  // For tests of the bins' edges.
  static constexpr std::uint32_t bin_of(std::uint32_t units) noexcept {
    // Below kExactUnits nothing is shifted; the bit that is set there spares the question.
    const auto shift =
        static_cast<std::uint32_t>(std::bit_width(units | kExactUnits / 2)) - kStepBits - 1;
    return (shift << kStepBits) + (units >> shift);
  }

 private:
  static constexpr std::uint32_t kStepBits = 5;
  static constexpr std::uint32_t kExactUnits = 2 << kStepBits;
  static constexpr std::uint32_t kBinCount = (32 - kStepBits + 1) << kStepBits;
  static constexpr std::uint32_t kWordCount = kBinCount / 64;
  /// In the root of a bin: it is a treap.
  static constexpr RunId kTree = RunId{1} << 31;

  /// The first of a bin that is not empty with at least `units` units, 0 if none.
  RunId first_in(std::uint32_t bin, std::uint32_t units) const {
    const RunId root = roots_[bin];
    if ((root & kTree) == 0) {
      const Run& run = (*runs_)[root];
      if (run.right == 0) return run.units >= units ? root : 0;
    }
    return first_of_several(bin, units);
  }
  /// The first bin from `bin` on that is not empty, kBinCount if there is none.
  std::uint32_t bin_from(std::uint32_t bin) const noexcept {
    if (bin >= kBinCount) return kBinCount;
    std::uint32_t word = bin / 64;
    std::uint64_t bits = words_[word] >> bin % 64 << bin % 64;
    if (bits == 0) {
      const std::uint32_t later = summary_ >> word >> 1;
      if (later == 0) return kBinCount;
      word += 1 + static_cast<std::uint32_t>(std::countr_zero(later));
      bits = words_[word];
    }
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
  }
  /// The first of all whose bin is `bin` or a later one, 0 if none.
  RunId first_of_bins_from(std::uint32_t bin) const {
    const std::uint32_t found = bin_from(bin);
    return found < kBinCount ? first_in(found, 0) : 0;
  }
  RunId first_of_several(std::uint32_t bin, std::uint32_t units) const;
  RunId first_in_tree(std::uint32_t bin, std::uint32_t units) const;
  RunId first_walked_from(std::uint32_t bin) const noexcept;
  RunId leftmost(RunId node) const noexcept;
  RunId next_in_tree(RunId id) const noexcept;
  bool is_long_list(std::uint32_t bin) const;
  void make_tree(std::uint32_t bin) const;
  void insert_in_tree(RunId id) const;
  void erase_beside_others(RunId id);
  void erase_from_tree(RunId id);
  std::uint64_t check_list(std::uint32_t bin) const;
  std::uint64_t check_tree(RunId node, RunId parent, std::uint32_t bin, const Run*& before) const;

  LazyArray<Run>* runs_;
  std::uint32_t summary_ = 0;
  std::array<std::uint64_t, kWordCount> words_{};
  mutable std::array<RunId, kBinCount> roots_{};  // a search may order a bin
};

static_assert(RunIndex::bin_of(63) == 63 && RunIndex::bin_of(64) == 64);
static_assert(RunIndex::bin_of(65) == 64 && RunIndex::bin_of(66) == 65);
static_assert(RunIndex::bin_of(127) == 95 && RunIndex::bin_of(128) == 96);

}  // namespace gpupool::internal

#endif  // GPUPOOL_RUNS_RUN_INDEX_H_
