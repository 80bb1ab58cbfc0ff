#include "runs/run_index.h"

#include "base/check.h"

namespace gpupool::internal {
namespace {

/// Spreads starts that lie close together or in equal steps: multiply, fold, multiply, as in the
/// finaliser of SplitMix64 (Steele, Lea and Flood, 2014), but for its folds before and after.
std::uint64_t priority(const Run& run) noexcept {
  const std::uint64_t x = run.start * 0x9e3779b97f4a7c15ULL;
  return (x ^ (x >> 32)) * 0xbf58476d1ce4e5b9ULL;
}

}  // namespace

void RunIndex::insert_below(RunId& root, RunId id) {
  LazyArray<Run>& runs = *runs_;
  Run& run = runs[id];
  const std::uint64_t own = priority(run);
  RunId* link = &root;
  RunId parent = 0;
  while (*link != 0 && priority(runs[*link]) > own) {
    parent = *link;
    link = is_before(run, runs[parent]) ? &runs[parent].left : &runs[parent].right;
  }
  run.parent = parent;
  // What was there is below now: what comes before on the left, the others on the right.
  RunId rest = *link;
  *link = id;
  RunId* before = &run.left;
  RunId* after = &run.right;
  RunId before_parent = id;
  RunId after_parent = id;
  while (rest != 0) {
    Run& node = runs[rest];
    if (is_before(node, run)) {
      *before = rest;
      node.parent = before_parent;
      before_parent = rest;
      before = &node.right;
      rest = node.right;
    } else {
      *after = rest;
      node.parent = after_parent;
      after_parent = rest;
      after = &node.left;
      rest = node.left;
    }
  }
  *before = 0;
  *after = 0;
}

void RunIndex::erase_below(RunId& root, RunId id) {
  LazyArray<Run>& runs = *runs_;
  const Run& run = runs[id];
  RunId parent = run.parent;
  RunId* link = &root;
  if (parent != 0) link = runs[parent].left == id ? &runs[parent].left : &runs[parent].right;
  GPUPOOL_CHECK(*link == id);
  RunId left = run.left;
  RunId right = run.right;
  while (left != 0 && right != 0) {
    const bool is_left_above = priority(runs[left]) > priority(runs[right]);
    RunId& above = is_left_above ? left : right;
    *link = above;
    runs[above].parent = parent;
    parent = above;
    link = is_left_above ? &runs[parent].right : &runs[parent].left;
    above = *link;
  }
  *link = left | right;
  if (*link != 0) runs[*link].parent = parent;
}

RunId RunIndex::after(RunId id) const {
  const LazyArray<Run>& runs = *runs_;
  if (runs[id].right != 0) return leftmost(runs[id].right);
  RunId parent = runs[id].parent;
  for (RunId node = id; parent != 0 && runs[parent].right == node; parent = runs[node].parent) {
    node = parent;
  }
  return parent != 0 ? parent : first_of_bins_from(runs[id].bin + 1U);
}

RunId RunIndex::last() const {
  if (empty()) return 0;
  const auto word = static_cast<std::uint32_t>(std::bit_width(summary_)) - 1;
  const auto bit = static_cast<std::uint32_t>(std::bit_width(words_[word])) - 1;
  RunId node = roots_[word * 64 + bit];
  while (const RunId right = (*runs_)[node].right) node = right;
  return node;
}

std::uint64_t RunIndex::check_invariants() const {
  std::uint64_t count = 0;
  for (std::uint32_t word = 0; word < kWordCount; ++word) {
    GPUPOOL_CHECK((summary_ >> word & 1) == static_cast<std::uint32_t>(words_[word] != 0));
    for (std::uint64_t bits = words_[word]; bits != 0; bits &= bits - 1) {
      const std::uint32_t bin = word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
      GPUPOOL_CHECK(roots_[bin] != 0);
      const Run* before = nullptr;
      count += check_tree(roots_[bin], 0, bin, before);
    }
  }
  return count;
}

std::uint64_t RunIndex::check_tree(RunId node, RunId parent, std::uint32_t bin,
                                   const Run*& before) const {
  if (node == 0) return 0;
  const Run& run = (*runs_)[node];
  GPUPOOL_CHECK(run.parent == parent && run.bin == bin && bin_of(run.units) == bin);
  GPUPOOL_CHECK(parent == 0 || priority((*runs_)[parent]) >= priority(run));
  const std::uint64_t left = check_tree(run.left, node, bin, before);
  GPUPOOL_CHECK(before == nullptr || is_before(*before, run));
  before = &run;
  return left + 1 + check_tree(run.right, node, bin, before);
}

}  // namespace gpupool::internal
