#include "runs/run_index.h"

#include "base/check.h"

namespace gpupool::internal {

std::uint64_t RunIndex::priority(RunId id) const {
  // The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): spreads neighbouring starts.
  std::uint64_t x = (*runs_)[id].start + 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

void RunIndex::insert(RunId id) {
  Run& run = (*runs_)[id];
  RunId* link = &root_;
  while (*link != 0 && priority(*link) > priority(id)) {
    link = key(id) < key(*link) ? &(*runs_)[*link].left : &(*runs_)[*link].right;
  }
  split(*link, key(id), &run.left, &run.right);
  *link = id;
}

void RunIndex::erase(RunId id) {
  RunId* link = &root_;
  while (*link != id) {
    GPUPOOL_CHECK(*link != 0);
    link = key(id) < key(*link) ? &(*runs_)[*link].left : &(*runs_)[*link].right;
  }
  Run& run = (*runs_)[id];
  *link = merge(run.left, run.right);
  run.left = 0;
  run.right = 0;
}

RunId RunIndex::first_from(Key from) const {
  RunId found = 0;
  for (RunId node = root_; node != 0;) {
    if (key(node) < from) {
      node = (*runs_)[node].right;
    } else {
      found = node;
      node = (*runs_)[node].left;
    }
  }
  return found;
}

RunId RunIndex::last() const {
  RunId node = root_;
  while (node != 0 && (*runs_)[node].right != 0) node = (*runs_)[node].right;
  return node;
}

void RunIndex::split(RunId root, Key at, RunId* below, RunId* rest) {
  while (root != 0) {
    if (key(root) < at) {
      *below = root;
      below = &(*runs_)[root].right;
      root = *below;
    } else {
      *rest = root;
      rest = &(*runs_)[root].left;
      root = *rest;
    }
  }
  *below = 0;
  *rest = 0;
}

RunId RunIndex::merge(RunId below, RunId above) {
  RunId root = 0;
  RunId* link = &root;
  while (below != 0 && above != 0) {
    if (priority(below) > priority(above)) {
      *link = below;
      link = &(*runs_)[below].right;
      below = *link;
    } else {
      *link = above;
      link = &(*runs_)[above].left;
      above = *link;
    }
  }
  *link = below != 0 ? below : above;
  return root;
}

}  // namespace gpupool::internal
