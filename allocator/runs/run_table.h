// Tier T3: runs of units. Best fit, lowest address on ties, the last run of the arena only where
// no other is long enough.
//
// Free neighbours join at once where the same streams may use them, and pool their tickets; what a
// private pool pins and nobody may use does not, while it is pinned. Others stay apart, so that a
// small piece with unfinished work takes nothing from the ready memory beside it; a stream that may
// use both is served across the border when no single run is long enough.
//
//   free units = units of free runs;   a free run is in exactly one index: that of everybody
//   (all tickets complete), that of the one stream whose work is unfinished, or that of nobody
//   bytes ready = free runs for everybody;   bytes pending = the other free runs
//
// A run that is cut or joined keeps its record where it can, since that leaves its far end's entry
// in the table of units alone, which is a cache line of its own.
//
// As long as no more than one stream is known, all free runs are everybody's, whatever their
// tickets say: what that stream does next comes after all that it did. With the second stream they
// part.
//
// Thread safety: under the pool's lock. Cost: of take() and put() that of RunIndex; take() that
// finds no single run looks at each free run of the stream's own; refresh() looks at the runs of
// nobody and of those streams of which more has become complete. No memory from the heap once a
// stream is known.
#ifndef GPUPOOL_RUNS_RUN_TABLE_H_
#define GPUPOOL_RUNS_RUN_TABLE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "arena/arena.h"
#include "base/lazy_array.h"
#include "base/units.h"
#include "gpupool/stats.h"
#include "runs/page_rows.h"
#include "runs/page_tickets.h"
#include "runs/run.h"
#include "runs/run_index.h"
#include "runs/seams.h"
#include "stream/stream_table.h"

namespace gpupool::internal {

/// Where a search may look: the free run at the arena's end is what growth extends, and memory
/// taken from it is as good as grown.
enum class Reach : std::uint8_t { before_end, everywhere };

/// As an alignment: anywhere, but so that no border of pages lies inside. Of few units: what is
/// small is to keep one page from being empty, and not two.
inline constexpr std::uint32_t kWithinPage = 0;

/// The first place from `start` on where `units` units may begin.
constexpr std::uint64_t first_place(std::uint64_t start, std::uint32_t units,
                                    std::uint32_t align_units) noexcept {
  if (align_units != kWithinPage) return round_up(start, align_units);
  return start % kUnitsPerPage + units <= kUnitsPerPage ? start : round_up(start, kUnitsPerPage);
}
/// The last place up to `start`.
constexpr std::uint64_t last_place(std::uint64_t start, std::uint32_t units,
                                   std::uint32_t align_units) noexcept {
  if (align_units != kWithinPage) return round_down(start, align_units);
  const std::uint64_t place = start % kUnitsPerPage;
  return place + units <= kUnitsPerPage ? start : start - place + kUnitsPerPage - units;
}

class RunTable {
 public:
  RunTable(StreamTable& streams, const std::vector<std::uint64_t>& watched_sizes);

  /// Makes room for `unit_capacity` units, of which at most `max_backed_units` are backed at once.
  /// `arena`: what backs them; nullptr: pages that each lie by themselves.
  bool reserve(std::uint64_t unit_capacity, std::uint64_t max_backed_units,
               const Arena* arena = nullptr);
  /// Called when a stream is adopted, so that no free ever needs the heap for it.
  void know_stream(StreamIndex stream);

  /// Takes `units` units at a multiple of `align_units`, or kWithinPage, that `stream` may use,
  /// where `reach` lets it; 0 if there are none.
  RunId take(std::uint32_t units, std::uint32_t align_units, StreamIndex stream, Reach reach,
             RunKind kind);
  /// Of what others may still be using: the run in which so many units fit and all of whose tickets
  /// `may_take(ticket)`; 0 if none was found. Cost: a step for each stream, and a few for those
  /// that have such runs: kMaxLooks of each are looked at.
  template <class MayTake>
  RunId find_of_others(std::uint32_t units, std::uint32_t align_units, MayTake may_take) const;
  static constexpr int kMaxLooks = 64;
  /// Takes `units` out of a run that this found.
  RunId take_found(RunId id, std::uint32_t units, std::uint32_t align_units, RunKind kind) {
    return take_at(id, first_place(runs_[id].start, units, align_units), units, kind);
  }
  /// Takes exactly [start, start + units) out of the free run `id` that covers it. What is left in
  /// front of it keeps the id.
  RunId take_at(RunId id, std::uint64_t start, std::uint32_t units, RunKind kind);
  /// Gives a taken run back, joined with its free neighbours.
  void put(RunId id, const TicketSet& tickets);
  /// New units; `tickets`: who may still be using what backs them.
  void add(std::uint64_t start, std::uint32_t units, const TicketSet& tickets = TicketSet());
  /// Forgets a taken run whose units are backed no more.
  void remove(RunId id);
  /// Looks again at runs with tickets after work has become complete.
  void refresh();
  /// As if there were more than one stream; back to how it was, if there is not. For questions on
  /// behalf of one that is not known. Cost: each run.
  void part();
  void unite();
  /// Whether pages are kept track of, as those that are to move or go back by themselves need: how
  /// many are empty, and who may still be using each. Else there is nothing empty, and what is said
  /// of a page is what is known of its run. Cost: each run, when it begins.
  void track_pages(bool is_on);
  /// Whether nobody may still be using the pages, all of which are of the free run `id`.
  bool are_idle(RunId id, PageSpan pages) const;
  /// The tickets of such pages: those of the run are more, of all that was ever joined to it.
  TicketSet tickets_of(RunId id, PageSpan pages) const;
  bool is_alone() const noexcept { return is_alone_; }
  /// Pages, of mappings that are wholly free and ready.
  std::uint64_t empty_pages() const noexcept { return empty_pages_; }
  /// Those of them that nobody may still be using. Cost: where one stream is known, whose runs are
  /// ready whatever it is still at, a few instructions for each that is empty.
  std::uint64_t idle_pages() const;
  /// The fewest that there were since the last call.
  std::uint64_t take_fewest_empty_pages() noexcept {
    return std::exchange(fewest_empty_pages_, empty_pages_);
  }
  /// Parts of pending runs that are idle, by their pages, become everybody's. Takes memory from the
  /// heap. Cost: a step for each page of pending runs of those streams of which more has become
  /// complete; of what is freed nothing is idle before.
  void part_idle();
  /// Calls `visit(id)` for each free run of a page or more that everybody may use, and then for
  /// those that only `stream` may, shortest first, the end of the arena last; until it gives false.
  template <class Visit>
  void for_each_long(StreamIndex stream, Visit visit) const;
  /// The same for each free run of at least `units` that everybody may use, each that only `stream`
  /// may, whatever its length, and the end of the arena; in no order. False where one gave false.
  template <class Visit>
  bool for_each_usable(std::uint32_t units, StreamIndex stream, Visit visit) const;

  Run& operator[](RunId id) noexcept { return runs_[id]; }
  const Run& operator[](RunId id) const noexcept { return runs_[id]; }
  /// The run that `unit` belongs to, as far as its table entry says; the caller checks the run. 0
  /// inside a chunk.
  RunId at(std::uint64_t unit) const noexcept {
    const RunId entry = by_unit_[unit];
    return (entry & kInChunk) != 0 ? 0 : entry & ~kFree;
  }
  // For whoever looks without the pool's lock: what the table says of a unit.
  /// Bits of an entry that are not of a run's id.
  static constexpr RunId kFree = RunId{1} << 31;  // first or last of a free run
  static constexpr RunId kInChunk = RunId{1}
                                    << 30;  // and its place in the chunk, see BlockDirectory
  Racy<RunId>* entries() noexcept { return &by_unit_[0]; }
  Run* records() noexcept { return &runs_[0]; }
  /// The free run that ends just before / starts at `unit`; 0 if there is none.
  RunId free_before(std::uint64_t unit) const noexcept {
    if (unit == 0 || (by_unit_[unit - 1] & kFree) == 0) return 0;
    const RunId id = by_unit_[unit - 1] & ~kFree;
    return runs_[id].kind == RunKind::free && runs_[id].end() == unit ? id : 0;
  }
  RunId free_at(std::uint64_t unit) const noexcept {
    if ((by_unit_[unit] & kFree) == 0) return 0;
    const RunId id = by_unit_[unit] & ~kFree;
    return runs_[id].kind == RunKind::free && runs_[id].start == unit ? id : 0;
  }
  bool is_usable(RunId id, StreamIndex stream) const noexcept {
    return runs_[id].holder == kAnybody || runs_[id].holder == stream;
  }
  /// Units in a row that `stream` may use, up to / from `unit`.
  std::uint64_t usable_units_before(std::uint64_t unit, StreamIndex stream) const;
  std::uint64_t usable_units_after(std::uint64_t unit, StreamIndex stream) const;
  /// The longest free run that everybody may use, and the longest stretch of free runs whoever's,
  /// but for what a private pool has, for which nobody can wait. Cost of the latter: a step for
  /// each stream and for each run in a stretch of several.
  std::uint64_t largest_ready_units() const;
  std::uint64_t largest_free_units() const;
  /// What empty_pages() would be if all work were complete, but for what a private pool has. Cost:
  /// as before, and for each pending run of a page or more.
  std::uint64_t pages_once_complete() const;
  /// Whether take() would find something.
  bool can_take(std::uint32_t units, std::uint32_t align_units, StreamIndex stream,
                Reach reach) const;

  /// Of free runs that `stream` alone may use.
  std::uint64_t own_bytes(StreamIndex stream) const noexcept {
    return stream < by_stream_.size() ? by_stream_[stream]->units * kUnitBytes : 0;
  }
  /// Whether the pages of free runs that are `stream`'s alone may move: not those of a private
  /// pool.
  bool may_move_own(StreamIndex stream) const noexcept { return !streams_.is_pseudo(stream); }
  /// Whether free runs wait for work that is not of `stream` alone.
  bool has_of_others(StreamIndex stream) const noexcept;
  /// Whether they wait for the work of more than one stream.
  bool has_several_owners() const noexcept;

  /// Where the arena ends: the free run there is kept for last.
  void set_end(std::uint64_t unit);
  /// What lies free at the end now counts as never used.
  void restart_use() noexcept {
    used_end_ = end_;
    widened_units_ = 0;
    if (end_run_ != 0) used_end_ = runs_[end_run_].start;
  }
  /// As if `units` more had been used at the end, up to `limit` in sum since the last restart.
  void widen_use(std::uint64_t units, std::uint64_t limit) noexcept {
    units = std::min(units, limit - std::min(limit, widened_units_));
    used_end_ += units;
    widened_units_ += units;
  }
  /// Whether the end may be extended by a run of that length without asking what else there is.
  bool is_within_use(std::uint32_t units) const noexcept {
    std::uint64_t start = end_;
    if (end_run_ != 0) start = runs_[end_run_].start;
    return start + units <= used_end_;
  }
  std::uint64_t ready_bytes() const noexcept { return ready_units_ * kUnitBytes; }
  std::uint64_t pending_bytes() const noexcept { return pending_units_ * kUnitBytes; }
  /// Of pending: what waits for that stream's work alone; of kNobody, for that of several.
  std::uint64_t pending_bytes_of(StreamIndex stream) const noexcept;
  /// Of pending: what several may still be using, a private pool among them.
  std::uint64_t shared_pinned_bytes() const noexcept { return pinned_units_ * kUnitBytes; }
  /// Private pools have ended.
  void look_at_pins() noexcept;
  std::uint64_t run_count() const noexcept { return run_count_; }
  std::uint64_t splits() const noexcept { return splits_; }
  std::uint64_t merges() const noexcept { return merges_; }
  std::uint64_t metadata_bytes() const noexcept;
  /// Fills the fields of `stats` that speak of free runs.
  void add_to(StatsV1& stats) const;
  void check_invariants() const;
  /// Ids in use are in [1, id_end()).
  RunId id_end() const noexcept { return id_end_; }

 private:
  /// No epoch, and no number of them: all is to be looked at.
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  /// What one stream alone may use.
  struct OwnRuns {
    explicit OwnRuns(LazyArray<Run>& runs) noexcept : index(runs) {}
    RunIndex index;
    std::uint64_t units = 0;         // of the runs in it
    std::uint64_t shared_epoch = 0;  // as of the last refresh()
    std::uint64_t parted_epoch = 0;  // complete as of the last part_idle()
  };

  RunId new_run(std::uint64_t start, std::uint32_t units, RunKind kind);
  void drop(RunId id);
  void mark(const Run& run, RunId entry);
  RunId take_from(RunId id, std::uint64_t start, std::uint32_t units, RunKind kind);
  RunId cut(RunId id, std::uint64_t start, std::uint32_t units, RunKind kind);
  /// The free run `id` now ends at `end`; what lies from `start` on becomes one of its own.
  void cut_off_rest(RunId id, std::uint64_t end, std::uint64_t start);
  /// Makes a run that is in no index free, together with its neighbours; gives the one that it is
  /// part of then. Requires: its tickets are pruned.
  RunId settle(RunId id);
  RunId settle_nobodys(RunId id, RunId before, RunId after);
  void pool_tickets(Run& run, RunId before, RunId after);
  /// Into one of its free neighbours, of which there is at least one, with the run's tickets.
  RunId join(RunId id, RunId before, RunId after);
  /// What a private pool and others may still be using waits for both: what it joined would be
  /// pinned as well, and what joined it never be the private pool's again. So it is where streams
  /// are kept apart.
  bool stays_apart(const TicketSet& tickets) const noexcept {
    return streams_.keeps_apart() || (streams_.has_pseudo() && tickets.is_pinned(streams_));
  }
  void look_again(RunId id);
  void part_idle_of(RunId id);
  /// Whether all of a page, of which the free run has a part, is free and out of use.
  bool is_wholly_idle(std::uint64_t page, RunId id) const;
  void set_alone(bool is_alone);
  /// Which index a free run with these tickets stands in.
  StreamIndex holder_of(const TicketSet& tickets) const noexcept {
    return is_alone_ ? kAnybody : tickets.holder();
  }
  void insert_free(RunId id, StreamIndex holder);
  void erase_free(RunId id);
  /// Changes a free run where it stands, if it may stay there.
  void resize_free(RunId id, std::uint64_t start, std::uint32_t units);
  void count_ready(std::uint64_t start, std::uint32_t units, bool added) noexcept;
  /// A ready run that was as `from` is now [start, start + units).
  void recount_ready(const Run& from, std::uint64_t start, std::uint32_t units) noexcept;
  /// The pages of mappings that lie wholly in [start, start + units).
  PageSpan whole_span(std::uint64_t start, std::uint32_t units) const noexcept;
  /// No page of a higher number ever was in a run.
  std::uint64_t page_high_water() const noexcept {
    return divide_up(unit_high_water_, kUnitsPerPage);
  }
  std::uint64_t count_pages(std::uint64_t start, std::uint32_t units) const noexcept {
    return whole_span(start, units).count;
  }
  void count_long(std::uint32_t units, std::uint64_t delta) noexcept;
  /// At the end of a step: within it a run may be in no index, which is to come back.
  void note_fewest() noexcept { fewest_empty_pages_ = std::min(fewest_empty_pages_, empty_pages_); }
  RunIndex& index_of(StreamIndex holder) noexcept {
    return holder == kNobody ? nobodys_ : by_stream_[holder]->index;
  }
  void count_pending(const Run& run, std::uint64_t delta) noexcept {
    // Unsigned arithmetic wraps both ways: what leaves is 0 - units.
    pending_units_ += delta;
    if (run.holder != kNobody) {
      by_stream_[run.holder]->units += delta;
    } else if (run.is_pinned) {
      pinned_units_ += delta;
    }
  }
  bool has_pin(const Run& run) const noexcept {
    return streams_.has_pseudo() && run.tickets.is_pinned(streams_);
  }
  template <class Visit>
  void for_each_pending(Visit visit) const;
  /// The same for each pending run of `units` or more that nothing pins.
  template <class Visit>
  void for_each_waiting(std::uint32_t units, Visit visit) const;
  /// Calls `visit(index)` for each index of pending runs, which lacks that at the end of the arena.
  template <class Visit>
  void for_each_pending_index(Visit visit) const;
  /// Calls `visit(id, end)` for each stretch of several free runs, whosever: the first of them, and
  /// where the last one ends.
  template <class Visit>
  void for_each_row(Visit visit) const;
  /// The free run waits for a private pool to end, or for its stream to be released.
  bool is_pinned(RunId id) const noexcept {
    if (runs_[id].holder == kAnybody) return false;
    return streams_.keeps_apart() ||
           (streams_.has_pseudo() && runs_[id].tickets.is_pinned(streams_));
  }
  void check_indices(std::uint64_t ready_runs, std::uint64_t pending_runs) const;
  RunId find_in(const RunIndex& index, std::uint32_t units, std::uint32_t align_units) const;
  /// The first from `id` on in which that many units fit so.
  RunId find_aligned(const RunIndex& index, RunId id, std::uint32_t units,
                     std::uint32_t align_units) const;
  bool has_own(StreamIndex stream) const noexcept {
    return stream < by_stream_.size() && !by_stream_[stream]->index.empty();
  }
  RunId find(std::uint32_t units, std::uint32_t align_units, StreamIndex stream, Reach reach) const;
  std::uint64_t find_across(std::uint32_t units, std::uint32_t align_units, StreamIndex stream,
                            Reach reach) const;
  bool can_take_across(std::uint32_t units, std::uint32_t align_units, StreamIndex stream,
                       Reach reach) const;
  RunId take_across(std::uint32_t units, std::uint32_t align_units, StreamIndex stream, Reach reach,
                    RunKind kind);

  StreamTable& streams_;
  const Arena* arena_ = nullptr;
  LazyArray<Run> runs_;
  PageTickets page_tickets_;
  // By unit: the run, with kFree where that is free. The two ends of each run are right; they are
  // what neighbours look at, and a neighbour that is taken is left alone so. Between them entries
  // may be of earlier runs, which is why whoever looks there compares with the run he finds.
  LazyArray<Racy<RunId>> by_unit_;
  mutable Seams seams_;  // a look at them drops what is over
  RunIndex ready_;
  RunIndex nobodys_;
  std::uint64_t nobodys_parted_ = 0;  // epochs that were complete at the last part_idle()
  std::vector<std::unique_ptr<OwnRuns>> by_stream_;
  RunId unused_ = 0;  // list of free records, through `next`
  RunId id_end_ = 1;
  std::uint64_t end_ = 0;
  std::uint64_t used_end_ = 0;  // up to where units were taken before, or may be as if they had
  std::uint64_t widened_units_ = 0;
  bool tracks_pages_ = false;
  bool is_alone_ = true;  // no more than one stream was ever known
  RunId end_run_ = 0;     // the free run that ends there, which stands in no index
  std::uint64_t unit_high_water_ = 0;
  std::uint64_t run_count_ = 0;
  std::uint64_t ready_units_ = 0;
  PageRows empty_;  // which they are
  std::uint64_t empty_pages_ = 0;
  std::uint64_t fewest_empty_pages_ = 0;
  std::uint64_t pending_units_ = 0;
  std::uint64_t pinned_units_ = 0;  // of nobody's runs those that are pinned
  std::uint64_t splits_ = 0;
  std::uint64_t merges_ = 0;
  std::uint64_t reuses_ = 0;  // of what one stream had freed, another was the first to take
  struct Ready {
    std::uint64_t runs = 0;
    std::uint64_t units = 0;
  };
  std::array<Ready, 32> ready_by_log2_{};  // of the units of a run
  /// A size somebody waits for, and how many ready units lie in runs that are long enough. Most
  /// runs are shorter than any such size, so those are not counted but the others.
  struct Watched {
    std::uint64_t bytes = 0;
    std::uint64_t usable_units = 0;
  };
  std::vector<Watched> watched_;
  std::uint64_t shortest_watched_units_ = ~std::uint64_t{0};
  /// Of a page or watched: shorter runs count for neither.
  std::uint64_t shortest_counted_units_ = ~std::uint64_t{0};
};

template <class Visit>
void RunTable::for_each_long(StreamIndex stream, Visit visit) const {
  const auto walk = [&](const RunIndex& index) {
    for (RunId id = index.find_at_least(kUnitsPerPage); id != 0; id = index.after(id)) {
      if (!visit(id)) return false;
    }
    return true;
  };
  if (!walk(ready_)) return;
  if (has_own(stream) && !walk(by_stream_[stream]->index)) return;
  if (end_run_ != 0 && is_usable(end_run_, stream)) visit(end_run_);
}

template <class Visit>
bool RunTable::for_each_usable(std::uint32_t units, StreamIndex stream, Visit visit) const {
  for (RunId id = ready_.find_at_least(units); id != 0; id = ready_.after(id)) {
    if (!visit(id)) return false;
  }
  if (has_own(stream)) {
    const RunIndex& own = by_stream_[stream]->index;
    for (RunId id = own.first_walked(); id != 0; id = own.next_walked(id)) {
      if (!visit(id)) return false;
    }
  }
  return end_run_ == 0 || !is_usable(end_run_, stream) || visit(end_run_);
}

template <class MayTake>
RunId RunTable::find_of_others(std::uint32_t units, std::uint32_t align_units,
                               MayTake may_take) const {
  RunId best = 0;
  const auto look = [&](RunId id) {
    const Run& run = runs_[id];
    if (best != 0 && runs_[best].units <= run.units) return;
    if (first_place(run.start, units, align_units) + units > run.end()) return;
    if (run.tickets.has_fence()) return;
    for (std::size_t i = 0; i < run.tickets.count(); ++i) {
      if (!may_take(run.tickets[i])) return;
    }
    best = id;
  };
  for_each_pending_index([&](const RunIndex& index) {
    int looks = 0;
    for (RunId id = index.find_at_least(units); id != 0 && looks < kMaxLooks; ++looks) {
      look(id);
      id = index.after(id);
    }
  });
  if (best == 0 && end_run_ != 0 && runs_[end_run_].holder != kAnybody) look(end_run_);
  return best;
}

template <class Visit>
void RunTable::for_each_pending_index(Visit visit) const {
  visit(nobodys_);
  for (const auto& own : by_stream_) visit(own->index);
}

template <class Visit>
void RunTable::for_each_pending(Visit visit) const {
  for_each_pending_index([&](const RunIndex& index) {
    for (RunId id = index.first_walked(); id != 0; id = index.next_walked(id)) visit(id);
  });
  if (end_run_ != 0 && runs_[end_run_].holder != kAnybody) visit(end_run_);
}

inline void RunTable::drop(RunId id) {
  Run& run = runs_[id];
  run.kind = RunKind::unused;
  run.next = unused_;
  unused_ = id;
  --run_count_;
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_RUNS_RUN_TABLE_H_
