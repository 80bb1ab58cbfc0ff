// Where the run table looks for units, and takes them from what it finds.
#include <algorithm>
#include <bit>

#include "base/units.h"
#include "runs/run_table.h"

namespace gpupool::internal {
namespace {

/// No unit, as an answer to where something is.
constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

}  // namespace

RunId RunTable::find_aligned(const RunIndex& index, RunId id, std::uint32_t units,
                             std::uint32_t align_units) const {
  for (; id != 0; id = index.after(id)) {
    if (first_place(runs_[id].start, units, align_units) + units <= runs_[id].end()) return id;
  }
  return 0;
}

std::uint64_t RunTable::find_across(std::uint32_t units, std::uint32_t align_units,
                                    StreamIndex stream, Reach reach) const {
  // Neighbours of one kind have joined: a stretch that is longer than a single run is of runs of
  // both kinds by turns. So it is found from those of which there are fewer units.
  if (stream >= by_stream_.size()) return kNowhere;
  std::uint64_t best = kNowhere;
  std::uint64_t best_units = 0;
  const auto look = [&](RunId id) {
    // Each stretch is walked once, from the first of its runs of that kind.
    std::uint64_t start = runs_[id].start;
    std::uint64_t end = runs_[id].end();
    const RunId before = free_before(start);
    const RunId after = free_at(end);
    if ((before | after) == 0) return;
    if (before != 0 && is_usable(before, stream)) {
      start = runs_[before].start;
      const RunId earlier = free_before(start);
      if (earlier != 0 && is_usable(earlier, stream)) return;
    }
    if (after != 0) end += usable_units_after(end, stream);
    if (end == end_ && reach == Reach::before_end) return;
    const std::uint64_t at = first_place(start, units, align_units);
    if (at + units > end) return;
    if (best == kNowhere || end - start < best_units || (end - start == best_units && at < best)) {
      best = at;
      best_units = end - start;
    }
  };
  std::uint64_t at_end = 0;
  if (end_run_ != 0) at_end = runs_[end_run_].units;
  const bool by_ready = ready_units_ < by_stream_[stream]->units + at_end;
  const RunIndex& index = by_ready ? ready_ : by_stream_[stream]->index;
  for (RunId id = index.first_walked(); id != 0; id = index.next_walked(id)) look(id);
  if (end_run_ != 0 && runs_[end_run_].holder == (by_ready ? kAnybody : stream)) look(end_run_);
  return best;
}

bool RunTable::can_take_across(std::uint32_t units, std::uint32_t align_units, StreamIndex stream,
                               Reach reach) const {
  return find_across(units, align_units, stream, reach) != kNowhere;
}

RunId RunTable::take_across(std::uint32_t units, std::uint32_t align_units, StreamIndex stream,
                            Reach reach, RunKind kind) {
  const std::uint64_t start = find_across(units, align_units, stream, reach);
  if (start == kNowhere) return 0;
  RunId id = free_at(start);
  // With an alignment the first piece may begin inside a run: find the run that covers it.
  for (std::uint64_t unit = start; id == 0; --unit) {
    const RunId candidate = at(unit);
    const bool covers = candidate != 0 && runs_[candidate].kind == RunKind::free &&
                        runs_[candidate].start <= start && start < runs_[candidate].end();
    if (covers) id = candidate;
  }
  RunId whole = 0;
  for (std::uint64_t at = start; at < start + units; id = free_at(at)) {
    const auto part = static_cast<std::uint32_t>(std::min(start + units, runs_[id].end()) - at);
    const RunId piece = take_at(id, at, part, kind);
    at += part;
    if (whole == 0) {
      whole = piece;
      continue;
    }
    runs_[whole].units += part;
    runs_[whole].tickets.add(runs_[piece].tickets, streams_);
    drop(piece);
    ++merges_;
  }
  // Of several, whoever freed them: not counted.
  runs_[whole].freed_by = 0;
  by_unit_[start + units - 1] = whole;
  return whole;
}

// Questions.

bool RunTable::has_of_others(StreamIndex stream) const noexcept {
  return pending_units_ != (stream < by_stream_.size() ? by_stream_[stream]->units : 0);
}

bool RunTable::has_several_owners() const noexcept {
  for (const auto& own : by_stream_) {
    if (own->units != 0) return own->units != pending_units_;
  }
  return pending_units_ != 0;
}

std::uint64_t RunTable::largest_ready_units() const {
  std::uint64_t units = ready_.longest_units();
  if (end_run_ != 0 && runs_[end_run_].holder == kAnybody) {
    units = std::max<std::uint64_t>(units, runs_[end_run_].units);
  }
  return units;
}

template <class Visit>
void RunTable::for_each_row(Visit visit) const {
  seams_.for_each([&](std::uint64_t unit) {
    const RunId first = free_before(unit);
    if (first == 0 || free_at(unit) == 0) return Seams::Is::over;
    // Each row once, from its first seam.
    if (free_before(runs_[first].start) != 0) return Seams::Is::there;
    // In parts, between runs that are pinned.
    RunId start = first;
    std::uint64_t end = runs_[first].start;
    for (RunId id = first; id != 0; id = free_at(end)) {
      if (is_pinned(id)) {
        if (start != id) visit(start, end);
        start = free_at(runs_[id].end());
      }
      end = runs_[id].end();
    }
    if (start != 0) visit(start, end);
    return Seams::Is::there;
  });
}

template <class Visit>
void RunTable::for_each_waiting(std::uint32_t units, Visit visit) const {
  for_each_pending_index([&](const RunIndex& index) {
    for (RunId id = index.find_at_least(units); id != 0; id = index.after(id)) {
      if (!is_pinned(id)) visit(id);
    }
  });
  if (end_run_ != 0 && runs_[end_run_].holder != kAnybody && !is_pinned(end_run_)) {
    visit(end_run_);
  }
}

std::uint64_t RunTable::pending_bytes_of(StreamIndex stream) const noexcept {
  if (stream != kNobody) {
    return stream < by_stream_.size() ? by_stream_[stream]->units * kUnitBytes : 0;
  }
  std::uint64_t units = pending_units_;
  for (const auto& own : by_stream_) units -= own->units;
  return units * kUnitBytes;
}

std::uint64_t RunTable::largest_free_units() const {
  std::uint64_t units = largest_ready_units();
  if (pending_units_ == 0) return units;
  if (streams_.has_pseudo() || streams_.keeps_apart()) {
    for_each_waiting(0, [&](RunId id) { units = std::max<std::uint64_t>(units, runs_[id].units); });
  } else {
    for_each_pending_index([&](const RunIndex& index) {
      units = std::max<std::uint64_t>(units, index.longest_units());
    });
    if (end_run_ != 0) units = std::max<std::uint64_t>(units, runs_[end_run_].units);
  }
  for_each_row(
      [&](RunId first, std::uint64_t end) { units = std::max(units, end - runs_[first].start); });
  return units;
}

std::uint64_t RunTable::pages_once_complete() const {
  std::uint64_t pages = empty_pages_;
  if (pending_units_ == 0) return pages;
  const auto pages_of = [this](RunId id) { return count_pages(runs_[id].start, runs_[id].units); };
  for_each_waiting(kUnitsPerPage, [&](RunId id) { pages += pages_of(id); });
  // What lies in several runs, and in none of them.
  for_each_row([&](RunId first, std::uint64_t end) {
    const std::uint64_t start = runs_[first].start;
    pages += count_pages(start, static_cast<std::uint32_t>(end - start));
    for (std::uint64_t unit = start; unit < end; unit = runs_[free_at(unit)].end()) {
      pages -= pages_of(free_at(unit));
    }
  });
  return pages;
}

std::uint64_t RunTable::usable_units_before(std::uint64_t unit, StreamIndex stream) const {
  std::uint64_t start = unit;
  for (RunId id = free_before(start); id != 0 && is_usable(id, stream); id = free_before(start)) {
    start = runs_[id].start;
  }
  return unit - start;
}

std::uint64_t RunTable::usable_units_after(std::uint64_t unit, StreamIndex stream) const {
  std::uint64_t end = unit;
  for (RunId id = free_at(end); id != 0 && is_usable(id, stream); id = free_at(end)) {
    end = runs_[id].end();
  }
  return end - unit;
}

}  // namespace gpupool::internal
