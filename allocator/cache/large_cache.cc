#include "cache/large_cache.h"

#include "base/units.h"

namespace gpupool::internal {

void LargeCache::put(RunId id) {
  Run& run = runs_[id];
  RunId& head = bins_[bin_of(run.block.stream, run.units)];
  run.left = 0;
  run.right = head;
  if (head != 0) runs_[head].left = id;
  head = id;

  run.previous = newest_;
  run.next = 0;
  (newest_ != 0 ? runs_[newest_].next : oldest_) = id;
  newest_ = id;
  bytes_ += run.units * kUnitBytes;
}

RunId LargeCache::take(StreamIndex stream, std::uint32_t units) {
  for (RunId id = bins_[bin_of(stream, units)]; id != 0; id = runs_[id].right) {
    if (runs_[id].units == units && runs_[id].block.stream == stream) {
      unlink(id);
      return id;
    }
  }
  return 0;
}

RunId LargeCache::take_oldest() {
  const RunId id = oldest_;
  if (id != 0) unlink(id);
  return id;
}

RunId LargeCache::take_of(StreamIndex stream) {
  for (RunId id = oldest_; id != 0; id = runs_[id].next) {
    if (runs_[id].block.stream == stream) {
      unlink(id);
      return id;
    }
  }
  return 0;
}

void LargeCache::unlink(RunId id) {
  Run& run = runs_[id];
  (run.left != 0 ? runs_[run.left].right : bins_[bin_of(run.block.stream, run.units)]) = run.right;
  if (run.right != 0) runs_[run.right].left = run.left;
  (run.previous != 0 ? runs_[run.previous].next : oldest_) = run.next;
  (run.next != 0 ? runs_[run.next].previous : newest_) = run.previous;
  run.left = run.right = run.previous = run.next = 0;
  bytes_ -= run.units * kUnitBytes;
}

}  // namespace gpupool::internal
