// take() and put(), and the few steps they are made of. Those are inlined by force: each has one or
// two callers that matter, and the registers that a call saves would cost as much as the step.
#include "runs/run_table.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/units.h"

namespace gpupool::internal {

RunTable::RunTable(StreamTable& streams, const std::vector<std::uint64_t>& watched_sizes)
    : streams_(streams), ready_(runs_), nobodys_(runs_) {
  for (const std::uint64_t bytes : watched_sizes) {
    watched_.push_back({bytes, 0});
    shortest_watched_units_ = std::min(shortest_watched_units_, divide_up(bytes, kUnitBytes));
  }
}

bool RunTable::reserve(std::uint64_t unit_capacity, std::uint64_t max_backed_units) {
  // At most one run a backed unit; one more record while a run is being cut.
  return max_backed_units + 2 < kInChunk && by_unit_.reserve(unit_capacity + 1) &&
         runs_.reserve(max_backed_units + 2);
}

void RunTable::know_stream(StreamIndex stream) {
  while (by_stream_.size() <= stream) by_stream_.push_back(std::make_unique<OwnRuns>(runs_));
}

// Records.

[[gnu::always_inline]] inline RunId RunTable::new_run(std::uint64_t start, std::uint32_t units,
                                                      RunKind kind) {
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
  run.next = 0;
  ++run_count_;
  return id;
}

[[gnu::always_inline]] inline void RunTable::mark(const Run& run, RunId entry) {
  by_unit_[run.start] = entry;
  by_unit_[run.end() - 1] = entry;
}

// The indices of free runs.

[[gnu::always_inline]] inline void RunTable::count_ready(std::uint32_t units, bool added) noexcept {
  // Unsigned arithmetic wraps both ways, so that one step serves adding and taking away.
  const std::uint64_t delta = added ? units : 0 - std::uint64_t{units};
  Ready& ready = ready_by_log2_[static_cast<std::uint32_t>(std::bit_width(units)) - 1];
  ready_units_ += delta;
  ready.runs += added ? 1 : ~std::uint64_t{0};
  ready.units += delta;
  if (units >= shortest_watched_units_) count_long(units, delta);
}

void RunTable::count_long(std::uint32_t units, std::uint64_t delta) noexcept {
  for (Watched& watched : watched_) {
    if (units * kUnitBytes >= watched.bytes) watched.usable_units += delta;
  }
}

[[gnu::always_inline]] inline void RunTable::insert_free(RunId id, StreamIndex holder) {
  Run& run = runs_[id];
  run.kind = RunKind::free;
  run.holder = holder;
  if (holder == kAnybody) {
    ready_.insert(id, run);
    count_ready(run.units, true);
  } else {
    index_of(holder).insert(id, run);
    count_pending(holder, run.units);
  }
}

[[gnu::always_inline]] inline void RunTable::erase_free(RunId id) {
  const Run& run = runs_[id];
  if (run.holder == kAnybody) {
    ready_.erase(id, run);
    count_ready(run.units, false);
  } else {
    index_of(run.holder).erase(id, run);
    count_pending(run.holder, 0 - std::uint64_t{run.units});
  }
}

void RunTable::refresh() {
  // A run that comes out of an index goes into another one, and joins neighbours of that one
  // alone: so the next of the index that is walked stays where it is.
  for (StreamIndex stream = 0; stream < by_stream_.size(); ++stream) {
    OwnRuns& own = *by_stream_[stream];
    const std::uint64_t complete = streams_.complete_epoch(stream);
    if (own.complete_epoch == complete) continue;
    own.complete_epoch = complete;
    for (RunId id = own.index.first_walked(); id != 0;) {
      const RunId next = own.index.next_walked(id);
      runs_[id].tickets.prune(streams_);
      if (runs_[id].tickets.empty()) put_again(own.index, id);
      id = next;
    }
  }
  // Last: what becomes a stream's own here must not join what that stream has just completed.
  for (RunId id = nobodys_.first_walked(); id != 0;) {
    const RunId next = nobodys_.next_walked(id);
    runs_[id].tickets.prune(streams_);
    if (runs_[id].tickets.holder() != kNobody) put_again(nobodys_, id);
    id = next;
  }
}

void RunTable::put_again(RunIndex& index, RunId id) {
  index.erase(id);
  count_pending(runs_[id].holder, 0 - std::uint64_t{runs_[id].units});
  settle(id);
}

// Searching.

[[gnu::always_inline]] inline RunId RunTable::find_in(const RunIndex& index, std::uint32_t units,
                                                      std::uint32_t align_units,
                                                      Reach reach) const {
  const RunId id = index.find_at_least(units);
  if (id == 0) return 0;
  const Run& run = runs_[id];
  const bool fits = round_up(run.start, align_units) + units <= run.end();
  return fits && run.end() != end_ ? id : find_from(index, id, units, align_units, reach);
}

[[gnu::always_inline]] inline RunId RunTable::find(std::uint32_t units, std::uint32_t align_units,
                                                   StreamIndex stream, Reach reach) const {
  const RunId ready = find_in(ready_, units, align_units, reach);
  if (!has_own(stream)) return ready;
  const RunId own = find_in(by_stream_[stream]->index, units, align_units, reach);
  if (ready == 0 || own == 0) return ready + own;
  const Run& a = runs_[ready];
  const Run& b = runs_[own];
  if ((a.end() == end_) != (b.end() == end_)) return a.end() == end_ ? own : ready;
  if (a.units != b.units) return a.units < b.units ? ready : own;
  return a.start < b.start ? ready : own;
}

bool RunTable::can_take(std::uint32_t units, std::uint32_t align_units, StreamIndex stream,
                        Reach reach) const {
  return find(units, align_units, stream, reach) != 0 ||
         can_take_across(units, align_units, stream, reach);
}

// Taking and giving back.

RunId RunTable::take(std::uint32_t units, std::uint32_t align_units, StreamIndex stream,
                     Reach reach, RunKind kind) {
  const RunId id = find(units, align_units, stream, reach);
  if (id == 0) return take_across(units, align_units, stream, reach, kind);
  return take_from(id, round_up(runs_[id].start, align_units), units, kind);
}

RunId RunTable::take_at(RunId id, std::uint64_t start, std::uint32_t units, RunKind kind) {
  GPUPOOL_CHECK(runs_[id].start <= start && start + units <= runs_[id].end());
  return take_from(id, start, units, kind);
}

[[gnu::always_inline]] inline RunId RunTable::take_from(RunId id, std::uint64_t start,
                                                        std::uint32_t units, RunKind kind) {
  Run& run = runs_[id];
  erase_free(id);
  if (units != run.units) return cut(id, start, units, kind);
  run.kind = kind;
  mark(run, id);
  return id;
}

[[gnu::always_inline]] inline RunId RunTable::cut(RunId id, std::uint64_t start,
                                                  std::uint32_t units, RunKind kind) {
  Run& run = runs_[id];
  const RunId taken = new_run(start, units, kind);
  runs_[taken].tickets = run.tickets;
  mark(runs_[taken], taken);
  ++splits_;
  if (run.start == start) {
    run.start += units;
    run.units -= units;
    by_unit_[run.start] = id | kFree;
  } else {
    cut_off_rest(id, start + units);
    run.units = static_cast<std::uint32_t>(start - run.start);
    by_unit_[start - 1] = id | kFree;
  }
  run.tickets.prune(streams_);
  insert_free(id, run.tickets.holder());
  return taken;
}

void RunTable::cut_off_rest(RunId id, std::uint64_t start) {
  const Run& run = runs_[id];
  if (start == run.end()) return;
  const RunId rest = new_run(start, static_cast<std::uint32_t>(run.end() - start), RunKind::free);
  TicketSet& tickets = runs_[rest].tickets;
  tickets = run.tickets;
  tickets.prune(streams_);
  mark(runs_[rest], rest | kFree);
  insert_free(rest, tickets.holder());
  ++splits_;
}

void RunTable::put(RunId id, const TicketSet& tickets) {
  Run& run = runs_[id];
  GPUPOOL_CHECK(run.kind != RunKind::free && run.kind != RunKind::unused);
  run.tickets = tickets;
  run.tickets.prune(streams_);
  settle(id);
}

[[gnu::always_inline]] inline void RunTable::settle(RunId id) {
  Run& run = runs_[id];
  const StreamIndex holder = run.tickets.holder();
  const RunId before = free_before(run.start);
  const RunId after = free_at(run.end());
  RunId kept = id;
  if (before != 0 && runs_[before].holder == holder) {
    erase_free(before);
    // In this order: the run's own tickets, then what its neighbours add to them.
    run.tickets.add(runs_[before].tickets, streams_);
    runs_[before].tickets = run.tickets;
    kept = before;
    take_in(kept, id);
  } else {
    by_unit_[run.start] = id | kFree;
  }
  if (after != 0 && runs_[after].holder == holder) {
    erase_free(after);
    runs_[kept].tickets.add(runs_[after].tickets, streams_);
    take_in(kept, after);
  }
  by_unit_[runs_[kept].end() - 1] = kept | kFree;
  // Whose it is does not change: what is unfinished of the run's own tickets still is.
  if (holder == kNobody) runs_[kept].tickets.prune(streams_);
  insert_free(kept, holder);
}

[[gnu::always_inline]] inline void RunTable::take_in(RunId kept, RunId gone) {
  runs_[kept].units += runs_[gone].units;
  drop(gone);
  ++merges_;
}

void RunTable::add(std::uint64_t start, std::uint32_t units) {
  unit_high_water_ = std::max(unit_high_water_, start + units);
  const RunId id = new_run(start, units, RunKind::leaving);
  put(id, TicketSet());
}

void RunTable::remove(RunId id) {
  Run& run = runs_[id];
  by_unit_[run.start] = 0;
  by_unit_[run.end() - 1] = 0;
  drop(id);
}

}  // namespace gpupool::internal
