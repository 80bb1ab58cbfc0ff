#include "runs/run_index.h"

#include <algorithm>

namespace gpupool::internal {
namespace {

/// Spreads starts that lie close together or in equal steps: multiply, fold, multiply, as in the
/// finaliser of SplitMix64 (Steele, Lea and Flood, 2014), but for its folds before and after.
std::uint64_t priority(const Run& run) noexcept {
  const std::uint64_t x = run.start * 0x9e3779b97f4a7c15ULL;
  return (x ^ (x >> 32)) * 0xbf58476d1ce4e5b9ULL;
}

/// The order of the index.
bool is_before(const Run& a, const Run& b) noexcept {
  return a.units != b.units ? a.units < b.units : a.start < b.start;
}

}  // namespace

// Searching a bin.

bool RunIndex::is_long_list(std::uint32_t bin) const {
  std::uint32_t count = 0;
  for (RunId id = roots_[bin]; id != 0 && count <= kMaxListed; id = (*runs_)[id].right) ++count;
  return count > kMaxListed;
}

RunId RunIndex::first_of_several(std::uint32_t bin, std::uint32_t units) const {
  if ((roots_[bin] & kTree) != 0) return first_in_tree(bin, units);
  const LazyArray<Run>& runs = *runs_;
  RunId found = 0;
  std::uint32_t count = 0;
  for (RunId id = roots_[bin]; id != 0; id = runs[id].right) {
    if (++count > kMaxListed) {
      make_tree(bin);
      return first_in_tree(bin, units);
    }
    if (runs[id].units < units) continue;
    if (found == 0 || is_before(runs[id], runs[found])) found = id;
  }
  return found;
}

RunId RunIndex::first_in_tree(std::uint32_t bin, std::uint32_t units) const {
  RunId found = 0;
  for (RunId node = roots_[bin] & ~kTree; node != 0;) {
    const Run& run = (*runs_)[node];
    if (run.units >= units) found = node;
    node = run.units >= units ? run.left : run.right;
  }
  return found;
}

RunId RunIndex::leftmost(RunId node) const noexcept {
  while (const RunId left = (*runs_)[node].left) node = left;
  return node;
}

RunId RunIndex::next_in_tree(RunId id) const noexcept {
  const LazyArray<Run>& runs = *runs_;
  if (runs[id].right != 0) return leftmost(runs[id].right);
  RunId above = runs[id].parent;
  for (RunId node = id; above != 0 && runs[above].right == node; above = runs[node].parent) {
    node = above;
  }
  return above;
}

RunId RunIndex::after(RunId id) const {
  const LazyArray<Run>& runs = *runs_;
  const std::uint32_t bin = runs[id].bin;
  RunId found = 0;
  if ((roots_[bin] & kTree) == 0 && is_long_list(bin)) make_tree(bin);
  if ((roots_[bin] & kTree) != 0) {
    found = next_in_tree(id);
  } else {
    for (RunId other = roots_[bin]; other != 0; other = runs[other].right) {
      if (!is_before(runs[id], runs[other])) continue;
      if (found == 0 || is_before(runs[other], runs[found])) found = other;
    }
  }
  return found != 0 ? found : first_of_bins_from(bin + 1);
}

RunId RunIndex::first_walked_from(std::uint32_t bin) const noexcept {
  const std::uint32_t found = bin_from(bin);
  if (found >= kBinCount) return 0;
  const RunId root = roots_[found];
  return (root & kTree) != 0 ? leftmost(root & ~kTree) : root;
}

RunId RunIndex::next_walked(RunId id) const noexcept {
  // Of a treap in order, since that is what taking one out leaves as it is.
  const Run& run = (*runs_)[id];
  const bool is_listed = (roots_[run.bin] & kTree) == 0;
  const RunId next = is_listed ? run.right : next_in_tree(id);
  return next != 0 ? next : first_walked_from(run.bin + 1U);
}

std::uint32_t RunIndex::longest_units() const {
  if (empty()) return 0;
  const LazyArray<Run>& runs = *runs_;
  const auto word = static_cast<std::uint32_t>(std::bit_width(summary_)) - 1;
  const std::uint32_t bin =
      word * 64 + static_cast<std::uint32_t>(std::bit_width(words_[word])) - 1;
  // Those of one length are in no need of an order.
  if (bin < kExactUnits) return bin;
  if ((roots_[bin] & kTree) == 0 && is_long_list(bin)) make_tree(bin);
  RunId id = roots_[bin] & ~kTree;
  if ((roots_[bin] & kTree) != 0) {
    while (runs[id].right != 0) id = runs[id].right;
    return runs[id].units;
  }
  std::uint32_t longest = 0;
  for (; id != 0; id = runs[id].right) longest = std::max<std::uint32_t>(longest, runs[id].units);
  return longest;
}

// The treap of a bin.

void RunIndex::make_tree(std::uint32_t bin) const {
  RunId next = roots_[bin];
  roots_[bin] = kTree;
  while (next != 0) {
    const RunId id = next;
    next = (*runs_)[id].right;
    insert_in_tree(id);
  }
}

void RunIndex::insert_in_tree(RunId id) const {
  LazyArray<Run>& runs = *runs_;
  Run& run = runs[id];
  const std::uint64_t own = priority(run);
  RunId root = roots_[run.bin] & ~kTree;
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
  roots_[run.bin] = root | kTree;
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

void RunIndex::erase_beside_others(RunId id) {
  LazyArray<Run>& runs = *runs_;
  const Run& run = runs[id];
  RunId& root = roots_[run.bin];
  if ((root & kTree) != 0) return erase_from_tree(id);
  RunId& link = run.parent != 0 ? runs[run.parent].right : root;
  GPUPOOL_CHECK(link == id);
  link = run.right;
  if (run.right != 0) runs[run.right].parent = run.parent;
}

void RunIndex::erase_from_tree(RunId id) {
  LazyArray<Run>& runs = *runs_;
  const Run& run = runs[id];
  RunId root = roots_[run.bin] & ~kTree;
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
  roots_[run.bin] = root | kTree;
}

// Checking.

std::uint64_t RunIndex::check_invariants() const {
  std::uint64_t count = 0;
  for (std::uint32_t word = 0; word < kWordCount; ++word) {
    GPUPOOL_CHECK((summary_ >> word & 1) == static_cast<std::uint32_t>(words_[word] != 0));
    for (std::uint64_t bits = words_[word]; bits != 0; bits &= bits - 1) {
      const std::uint32_t bin = word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
      const Run* before = nullptr;
      const std::uint64_t in_bin = (roots_[bin] & kTree) == 0
                                       ? check_list(bin)
                                       : check_tree(roots_[bin] & ~kTree, 0, bin, before);
      GPUPOOL_CHECK(in_bin > 0);
      count += in_bin;
    }
  }
  return count;
}

std::uint64_t RunIndex::check_list(std::uint32_t bin) const {
  std::uint64_t count = 0;
  RunId before = 0;
  for (RunId id = roots_[bin]; id != 0; id = (*runs_)[id].right) {
    const Run& run = (*runs_)[id];
    GPUPOOL_CHECK(run.parent == before && run.left == 0);
    GPUPOOL_CHECK(run.bin == bin && bin_of(run.units) == bin);
    before = id;
    ++count;
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
