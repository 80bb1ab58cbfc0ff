// Free runs in order of (units, start): the smallest that is long enough, lowest address first.
//
// Runs stand in bins by their length: a bin of its own for each length up to 64 units, then 32 bins
// a doubling. A bitmap of the bins, and one of its words, tell which are not empty (as the two
// levels of TLSF: Masmano, Ripoll, Crespo and Real, ECRTS 2004). Few runs share a bin; those that
// do are a treap: a binary tree by (units, start) in which each node's priority (a hash of its
// start) is above its children's (Seidel and Aragon, "Randomized Search Trees", Algorithmica 16
// (1996)). So best fit is exact, and hardly ever more than a bit operation away.
//
//   bit b of the bitmap is set <=> bin b has a root;   bit w of the summary <=> word w is not 0
//
// Thread safety: under the pool's lock. Cost: expected O(1 + log(runs in the bin)) to put in and to
// find, O(1) to take out; no memory of its own but the bins, 4 KiB. The links lie in the runs.
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
  explicit RunIndex(LazyArray<Run>& runs) noexcept : runs_(&runs) {}

  void insert(RunId id) { insert(id, (*runs_)[id]); }
  /// `run` is that of `id`, for callers that have it at hand.
  void insert(RunId id, Run& run) {
    const std::uint32_t bin = bin_of(run.units);
    run.bin = static_cast<std::uint16_t>(bin);
    RunId& root = roots_[bin];
    if (root != 0) return insert_below(root, id);
    root = id;
    run.left = run.right = run.parent = 0;
    words_[bin / 64] |= std::uint64_t{1} << bin % 64;
    summary_ |= std::uint32_t{1} << bin / 64;
  }
  /// Requires: `id` is in this index; its start and units may have changed since.
  void erase(RunId id) { erase(id, (*runs_)[id]); }
  void erase(RunId id, const Run& run) {
    const std::uint32_t bin = run.bin;
    RunId& root = roots_[bin];
    if ((run.left | run.right | run.parent) != 0) return erase_below(root, id);
    GPUPOOL_CHECK(root == id);
    root = 0;
    const std::uint64_t left = words_[bin / 64] & ~(std::uint64_t{1} << bin % 64);
    words_[bin / 64] = left;
    if (left == 0) summary_ &= ~(std::uint32_t{1} << bin / 64);
  }
  /// The first with at least `units` units, 0 if none.
  RunId find_at_least(std::uint32_t units) const {
    const std::uint32_t bin = bin_of(units);
    if (const RunId root = roots_[bin]; root != 0) {
      if (const RunId found = first_from(root, units); found != 0) return found;
    }
    return first_of_bins_from(bin + 1);
  }
  RunId first() const { return first_of_bins_from(0); }
  /// The one after `id` in order, 0 if none.
  RunId after(RunId id) const;
  RunId last() const;
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

  void insert_below(RunId& root, RunId id);
  void erase_below(RunId& root, RunId id);
  /// The first of the tree with at least `units` units, 0 if none.
  RunId first_from(RunId root, std::uint32_t units) const {
    RunId found = 0;
    for (RunId node = root; node != 0;) {
      const Run& run = (*runs_)[node];
      if (run.units >= units) found = node;
      node = run.units >= units ? run.left : run.right;
    }
    return found;
  }
  RunId leftmost(RunId node) const {
    while (const RunId left = (*runs_)[node].left) node = left;
    return node;
  }
  /// The first of all whose bin is `bin` or a later one, 0 if none.
  RunId first_of_bins_from(std::uint32_t bin) const {
    if (bin >= kBinCount) return 0;
    std::uint32_t word = bin / 64;
    std::uint64_t bits = words_[word] >> bin % 64 << bin % 64;
    if (bits == 0) {
      const std::uint32_t later = summary_ >> word >> 1;
      if (later == 0) return 0;
      word += 1 + static_cast<std::uint32_t>(std::countr_zero(later));
      bits = words_[word];
    }
    return leftmost(roots_[word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits))]);
  }
  /// Whether the run `a` comes before `b`.
  static bool is_before(const Run& a, const Run& b) noexcept {
    return a.units != b.units ? a.units < b.units : a.start < b.start;
  }
  std::uint64_t check_tree(RunId node, RunId parent, std::uint32_t bin, const Run*& before) const;

  LazyArray<Run>* runs_;
  std::uint32_t summary_ = 0;
  std::array<std::uint64_t, kWordCount> words_{};
  std::array<RunId, kBinCount> roots_{};
};

static_assert(RunIndex::bin_of(63) == 63 && RunIndex::bin_of(64) == 64);
static_assert(RunIndex::bin_of(65) == 64 && RunIndex::bin_of(66) == 65);
static_assert(RunIndex::bin_of(127) == 95 && RunIndex::bin_of(128) == 96);

}  // namespace gpupool::internal

#endif  // GPUPOOL_RUNS_RUN_INDEX_H_
