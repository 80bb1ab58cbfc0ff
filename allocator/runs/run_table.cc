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
  shortest_counted_units_ = shortest_watched_units_;
}

bool RunTable::reserve(std::uint64_t unit_capacity, std::uint64_t max_backed_units,
                       const Arena* arena) {
  arena_ = arena;
  // At most one run a backed unit; one more record while a run is being cut.
  return max_backed_units + 2 < kInChunk && by_unit_.reserve(unit_capacity + 1) &&
         runs_.reserve(max_backed_units + 2) && seams_.reserve(unit_capacity + 1) &&
         empty_.reserve(divide_up(unit_capacity, kUnitsPerPage) + 1) &&
         page_tickets_.reserve(divide_up(unit_capacity, kUnitsPerPage) + 1);
}

void RunTable::know_stream(StreamIndex stream) {
  while (by_stream_.size() <= stream) by_stream_.push_back(std::make_unique<OwnRuns>(runs_));
  if (by_stream_.size() > 1) part();
}

void RunTable::part() { set_alone(false); }

void RunTable::unite() { set_alone(by_stream_.size() <= 1); }

void RunTable::set_alone(bool is_alone) {
  if (is_alone_ == is_alone) return;
  is_alone_ = is_alone;
  for (RunId id = 1; id < id_end_; ++id) {
    if (runs_[id].kind == RunKind::free) look_again(id);
  }
  note_fewest();
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

[[gnu::always_inline]] inline void RunTable::count_ready(std::uint64_t start, std::uint32_t units,
                                                         bool added) noexcept {
  // Unsigned arithmetic wraps both ways, so that one step serves adding and taking away.
  const std::uint64_t delta = added ? units : 0 - std::uint64_t{units};
  Ready& ready = ready_by_log2_[static_cast<std::uint32_t>(std::bit_width(units)) - 1];
  ready_units_ += delta;
  ready.runs += added ? 1 : ~std::uint64_t{0};
  ready.units += delta;
  if (units < shortest_counted_units_) return;
  if (const PageSpan pages = whole_span(start, units); pages.count > 0) {
    empty_.flip(pages);
    empty_pages_ += added ? pages.count : 0 - pages.count;
  }
  if (units >= shortest_watched_units_) count_long(units, delta);
}

[[gnu::always_inline]] inline void RunTable::recount_ready(const Run& from, std::uint64_t start,
                                                           std::uint32_t units) noexcept {
  // In the same bin most often, and then in the same power of two, but for the run at the end.
  const std::uint32_t before = from.units;
  if (std::bit_width(before) != std::bit_width(units)) {
    count_ready(from.start, before, false);
    return count_ready(start, units, true);
  }
  const std::uint64_t delta = std::uint64_t{units} - before;
  ready_units_ += delta;
  ready_by_log2_[static_cast<std::uint32_t>(std::bit_width(units)) - 1].units += delta;
  if (std::max(before, units) < shortest_counted_units_) return;
  const PageSpan was = whole_span(from.start, before);
  const PageSpan is = whole_span(start, units);
  if (was.count + is.count > 0) {
    empty_.change(was, is);
    empty_pages_ += is.count - was.count;
  }
  if (std::max(before, units) < shortest_watched_units_) return;
  count_long(before, 0 - std::uint64_t{before});
  count_long(units, units);
}

PageSpan RunTable::whole_span(std::uint64_t start, std::uint32_t units) const noexcept {
  if (!tracks_pages_ || units < kUnitsPerPage) return {};
  const std::uint64_t first = divide_up(start, kUnitsPerPage);
  const std::uint64_t end = (start + units) / kUnitsPerPage;
  if (first >= end) return {};
  return arena_ != nullptr ? arena_->whole_span(first, end) : PageSpan{first, end - first};
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
  const bool is_at_end = run.end() == end_;
  if (is_at_end) end_run_ = id;
  if (holder == kAnybody) {
    if (!is_at_end) ready_.insert(id, run);
    return count_ready(run.start, run.units, true);
  }
  pending_units_ += run.units;
  if (holder != kNobody) {
    OwnRuns& own = *by_stream_[holder];
    own.units += run.units;
    if (!is_at_end) own.index.insert(id, run);
  } else {
    if (!is_at_end) nobodys_.insert(id, run);
    run.is_pinned = has_pin(run);
    if (run.is_pinned) pinned_units_ += run.units;
  }
}

[[gnu::always_inline]] inline void RunTable::erase_free(RunId id) {
  const Run& run = runs_[id];
  const bool is_at_end = id == end_run_;
  if (is_at_end) end_run_ = 0;
  if (run.holder == kAnybody) {
    if (!is_at_end) ready_.erase(id, run);
    return count_ready(run.start, run.units, false);
  }
  pending_units_ -= run.units;
  if (run.holder != kNobody) {
    OwnRuns& own = *by_stream_[run.holder];
    own.units -= run.units;
    if (!is_at_end) own.index.erase(id, run);
  } else {
    if (!is_at_end) nobodys_.erase(id, run);
    if (run.is_pinned) pinned_units_ -= run.units;
  }
}

[[gnu::always_inline]] inline void RunTable::resize_free(RunId id, std::uint64_t start,
                                                         std::uint32_t units) {
  Run& run = runs_[id];
  const bool is_at_end = start + units == end_;
  const bool stays =
      id == end_run_
          ? is_at_end
          : !is_at_end &&
                (run.holder == kAnybody ? ready_ : index_of(run.holder)).stays(run, units);
  if (!stays) {
    erase_free(id);
    run.start = start;
    run.units = units;
    return insert_free(id, run.holder);
  }
  if (run.holder == kAnybody) {
    recount_ready(run, start, units);
  } else {
    count_pending(run, std::uint64_t{units} - run.units);
  }
  run.start = start;
  run.units = units;
}

void RunTable::look_at_pins() noexcept {
  const auto look = [this](RunId id) {
    Run& run = runs_[id];
    if (run.holder != kNobody || !run.is_pinned || has_pin(run)) return;
    run.is_pinned = false;
    pinned_units_ -= run.units;
  };
  for (RunId id = nobodys_.first_walked(); id != 0; id = nobodys_.next_walked(id)) look(id);
  if (end_run_ != 0) look(end_run_);
}

void RunTable::set_end(std::uint64_t unit) {
  if (unit == end_) return;
  const RunId before = end_run_;
  if (before != 0) erase_free(before);
  const RunId after = free_before(unit);
  if (after != 0 && after != before) erase_free(after);
  end_ = unit;
  used_end_ = std::min(used_end_, end_);
  if (before != 0) insert_free(before, runs_[before].holder);
  if (after != 0 && after != before) insert_free(after, runs_[after].holder);
}

void RunTable::refresh() {
  if (end_run_ != 0 && runs_[end_run_].holder != kAnybody) look_again(end_run_);
  // A run that comes out of an index goes into another one, and joins neighbours of that one
  // alone: so the next of the index that is walked stays where it is.
  for (StreamIndex stream = 0; stream < by_stream_.size(); ++stream) {
    OwnRuns& own = *by_stream_[stream];
    const std::uint64_t shared = streams_.shared_epoch(stream);
    if (own.shared_epoch == shared) continue;
    own.shared_epoch = shared;
    for (RunId id = own.index.first_walked(); id != 0;) {
      const RunId next = own.index.next_walked(id);
      look_again(id);
      id = next;
    }
  }
  // Last: what becomes a stream's own here must not join what that stream has just completed.
  for (RunId id = nobodys_.first_walked(); id != 0;) {
    const RunId next = nobodys_.next_walked(id);
    look_again(id);
    id = next;
  }
}

void RunTable::look_again(RunId id) {
  Run& run = runs_[id];
  run.tickets.forget_shared(streams_);
  StreamIndex holder = holder_of(run.tickets);
  const StreamIndex former = run.holder;
  if (holder == former) {
    if (holder != kNobody || !streams_.keeps_apart()) return;
    run.tickets.keep_first_if_complete(streams_);
    holder = holder_of(run.tickets);
    if (holder == kNobody) return;
  }
  erase_free(id);
  const RunId kept = settle(id);
  // Of all that joins, the latest: who takes first of it is counted, and nobody after.
  if (holder == kAnybody) runs_[kept].freed_by = former + 1;
  // What others used of it may be idle now.
  if (holder == kNobody) {
    nobodys_parted_ = kNever;
  } else if (holder != kAnybody) {
    by_stream_[holder]->parted_epoch = kNever;
  }
}

void RunTable::track_pages(bool is_on) {
  const bool begins = is_on && !tracks_pages_;
  tracks_pages_ = is_on;
  shortest_counted_units_ = shortest_watched_units_;
  if (!is_on) {
    empty_pages_ = fewest_empty_pages_ = 0;
    empty_.clear(page_high_water());
  }
  if (is_on)
    shortest_counted_units_ = std::min<std::uint64_t>(shortest_counted_units_, kUnitsPerPage);
  if (!begins) return;
  nobodys_parted_ = kNever;
  for (const auto& own : by_stream_) own->parted_epoch = kNever;
  for (RunId id = 1; id < id_end_; ++id) {
    const Run& run = runs_[id];
    if (run.kind != RunKind::free) continue;
    page_tickets_.add(run.start, run.end(), run.tickets, streams_);
    if (run.holder != kAnybody) continue;
    const PageSpan pages = whole_span(run.start, run.units);
    empty_.flip(pages);
    empty_pages_ += pages.count;
  }
  fewest_empty_pages_ = empty_pages_;
}

// Searching.

[[gnu::always_inline]] inline RunId RunTable::find_in(const RunIndex& index, std::uint32_t units,
                                                      std::uint32_t align_units) const {
  const RunId id = index.find_at_least(units);
  return align_units == 1 || id == 0 ? id : find_aligned(index, id, units, align_units);
}

[[gnu::always_inline]] inline RunId RunTable::find(std::uint32_t units, std::uint32_t align_units,
                                                   StreamIndex stream, Reach reach) const {
  const RunId ready = find_in(ready_, units, align_units);
  const RunId own = has_own(stream) ? find_in(by_stream_[stream]->index, units, align_units) : 0;
  if (ready != 0 && own != 0) {
    const Run& a = runs_[ready];
    const Run& b = runs_[own];
    if (a.units != b.units) return a.units < b.units ? ready : own;
    return a.start < b.start ? ready : own;
  }
  if ((ready | own) != 0) return ready | own;
  if (end_run_ == 0 || !is_usable(end_run_, stream)) return 0;
  const Run& last = runs_[end_run_];
  const std::uint64_t end =
      reach == Reach::everywhere ? last.end() : std::min(last.end(), used_end_);
  return first_place(last.start, units, align_units) + units <= end ? end_run_ : 0;
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
  Run& run = runs_[id];
  if (run.freed_by != 0) {
    if (run.freed_by != stream + 1) ++reuses_;
    run.freed_by = 0;
  }
  return take_from(id, first_place(run.start, units, align_units), units, kind);
}

RunId RunTable::take_at(RunId id, std::uint64_t start, std::uint32_t units, RunKind kind) {
  GPUPOOL_CHECK(runs_[id].start <= start && start + units <= runs_[id].end());
  return take_from(id, start, units, kind);
}

[[gnu::always_inline]] inline RunId RunTable::take_from(RunId id, std::uint64_t start,
                                                        std::uint32_t units, RunKind kind) {
  Run& run = runs_[id];
  if (id == end_run_) used_end_ = std::max(used_end_, start + units);
  if (units != run.units) {
    id = cut(id, start, units, kind);
  } else {
    erase_free(id);
    run.kind = kind;
    mark(run, id);
  }
  note_fewest();
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
    resize_free(id, start + units, run.units - units);
    by_unit_[start + units] = id | kFree;
  } else {
    cut_off_rest(id, start, start + units);
    by_unit_[start - 1] = id | kFree;
  }
  return taken;
}

void RunTable::cut_off_rest(RunId id, std::uint64_t end, std::uint64_t start) {
  Run& run = runs_[id];
  const std::uint64_t rest_end = run.end();
  resize_free(id, run.start, static_cast<std::uint32_t>(end - run.start));
  if (start == rest_end) return;
  const RunId rest = new_run(start, static_cast<std::uint32_t>(rest_end - start), RunKind::free);
  runs_[rest].tickets = run.tickets;
  mark(runs_[rest], rest | kFree);
  insert_free(rest, run.holder);
  ++splits_;
}

void RunTable::put(RunId id, const TicketSet& tickets) {
  Run& run = runs_[id];
  GPUPOOL_CHECK(run.kind != RunKind::free && run.kind != RunKind::unused);
  run.tickets = tickets;
  if (!is_alone_) run.tickets.forget_shared(streams_);
  if (tracks_pages_) page_tickets_.add(run.start, run.end(), run.tickets, streams_);
  settle(id);
}

[[gnu::always_inline]] inline RunId RunTable::settle(RunId id) {
  Run& run = runs_[id];
  const StreamIndex holder = holder_of(run.tickets);
  RunId before = free_before(run.start);
  RunId after = free_at(run.end());
  if (before != 0 && runs_[before].holder != holder) {
    seams_.note(run.start);
    before = 0;
  }
  if (after != 0 && runs_[after].holder != holder) {
    seams_.note(run.end());
    after = 0;
  }
  if ((before | after) == 0) {
    mark(run, id | kFree);
    insert_free(id, holder);
    return id;
  }
  if (holder == kNobody) [[unlikely]]
    return settle_nobodys(id, before, after);
  pool_tickets(run, before, after);
  return join(id, before, after);
}

RunId RunTable::settle_nobodys(RunId id, RunId before, RunId after) {
  Run& run = runs_[id];
  const bool is_apart = stays_apart(run.tickets);
  if (before != 0 && (is_apart || stays_apart(runs_[before].tickets))) {
    seams_.note(run.start);
    before = 0;
  }
  if (after != 0 && (is_apart || stays_apart(runs_[after].tickets))) {
    seams_.note(run.end());
    after = 0;
  }
  if ((before | after) == 0) {
    mark(run, id | kFree);
    insert_free(id, kNobody);
    return id;
  }
  pool_tickets(run, before, after);
  // Whose it is does not change: what is unfinished of the run's own tickets still is.
  run.tickets.forget_shared(streams_);
  return join(id, before, after);
}

[[gnu::always_inline]] inline void RunTable::pool_tickets(Run& run, RunId before, RunId after) {
  // In this order: the run's own tickets, then what its neighbours add to them.
  if (before != 0) run.tickets.add(runs_[before].tickets, streams_);
  if (after != 0) run.tickets.add(runs_[after].tickets, streams_);
}

[[gnu::always_inline]] inline RunId RunTable::join(RunId id, RunId before, RunId after) {
  const Run& run = runs_[id];
  const std::uint64_t start = before != 0 ? runs_[before].start : run.start;
  const std::uint64_t end = after != 0 ? runs_[after].end() : run.end();
  RunId kept = before;
  if (before == 0) {
    kept = after;
  } else if (after != 0) {
    erase_free(after);
    drop(after);
    ++merges_;
  }
  runs_[kept].tickets = run.tickets;
  resize_free(kept, start, static_cast<std::uint32_t>(end - start));
  drop(id);
  ++merges_;
  // The far end of the one that is kept is right already, and a cache line of its own.
  if (before == 0) {
    by_unit_[start] = kept | kFree;
  } else {
    by_unit_[end - 1] = kept | kFree;
  }
  return kept;
}

void RunTable::add(std::uint64_t start, std::uint32_t units, const TicketSet& tickets) {
  unit_high_water_ = std::max(unit_high_water_, start + units);
  const RunId id = new_run(start, units, RunKind::leaving);
  page_tickets_.reset({start / kUnitsPerPage, divide_up(units, kUnitsPerPage)}, streams_);
  put(id, tickets);
}

void RunTable::remove(RunId id) {
  Run& run = runs_[id];
  by_unit_[run.start] = 0;
  by_unit_[run.end() - 1] = 0;
  drop(id);
}

}  // namespace gpupool::internal
