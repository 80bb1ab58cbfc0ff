// A device's memory as one line of pages, some of them backed.
//
// Tiers above speak of units and pages by number; the arena turns them into addresses and back,
// and gets and returns what is behind them. Two kinds: VmmArena (one address range, so that the
// line is contiguous) and SegmentArena (cudaMalloc, contiguous only inside a segment).
//
//   held_bytes = sum of backed mappings + what a failed give-back left behind (stuck)
//
// A mapping is the smallest thing that can be given back or moved: one physical handle or one
// segment. One that is moved is mapped at its new pages first, and at its old ones until later:
// those are stale, neither backed nor to be backed, until they are unmapped.
//
// Thread safety, in two halves: back(), unback() and unmap() make driver calls, the first two under
// the caller's growth lock, the last under none; everything else runs under the pool's lock.
// commit(), relocate(), withdraw() and end_stale() are how the first half's results become visible
// to the second.
#ifndef GPUPOOL_ARENA_ARENA_H_
#define GPUPOOL_ARENA_ARENA_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "arena/address_map.h"
#include "arena/hole_list.h"
#include "arena/page_span.h"
#include "backend/driver.h"
#include "base/lazy_array.h"
#include "base/units.h"
#include "gpupool/options.h"
#include "gpupool/status.h"
#include "stream/ticket_set.h"

namespace gpupool::internal {

/// A handle or segment and where it lies.
struct Mapping {
  PageSpan pages;
  DeviceAddress address = 0;  // of its first page; 0: on no page any more
  std::uint64_t bytes = 0;    // held from the driver for it
  PhysicalHandle handle;      // VMM
  DeviceAddress segment = 0;  // what cudaMalloc returned
  std::uint32_t index = 0;    // in the arena's table, plus 1; 0: not in it
  std::uint32_t aliases = 0;  // stale addresses where it is mapped as well
  bool is_alias = false;      // stuck: it is one of those that could not be unmapped
};

/// Where a moved mapping was, and still is mapped.
struct Stale {
  PageSpan pages;
  DeviceAddress address = 0;
  std::uint32_t mapping = 0;  // the index of the mapping
  TicketSet tickets;          // who may still be using the memory by that address
};

class Arena {
 public:
  virtual ~Arena() = default;

  /// True where neighbouring pages are neighbouring addresses, whatever mapping they belong to.
  virtual bool is_contiguous() const noexcept = 0;
  DeviceAddress address_of(std::uint64_t unit) const noexcept {
    return addresses_.address_of(unit);
  }
  /// The unit that holds `address`, if a page of it is backed.
  std::optional<std::uint64_t> find_unit(DeviceAddress address) const noexcept {
    const std::uint64_t unit = addresses_.unit_at(address);
    if (unit == kNoUnit || !is_backed(unit / kUnitsPerPage)) return std::nullopt;
    return unit;
  }
  /// For whoever asks without the pool's lock.
  const AddressMap& addresses() const noexcept { return addresses_; }

  /// Gets memory from the driver for each of `targets`, whose pages are unbacked and not being
  /// backed: maps its handle, where it has one, or a new one. All or nothing: on an error what had
  /// been mapped is unmapped, and what was new is given back; what could not be is in `stuck`.
  /// Targets for which there was a handle that could be mapped still name it, which says how much
  /// there is.
  /// Never takes more than `budget_bytes`. Requires: targets are sorted by their pages.
  virtual Result<void> back(std::vector<Mapping>& targets, std::uint64_t budget_bytes,
                            std::vector<Mapping>& stuck) = 0;
  /// Gives `mapping` back. On an error it is as before. Memory that is off the line, but that the
  /// driver would not take, is in `stuck`.
  virtual Result<void> unback(const Mapping& mapping, std::vector<Mapping>& stuck) = 0;

  /// More of the line, as much as there was at the start: reserves addresses for it, and shows it.
  /// False where it is as long as it may be.
  virtual bool can_extend() const noexcept { return false; }
  virtual Result<DeviceAddress> reserve_more() { return Error::not_supported; }
  virtual void extend(DeviceAddress) {}
  /// Unmaps stale addresses in a row.
  virtual Result<void> unmap(DeviceAddress address, std::uint64_t bytes) = 0;

  /// Shows pages got by back().
  void commit(const std::vector<Mapping>& mappings);
  /// Hides a mapping that unback() has given, or is about to give, back.
  void withdraw(const Mapping& mapping);
  /// Shows that a mapping of before is at new pages now, too; its old ones are stale.
  void relocate(const Mapping& to, const TicketSet& tickets);
  /// Where moved mappings were. Some of it may be unmapped by a thread at this moment.
  std::uint64_t stale_pages() const noexcept { return stale_pages_; }
  /// Takes up to `most_pages` of it that nobody uses any more, which the caller unmaps: the oldest
  /// first, those that had to wait for work behind those that had not. Cost: O(1) for each that is
  /// taken; a step for each that waits, where more work has become complete since the last call.
  std::vector<Stale> take_stale(const StreamTable& streams, std::uint64_t most_pages);
  /// They are unmapped; or, where the driver refused, are to be tried again.
  void end_stale(const std::vector<Stale>& stale, bool is_unmapped);
  /// Keeps account of memory that the driver would not take back. What is on the line still
  /// (address != 0) keeps its pages, which no run covers.
  void keep_stuck(const std::vector<Mapping>& stuck);
  /// What is stuck, to be tried again with unback() and then told by forget_stuck().
  const std::vector<Mapping>& stuck() const noexcept { return stuck_; }
  void forget_stuck(const Mapping& mapping);

  /// Where `pages` pages could be backed: a hole that an earlier give-back left, or the end of
  /// the line. Nothing where the line is used up.
  std::optional<PageSpan> find_unbacked(std::uint64_t pages) const;
  /// The unbacked stretches below the high-water mark, in order.
  const HoleList& holes() const noexcept { return holes_; }
  /// What they will be when nothing is stale. Cost: O(n log n) for the stale addresses.
  std::vector<PageSpan> holes_once_unmapped() const;
  /// Which pages of [first, end), all of them backed, are of mappings that lie wholly in it.
  PageSpan whole_span(std::uint64_t first, std::uint64_t end) const noexcept {
    if (first >= end) return {};
    return large_mappings_ == 0 ? PageSpan{first, end - first} : whole_span_of_large(first, end);
  }
  std::uint64_t whole_pages(std::uint64_t first, std::uint64_t end) const noexcept {
    return whole_span(first, end).count;
  }
  bool has_large_mappings() const noexcept { return large_mappings_ > 0; }
  /// Whether two pages that are backed are of one mapping.
  bool are_of_one(std::uint64_t a, std::uint64_t b) const noexcept {
    return table_[a].mapping == table_[b].mapping;
  }
  /// The unbacked pages above that mark.
  PageSpan tail() const noexcept { return {high_water_, line_end_ - high_water_}; }
  /// One past the highest page ever backed.
  std::uint64_t high_water() const noexcept { return high_water_; }
  /// The most that the line may have, and how many there are addresses for.
  std::uint64_t page_capacity() const noexcept { return page_capacity_; }
  /// What may be held so that what it is spread over has addresses: the limit that the arena was
  /// made for, and more, as far as ranges that are reserved later have them.
  virtual std::uint64_t most_held_bytes() const noexcept = 0;
  std::uint64_t reserved_pages() const noexcept { return line_end_ + (is_contiguous() ? 1 : 0); }
  bool is_backed(std::uint64_t page) const noexcept {
    return page < high_water_ && table_[page].mapping != 0;
  }
  /// The mapping that `page` belongs to. Requires: is_backed(page).
  const Mapping& mapping_of(std::uint64_t page) const noexcept;

  std::uint64_t held_bytes() const noexcept { return held_bytes_; }
  std::uint64_t stuck_bytes() const noexcept { return stuck_bytes_; }
  /// Bytes of mappings beyond their pages, lost to alignment.
  std::uint64_t overhead_bytes() const noexcept { return overhead_bytes_; }
  std::uint64_t mapping_count() const noexcept { return mapping_count_; }
  std::uint64_t backed_pages() const noexcept {
    return pages_backed_total_ - pages_returned_total_;
  }
  std::uint64_t pages_backed_total() const noexcept { return pages_backed_total_; }
  std::uint64_t pages_returned_total() const noexcept { return pages_returned_total_; }
  std::uint64_t metadata_bytes() const noexcept;
  void check_invariants() const;

 protected:
  /// `line_end`: the first page that must not be backed, yet.
  Arena(Driver& driver, std::uint64_t page_capacity, std::uint64_t line_end);
  bool reserve_tables();
  /// The line goes on from `first` to `end`: what lies before `first` is backed never.
  void extend_line(std::uint64_t first, std::uint64_t end);
  /// A page or more left unbacked between mappings, so that they are never joined.
  virtual std::uint64_t gap_pages() const noexcept = 0;
  virtual void on_commit(const Mapping&) {}
  virtual void on_withdraw(const Mapping&) {}

  Driver& driver_;
  AddressMap addresses_;

 private:
  struct PageEntry {
    std::uint32_t mapping = 0;  // index in mappings_ plus 1; 0: unbacked
  };
  PageSpan whole_span_of_large(std::uint64_t first, std::uint64_t end) const noexcept;
  /// Unbacked pages are backed from now on.
  void fill(PageSpan pages);
  void add_stale(PageSpan pages, DeviceAddress address, std::uint32_t index,
                 const TicketSet& tickets);
  void look_at_waiting(const StreamTable& streams);

  std::uint64_t page_capacity_;
  std::uint64_t line_end_;
  std::uint64_t gaps_ = 0;  // pages below line_end_ that are never backed
  LazyArray<PageEntry> table_;
  std::vector<Mapping> mappings_;
  std::vector<std::uint32_t> free_mappings_;
  HoleList holes_;
  std::vector<Mapping> stuck_;
  std::deque<Stale> stale_;          // that nobody uses any more
  std::vector<Stale> waiting_;       // with tickets as of the last look
  std::uint64_t seen_complete_ = 0;  // epochs, at that look
  std::uint64_t stale_pages_ = 0;    // those being unmapped included
  std::uint64_t high_water_ = 0;
  std::uint64_t held_bytes_ = 0;
  std::uint64_t stuck_bytes_ = 0;
  std::uint64_t overhead_bytes_ = 0;
  std::uint64_t mapping_count_ = 0;
  std::uint64_t large_mappings_ = 0;  // of more than a page
  std::uint64_t pages_backed_total_ = 0;
  std::uint64_t pages_returned_total_ = 0;
};

/// One range of addresses, eight times `limit_bytes` and a power of two (recycling spreads what is
/// held over up to seven times its size), backed by physical handles mapped on demand.
Result<std::unique_ptr<Arena>> make_vmm_arena(Driver& driver, std::uint64_t limit_bytes);

/// Segments by cudaMalloc, for devices and buffers that cannot use VMM.
Result<std::unique_ptr<Arena>> make_segment_arena(Driver& driver, std::uint64_t limit_bytes);

}  // namespace gpupool::internal

#endif  // GPUPOOL_ARENA_ARENA_H_
