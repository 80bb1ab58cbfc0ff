// What the run table says of itself: statistics, and the check of its invariants.
#include <algorithm>

#include "base/check.h"
#include "base/units.h"
#include "runs/run_table.h"

namespace gpupool::internal {

std::uint64_t RunTable::metadata_bytes() const noexcept {
  return id_end_ * sizeof(Run) + unit_high_water_ * sizeof(RunId);
}

void RunTable::add_to(StatsV1& stats) const {
  stats.free_runs_by_log2 = ready_by_log2_;
  stats.free_run_bytes_by_log2 = ready_bytes_by_log2_;
  stats.runs = run_count_;
  stats.splits += splits_;
  stats.merges += merges_;
  stats.watched_count = watched_sizes_.size();
  for (std::size_t i = 0; i < watched_sizes_.size(); ++i) {
    stats.watched[i].bytes = watched_sizes_[i];
    stats.watched[i].unusable_free_bytes = unusable_bytes_[i];
  }
}

void RunTable::check_invariants() const {
  std::uint64_t ready = 0;
  std::uint64_t pending = 0;
  std::uint64_t in_use = 0;
  std::uint64_t longest = 0;
  std::uint64_t with_tickets = 0;
  std::vector<std::uint64_t> unusable(watched_sizes_.size());
  for (RunId id = 1; id < id_end_; ++id) {
    const Run& run = runs_[id];
    if (run.kind == RunKind::unused) continue;
    ++in_use;
    GPUPOOL_CHECK(run.units > 0);
    GPUPOOL_CHECK(by_unit_[run.start] == id && by_unit_[run.end() - 1] == id);
    if (run.kind != RunKind::free) continue;
    const RunId before = free_before(run.start);
    GPUPOOL_CHECK(before == 0 || runs_[before].holder != run.holder);
    GPUPOOL_CHECK(run.holder == run.tickets.holder());
    const std::uint64_t bytes = run.units * kUnitBytes;
    if (run.holder == kAnybody) {
      ready += bytes;
      longest = std::max<std::uint64_t>(longest, run.units);
      for (std::size_t i = 0; i < unusable.size(); ++i) {
        if (bytes < watched_sizes_[i]) unusable[i] += bytes;
      }
    } else {
      pending += bytes;
      ++with_tickets;
    }
  }
  GPUPOOL_CHECK(in_use == run_count_);
  GPUPOOL_CHECK(ready == ready_bytes_ && pending == pending_bytes_);
  GPUPOOL_CHECK(longest == largest_ready_units());
  std::uint64_t listed = 0;
  for (RunId id = pending_; id != 0; id = runs_[id].next) {
    GPUPOOL_CHECK(runs_[id].kind == RunKind::free && runs_[id].holder != kAnybody);
    ++listed;
  }
  GPUPOOL_CHECK(listed == with_tickets);
  std::uint64_t by_log2 = 0;
  for (std::uint64_t bytes : ready_bytes_by_log2_) by_log2 += bytes;
  GPUPOOL_CHECK(by_log2 == ready_bytes_);
  for (std::size_t i = 0; i < unusable.size(); ++i) {
    GPUPOOL_CHECK(unusable[i] == unusable_bytes_[i]);
  }
}

}  // namespace gpupool::internal
