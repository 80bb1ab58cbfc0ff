// Tier T3: runs of units. Best fit, lowest address on ties, the last run of the arena only where
// no other is long enough.
//
// Free neighbours join at once where the same streams may use them, and pool their tickets. Others
// stay apart, so that a small piece with unfinished work takes nothing from the ready memory beside
// it; a stream that may use both is served across the border when no single run is long enough.
//
//   free units = units of free runs;   a free run is in exactly one index: that of everybody
//   (all tickets complete), that of the one stream whose work is unfinished, or that of nobody
//   bytes ready = free runs for everybody;   bytes pending = the other free runs
//
// Thread safety: under the pool's lock. Cost: O(log runs) a call, no memory from the heap once a
// stream is known; refresh() O(runs with tickets).
#ifndef GPUPOOL_RUNS_RUN_TABLE_H_
#define GPUPOOL_RUNS_RUN_TABLE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "base/lazy_array.h"
#include "gpupool/stats.h"
#include "runs/run.h"
#include "runs/run_index.h"
#include "stream/stream_table.h"

namespace gpupool::internal {

/// Where a search may look: the free run at the arena's end is what growth extends, and memory
/// taken from it is as good as grown.
enum class Reach : std::uint8_t { before_end, everywhere };

class RunTable {
 public:
  RunTable(StreamTable& streams, const std::vector<std::uint64_t>& watched_sizes);

  /// Makes room for `unit_capacity` units, of which at most `max_backed_units` are backed at once.
  bool reserve(std::uint64_t unit_capacity, std::uint64_t max_backed_units);
  /// Called when a stream is adopted, so that no free ever needs the heap for it.
  void know_stream(StreamIndex stream);

  /// Takes `units` units at a multiple of `align_units` that `stream` may use, where `reach` lets
  /// it; 0 if there are none.
  RunId take(std::uint32_t units, std::uint32_t align_units, StreamIndex stream, Reach reach,
             RunKind kind);
  /// Takes exactly [start, start + units) out of the free run `id` that covers it.
  RunId take_at(RunId id, std::uint64_t start, std::uint32_t units, RunKind kind);
  /// Gives a taken run back, joined with its free neighbours.
  void put(RunId id, const TicketSet& tickets);
  /// New units, free for everybody.
  void add(std::uint64_t start, std::uint32_t units);
  /// Forgets a taken run whose units are backed no more.
  void remove(RunId id);
  /// Looks again at runs with tickets after work has become complete.
  void refresh();

  Run& operator[](RunId id) noexcept { return runs_[id]; }
  const Run& operator[](RunId id) const noexcept { return runs_[id]; }
  /// The run that `unit` belongs to, as far as its table entry says; the caller checks the run.
  RunId at(std::uint64_t unit) const noexcept { return by_unit_[unit]; }
  /// The free run that ends just before / starts at `unit`; 0 if there is none.
  RunId free_before(std::uint64_t unit) const noexcept;
  RunId free_at(std::uint64_t unit) const noexcept;
  bool is_usable(RunId id, StreamIndex stream) const noexcept {
    return runs_[id].holder == kAnybody || runs_[id].holder == stream;
  }
  /// Units in a row that `stream` may use, up to / from `unit`, at a multiple of `align_units`.
  std::uint64_t usable_units_before(std::uint64_t unit, std::uint32_t align_units,
                                    StreamIndex stream) const;
  std::uint64_t usable_units_after(std::uint64_t unit, StreamIndex stream) const;
  /// The longest free run that everybody may use, and the longest stretch of free runs whoever's.
  std::uint64_t largest_ready_units() const;
  std::uint64_t largest_free_units() const;
  /// Whether take() would find something.
  bool can_take(std::uint64_t units, std::uint32_t align_units, StreamIndex stream,
                Reach reach) const;

  /// Where the arena ends: the free run there is kept for last.
  void set_end(std::uint64_t unit) noexcept { end_ = unit; }
  std::uint64_t ready_bytes() const noexcept { return ready_bytes_; }
  std::uint64_t pending_bytes() const noexcept { return pending_bytes_; }
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
  RunId new_run(std::uint64_t start, std::uint32_t units, RunKind kind);
  void drop(RunId id);
  void mark(RunId id);
  void insert_free(RunId id);
  void erase_free(RunId id);
  void count_ready(const Run& run, bool added);
  RunIndex& index_of(StreamIndex holder);
  RunId find_in(const RunIndex& index, std::uint64_t units, std::uint32_t align_units,
                Reach reach) const;
  bool fits(const Run& run, std::uint64_t units, std::uint32_t align_units) const noexcept;
  RunId find(std::uint64_t units, std::uint32_t align_units, StreamIndex stream, Reach reach) const;
  std::uint64_t find_across(std::uint64_t units, std::uint32_t align_units, StreamIndex stream,
                            Reach reach) const;
  RunId take_across(std::uint64_t start, std::uint32_t units, RunKind kind);
  void join(RunId id, RunId neighbour);

  StreamTable& streams_;
  LazyArray<Run> runs_;
  LazyArray<RunId> by_unit_;
  RunIndex ready_;
  RunIndex nobodys_;
  std::vector<RunIndex> by_stream_;
  RunId unused_ = 0;   // list of free records, through `next`
  RunId pending_ = 0;  // list of free runs with tickets
  RunId id_end_ = 1;
  std::uint64_t end_ = 0;
  std::uint64_t unit_high_water_ = 0;
  std::uint64_t run_count_ = 0;
  std::uint64_t ready_bytes_ = 0;
  std::uint64_t pending_bytes_ = 0;
  std::uint64_t splits_ = 0;
  std::uint64_t merges_ = 0;
  std::array<std::uint64_t, kSizeLog2Count> ready_by_log2_{};
  std::array<std::uint64_t, kSizeLog2Count> ready_bytes_by_log2_{};
  std::vector<std::uint64_t> watched_sizes_;
  std::array<std::uint64_t, kMaxWatchedSizes> unusable_bytes_{};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_RUNS_RUN_TABLE_H_
