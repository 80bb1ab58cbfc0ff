// Free runs in order of (units, start): the smallest that is long enough, lowest address first.
//
// A treap: a binary tree by that key in which each node's priority (a hash of its start, so that
// the same input gives the same tree) is above its children's. The links lie in the runs.
// Algorithm: Seidel and Aragon, "Randomized Search Trees", Algorithmica 16 (1996).
// Cost: expected O(log n) for each operation; no memory of its own.
// Thread safety: under the pool's lock.
#ifndef GPUPOOL_RUNS_RUN_INDEX_H_
#define GPUPOOL_RUNS_RUN_INDEX_H_

#include <cstdint>

#include "base/lazy_array.h"
#include "runs/run.h"

namespace gpupool::internal {

class RunIndex {
 public:
  explicit RunIndex(LazyArray<Run>& runs) noexcept : runs_(&runs) {}

  void insert(RunId id);
  /// Requires: `id` is in this index, with the key it was put in with.
  void erase(RunId id);
  /// The first with at least `units` units, 0 if none.
  RunId find_at_least(std::uint64_t units) const { return first_from({units, 0}); }
  /// The one after `id` in order, 0 if none.
  RunId after(RunId id) const {
    const Run& run = (*runs_)[id];
    return first_from({run.units, run.start + 1});
  }
  RunId last() const;
  bool empty() const noexcept { return root_ == 0; }

 private:
  struct Key {
    std::uint64_t units;
    std::uint64_t start;
    friend bool operator<(Key a, Key b) {
      return a.units != b.units ? a.units < b.units : a.start < b.start;
    }
  };
  Key key(RunId id) const { return {(*runs_)[id].units, (*runs_)[id].start}; }
  std::uint64_t priority(RunId id) const;
  RunId first_from(Key from) const;
  void split(RunId root, Key at, RunId* below, RunId* rest);
  RunId merge(RunId below, RunId above);

  LazyArray<Run>* runs_;
  RunId root_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_RUNS_RUN_INDEX_H_
