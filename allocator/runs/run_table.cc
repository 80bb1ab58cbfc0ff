#include "runs/run_table.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"

namespace gpupool::internal {
namespace {

/// No unit, as an answer to where something is.
constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

}  // namespace

RunTable::RunTable(StreamTable& streams, const std::vector<std::uint64_t>& watched_sizes)
    : streams_(streams), ready_(runs_), nobodys_(runs_), watched_sizes_(watched_sizes) {}

bool RunTable::reserve(std::uint64_t unit_capacity, std::uint64_t max_backed_units) {
  // At most one run a backed unit; one more record while a run is being cut.
  return by_unit_.reserve(unit_capacity + 1) && runs_.reserve(max_backed_units + 2);
}

void RunTable::know_stream(StreamIndex stream) {
  while (by_stream_.size() <= stream) by_stream_.emplace_back(runs_);
}

RunIndex& RunTable::index_of(StreamIndex holder) {
  if (holder == kAnybody) return ready_;
  return holder == kNobody ? nobodys_ : by_stream_[holder];
}

// Records.

RunId RunTable::new_run(std::uint64_t start, std::uint32_t units, RunKind kind) {
  RunId id = unused_;
  if (id != 0) {
    unused_ = runs_[id].next;
  } else {
    id = id_end_++;
    GPUPOOL_CHECK(id < runs_.size());
  }
  Run& run = runs_[id];
  run.start = start;
  run.units = units;
  run.kind = kind;
  run.holder = kAnybody;
  run.tickets.clear();
  run.left = run.right = run.previous = run.next = 0;
  ++run_count_;
  mark(id);
  return id;
}

void RunTable::drop(RunId id) {
  Run& run = runs_[id];
  run.kind = RunKind::unused;
  run.next = unused_;
  unused_ = id;
  --run_count_;
}

void RunTable::mark(RunId id) {
  // The two ends are what neighbours look at; inside a run, entries may be of earlier runs, which
  // is why whoever looks a unit up compares it with the run it finds.
  const Run& run = runs_[id];
  by_unit_[run.start] = id;
  by_unit_[run.end() - 1] = id;
  unit_high_water_ = std::max(unit_high_water_, run.end());
}

// The indices of free runs.

void RunTable::insert_free(RunId id) {
  Run& run = runs_[id];
  run.kind = RunKind::free;
  run.tickets.prune(streams_);
  run.holder = run.tickets.holder();
  index_of(run.holder).insert(id);
  if (run.holder == kAnybody) {
    count_ready(run, true);
    return;
  }
  pending_bytes_ += run.units * kUnitBytes;
  run.previous = 0;
  run.next = pending_;
  if (pending_ != 0) runs_[pending_].previous = id;
  pending_ = id;
}

void RunTable::erase_free(RunId id) {
  Run& run = runs_[id];
  index_of(run.holder).erase(id);
  if (run.holder == kAnybody) {
    count_ready(run, false);
    return;
  }
  pending_bytes_ -= run.units * kUnitBytes;
  if (run.previous != 0) {
    runs_[run.previous].next = run.next;
  } else {
    pending_ = run.next;
  }
  if (run.next != 0) runs_[run.next].previous = run.previous;
  run.previous = run.next = 0;
}

void RunTable::count_ready(const Run& run, bool added) {
  const std::uint64_t bytes = run.units * kUnitBytes;
  // Unsigned arithmetic wraps both ways, so that one step serves adding and taking away.
  const std::uint64_t one = added ? 1 : ~std::uint64_t{0};
  const std::uint64_t delta = added ? bytes : 0 - bytes;
  const std::size_t log2 = log2_floor(bytes);
  ready_bytes_ += delta;
  ready_by_log2_[log2] += one;
  ready_bytes_by_log2_[log2] += delta;
  for (std::size_t i = 0; i < watched_sizes_.size(); ++i) {
    if (bytes < watched_sizes_[i]) unusable_bytes_[i] += delta;
  }
}

void RunTable::refresh() {
  // Taken out first and put back after, since putting back joins neighbours, which may be next in
  // the list. While they are out, `left` links them.
  RunId changed = 0;
  for (RunId id = pending_; id != 0;) {
    Run& run = runs_[id];
    const RunId next = run.next;
    TicketSet now = run.tickets;
    now.prune(streams_);
    if (now.holder() != run.holder) {
      erase_free(id);
      run.kind = RunKind::leaving;
      run.left = changed;
      changed = id;
    }
    run.tickets = now;
    id = next;
  }
  while (changed != 0) {
    const RunId id = changed;
    changed = runs_[id].left;
    const TicketSet tickets = runs_[id].tickets;
    put(id, tickets);
  }
}

// Searching.

bool RunTable::fits(const Run& run, std::uint64_t units, std::uint32_t align_units) const noexcept {
  return round_up(run.start, align_units) + units <= run.end();
}

RunId RunTable::find_in(const RunIndex& index, std::uint64_t units, std::uint32_t align_units,
                        Reach reach) const {
  RunId last = 0;
  for (RunId id = index.find_at_least(units); id != 0; id = index.after(id)) {
    if (!fits(runs_[id], units, align_units)) continue;
    if (runs_[id].end() != end_) return id;
    last = id;
  }
  return reach == Reach::everywhere ? last : 0;
}

RunId RunTable::find(std::uint64_t units, std::uint32_t align_units, StreamIndex stream,
                     Reach reach) const {
  const RunId ready = find_in(ready_, units, align_units, reach);
  if (stream >= by_stream_.size()) return ready;
  const RunId own = find_in(by_stream_[stream], units, align_units, reach);
  if (ready == 0 || own == 0) return ready + own;
  const Run& a = runs_[ready];
  const Run& b = runs_[own];
  if ((a.end() == end_) != (b.end() == end_)) return a.end() == end_ ? own : ready;
  if (a.units != b.units) return a.units < b.units ? ready : own;
  return a.start < b.start ? ready : own;
}

RunId RunTable::free_before(std::uint64_t unit) const noexcept {
  if (unit == 0) return 0;
  const RunId id = by_unit_[unit - 1];
  return id != 0 && runs_[id].kind == RunKind::free && runs_[id].end() == unit ? id : 0;
}

RunId RunTable::free_at(std::uint64_t unit) const noexcept {
  const RunId id = by_unit_[unit];
  return id != 0 && runs_[id].kind == RunKind::free && runs_[id].start == unit ? id : 0;
}

std::uint64_t RunTable::largest_ready_units() const {
  const RunId id = ready_.last();
  return id == 0 ? 0 : runs_[id].units;
}

std::uint64_t RunTable::largest_free_units() const {
  std::uint64_t units = largest_ready_units();
  for (RunId id = pending_; id != 0; id = runs_[id].next) {
    // Each stretch is walked once, from its first pending run. Before that there is nothing, or
    // one ready run, since ready neighbours have joined.
    std::uint64_t start = runs_[id].start;
    if (const RunId before = free_before(start)) {
      if (runs_[before].holder != kAnybody || free_before(runs_[before].start) != 0) continue;
      start = runs_[before].start;
    }
    std::uint64_t end = runs_[id].end();
    while (const RunId after = free_at(end)) end = runs_[after].end();
    units = std::max(units, end - start);
  }
  return units;
}

std::uint64_t RunTable::usable_units_before(std::uint64_t unit, std::uint32_t align_units,
                                            StreamIndex stream) const {
  std::uint64_t start = unit;
  for (RunId id = free_before(start); id != 0 && is_usable(id, stream); id = free_before(start)) {
    start = runs_[id].start;
  }
  start = round_up(start, align_units);
  return start < unit ? unit - start : 0;
}

std::uint64_t RunTable::usable_units_after(std::uint64_t unit, StreamIndex stream) const {
  std::uint64_t end = unit;
  for (RunId id = free_at(end); id != 0 && is_usable(id, stream); id = free_at(end)) {
    end = runs_[id].end();
  }
  return end - unit;
}

bool RunTable::can_take(std::uint64_t units, std::uint32_t align_units, StreamIndex stream,
                        Reach reach) const {
  return find(units, align_units, stream, reach) != 0 ||
         find_across(units, align_units, stream, reach) != kNowhere;
}

std::uint64_t RunTable::find_across(std::uint64_t units, std::uint32_t align_units,
                                    StreamIndex stream, Reach reach) const {
  // A stretch that is longer than a single run has a run of the stream's own in it, since ready
  // neighbours have joined.
  if (stream >= by_stream_.size() || by_stream_[stream].empty()) return kNowhere;
  std::uint64_t best = kNowhere;
  std::uint64_t best_units = 0;
  for (RunId id = pending_; id != 0; id = runs_[id].next) {
    if (runs_[id].holder != stream) continue;
    // Each stretch is walked once, from the first of the stream's own runs. Before that there is
    // nothing, or one ready run.
    std::uint64_t start = runs_[id].start;
    if (const RunId before = free_before(start); before != 0 && is_usable(before, stream)) {
      start = runs_[before].start;
      const RunId earlier = free_before(start);
      if (earlier != 0 && is_usable(earlier, stream)) continue;
    }
    const std::uint64_t end = start + usable_units_after(start, stream);
    if (end == end_ && reach == Reach::before_end) continue;
    const std::uint64_t at = round_up(start, align_units);
    if (at + units > end) continue;
    if (best == kNowhere || end - start < best_units || (end - start == best_units && at < best)) {
      best = at;
      best_units = end - start;
    }
  }
  return best;
}

// Taking and giving back.

RunId RunTable::take(std::uint32_t units, std::uint32_t align_units, StreamIndex stream,
                     Reach reach, RunKind kind) {
  const RunId id = find(units, align_units, stream, reach);
  if (id != 0) return take_at(id, round_up(runs_[id].start, align_units), units, kind);
  const std::uint64_t start = find_across(units, align_units, stream, reach);
  return start == kNowhere ? 0 : take_across(start, units, kind);
}

RunId RunTable::take_across(std::uint64_t start, std::uint32_t units, RunKind kind) {
  RunId id = free_at(start);
  // With an alignment the first piece may begin inside a run: find the run that covers it.
  for (std::uint64_t unit = start; id == 0; --unit) {
    const RunId candidate = by_unit_[unit];
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
  mark(whole);
  return whole;
}

RunId RunTable::take_at(RunId id, std::uint64_t start, std::uint32_t units, RunKind kind) {
  erase_free(id);
  const std::uint64_t old_end = runs_[id].end();
  const TicketSet tickets = runs_[id].tickets;
  GPUPOOL_CHECK(runs_[id].start <= start && start + units <= old_end);
  if (runs_[id].start < start) {
    // The front keeps the record; what is taken gets one of its own.
    runs_[id].units = static_cast<std::uint32_t>(start - runs_[id].start);
    mark(id);
    insert_free(id);
    id = new_run(start, units, kind);
    ++splits_;
  }
  if (start + units < old_end) {
    const RunId rest =
        new_run(start + units, static_cast<std::uint32_t>(old_end - start - units), RunKind::free);
    runs_[rest].tickets = tickets;
    insert_free(rest);
    ++splits_;
  }
  Run& run = runs_[id];
  run.units = units;
  run.kind = kind;
  run.tickets = tickets;
  mark(id);
  return id;
}

void RunTable::put(RunId id, const TicketSet& tickets) {
  Run& run = runs_[id];
  GPUPOOL_CHECK(run.kind != RunKind::free && run.kind != RunKind::unused);
  run.tickets = tickets;
  run.tickets.prune(streams_);
  const StreamIndex holder = run.tickets.holder();
  const RunId before = free_before(run.start);
  if (before != 0 && runs_[before].holder == holder) join(id, before);
  const RunId after = free_at(run.end());
  if (after != 0 && runs_[after].holder == holder) join(id, after);
  mark(id);
  insert_free(id);
}

void RunTable::join(RunId id, RunId neighbour) {
  erase_free(neighbour);
  Run& run = runs_[id];
  run.start = std::min(run.start, runs_[neighbour].start);
  run.units += runs_[neighbour].units;
  run.tickets.add(runs_[neighbour].tickets, streams_);
  drop(neighbour);
  ++merges_;
}

void RunTable::add(std::uint64_t start, std::uint32_t units) {
  put(new_run(start, units, RunKind::leaving), TicketSet());
}

void RunTable::remove(RunId id) {
  by_unit_[runs_[id].start] = 0;
  by_unit_[runs_[id].end() - 1] = 0;
  drop(id);
}

}  // namespace gpupool::internal
