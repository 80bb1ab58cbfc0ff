// What the run table says of itself: statistics, and the check of its invariants.
#include <algorithm>
#include <bit>
#include <tuple>

#include "base/check.h"
#include "base/units.h"
#include "runs/run_table.h"

namespace gpupool::internal {

std::uint64_t RunTable::metadata_bytes() const noexcept {
  return id_end_ * sizeof(Run) + unit_high_water_ * sizeof(RunId);
}

void RunTable::add_to(StatsV1& stats) const {
  constexpr unsigned kShift = log2_floor(kUnitBytes);
  static_assert(std::tuple_size_v<decltype(ready_by_log2_)> + kShift <= kSizeLog2Count);
  for (std::size_t i = 0; i < ready_by_log2_.size(); ++i) {
    stats.free_runs_by_log2[i + kShift] = ready_by_log2_[i].runs;
    stats.free_run_bytes_by_log2[i + kShift] = ready_by_log2_[i].units * kUnitBytes;
  }
  stats.runs = run_count_;
  stats.splits += splits_;
  stats.merges += merges_;
  stats.cross_stream_reuse[static_cast<std::size_t>(CrossStreamReuse::completed)] = reuses_;
  stats.watched_count = watched_.size();
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    stats.watched[i].bytes = watched_[i].bytes;
    stats.watched[i].unusable_free_bytes = (ready_units_ - watched_[i].usable_units) * kUnitBytes;
  }
}

void RunTable::check_indices(std::uint64_t ready_runs, std::uint64_t pending_runs) const {
  const auto check = [this](const RunIndex& index, StreamIndex holder) {
    for (RunId id = index.first_walked(); id != 0; id = index.next_walked(id)) {
      GPUPOOL_CHECK(runs_[id].kind == RunKind::free && runs_[id].holder == holder);
    }
    return index.check_invariants();
  };
  GPUPOOL_CHECK(check(ready_, kAnybody) == ready_runs);
  std::uint64_t indexed = check(nobodys_, kNobody);
  for (StreamIndex stream = 0; stream < by_stream_.size(); ++stream) {
    if (has_own(stream)) indexed += check(by_stream_[stream]->index, stream);
  }
  GPUPOOL_CHECK(indexed == pending_runs);
}

void RunTable::check_invariants() const {
  std::uint64_t ready = 0;
  std::uint64_t pending = 0;
  std::uint64_t pinned = 0;
  std::uint64_t in_use = 0;
  std::uint64_t longest = 0;
  std::uint64_t ready_runs = 0;
  std::uint64_t pending_runs = 0;
  std::array<std::uint64_t, 2> end_runs{};  // ready and pending
  std::uint64_t empty = 0;
  std::vector<std::uint64_t> usable(watched_.size());
  std::vector<std::uint64_t> own(by_stream_.size());
  for (RunId id = 1; id < id_end_; ++id) {
    const Run& run = runs_[id];
    if (run.kind == RunKind::unused) continue;
    ++in_use;
    GPUPOOL_CHECK(run.units > 0);
    const RunId entry = run.kind == RunKind::free ? id | kFree : id;
    // Inside a chunk the entries are the chunk's.
    const RunId first = by_unit_[run.start];
    const bool is_chunk = run.kind == RunKind::chunk && (first & kInChunk) != 0;
    GPUPOOL_CHECK(is_chunk || (first == entry && by_unit_[run.end() - 1] == entry));
    if (run.kind != RunKind::free) continue;
    GPUPOOL_CHECK((run.end() == end_) == (id == end_run_));
    const RunId before = free_before(run.start);
    GPUPOOL_CHECK(before == 0 || seams_.has(run.start));
    // Of nobody's some were pinned once.
    GPUPOOL_CHECK(before == 0 || run.holder == kNobody || runs_[before].holder != run.holder);
    GPUPOOL_CHECK(run.holder == holder_of(run.tickets));
    if (id == end_run_) ++end_runs[run.holder == kAnybody ? 0 : 1];
    if (run.holder == kAnybody) {
      ++ready_runs;
      ready += run.units;
      longest = std::max<std::uint64_t>(longest, run.units);
      empty += count_pages(run.start, run.units);
      for (std::size_t i = 0; i < usable.size(); ++i) {
        if (run.units * kUnitBytes >= watched_[i].bytes) usable[i] += run.units;
      }
    } else {
      pending += run.units;
      ++pending_runs;
      if (run.holder != kNobody) own[run.holder] += run.units;
      if (run.holder == kNobody && run.is_pinned) pinned += run.units;
    }
  }
  GPUPOOL_CHECK(in_use == run_count_);
  GPUPOOL_CHECK(empty == empty_pages_);
  empty_.for_each_word(page_high_water(), [&](std::uint64_t, std::uint64_t bits) {
    empty -= static_cast<std::uint64_t>(std::popcount(bits));
  });
  GPUPOOL_CHECK(empty == 0);
  GPUPOOL_CHECK(ready == ready_units_ && pending == pending_units_ && pinned == pinned_units_);
  for (StreamIndex i = 0; i < by_stream_.size(); ++i) GPUPOOL_CHECK(own[i] == by_stream_[i]->units);
  GPUPOOL_CHECK(longest == largest_ready_units());
  GPUPOOL_CHECK(end_runs[0] + end_runs[1] == static_cast<std::uint64_t>(end_run_ != 0));
  check_indices(ready_runs - end_runs[0], pending_runs - end_runs[1]);
  Ready sum;
  for (const Ready& bucket : ready_by_log2_) {
    sum.runs += bucket.runs;
    sum.units += bucket.units;
  }
  GPUPOOL_CHECK(sum.runs == ready_runs && sum.units == ready_units_);
  for (std::size_t i = 0; i < usable.size(); ++i) {
    GPUPOOL_CHECK(usable[i] == watched_[i].usable_units);
  }
}

}  // namespace gpupool::internal
