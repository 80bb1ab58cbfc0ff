// Who may still be using a page, whatever runs its memory has been part of since: a run's tickets
// are the sum of all that was ever joined to it, so that a few kilobytes with unfinished work would
// keep gigabytes of idle pages from moving.
//
//   tickets of a page = its own + those of its group;   both hold at least what is unfinished
//
// A run that is freed leaves its tickets with each page that it touches, and with the groups of
// kGroupPages that it covers instead of their pages, so that freeing a gigabyte writes to dozens of
// places and not to hundreds. Most have one ticket, in a word; those with more have a set besides.
//
// Thread safety: under the pool's lock. Cost: of add() a step for each group and each page at the
// ends. No memory from the heap: two tables that are reserved once, 8 bytes a page and 48 for pages
// that several streams use.
#ifndef GPUPOOL_RUNS_PAGE_TICKETS_H_
#define GPUPOOL_RUNS_PAGE_TICKETS_H_

#include <algorithm>
#include <cstdint>

#include "arena/arena.h"
#include "base/lazy_array.h"
#include "base/units.h"
#include "stream/stream_table.h"
#include "stream/ticket_set.h"

namespace gpupool::internal {

class PageTickets {
 public:
  static constexpr std::uint64_t kGroupPages = 8;

  bool reserve(std::uint64_t pages) {
    const std::uint64_t groups = pages / kGroupPages + 1;
    return pages_.reserve(groups * kGroupPages) && groups_.reserve(groups);
  }
  /// Units [start, end) were freed.
  void add(std::uint64_t start, std::uint64_t end, const TicketSet& tickets, StreamTable& streams) {
    if (tickets.empty()) return;
    std::uint64_t page = start / kUnitsPerPage;
    const std::uint64_t last = (end - 1) / kUnitsPerPage;
    if (last - page >= kGroupPages) return add_long(page, last + 1, tickets, streams);
    do {
      pages_.add(page, tickets, streams);
    } while (page++ < last);
  }
  /// The pages are others than they were.
  void reset(PageSpan pages, StreamTable& streams);
  /// What is unfinished of all of them.
  TicketSet of(PageSpan pages, StreamTable& streams) const;
  /// Which of `bits`, for the 64 pages from `first` on, are of pages with unfinished work.
  std::uint64_t busy(std::uint64_t first, std::uint64_t bits, const StreamTable& streams) const;

 private:
  /// What was last found of a word of theirs: most pages in a row have the same.
  struct Look {
    std::uint64_t one = 0;
    bool is_unfinished = false;
  };
  class Places {
   public:
    bool reserve(std::uint64_t count) { return one_.reserve(count) && several_.reserve(count); }
    void add(std::uint64_t place, const TicketSet& tickets, StreamTable& streams) {
      std::uint64_t& one = one_[place];
      const std::uint64_t added = tickets.packed();
      const bool is_same = TicketSet::is_of_one_stream(one, added) && !TicketSet::is_several(added);
      if (one == 0 ? !TicketSet::is_several(added) : is_same) {
        one = std::max(one, added);
      } else {
        add_to_others(place, tickets, streams);
      }
    }
    void clear(std::uint64_t place) { one_[place] = 0; }
    void add_to(TicketSet& sum, std::uint64_t place, StreamTable& streams) const;
    TicketSet unfinished(std::uint64_t place, const StreamTable& streams) const;
    bool is_unfinished(std::uint64_t place, const StreamTable& streams, Look& last) const {
      const std::uint64_t one = one_[place];
      if (one == 0) return false;
      if (one == last.one) return last.is_unfinished;
      if (one == kSeveral) return !unfinished(place, streams).empty();
      last = {one, !streams.is_complete(TicketSet::ticket_of(one))};
      return last.is_unfinished;
    }

   private:
    void add_to_others(std::uint64_t place, const TicketSet& tickets, StreamTable& streams);

    /// As TicketSet packs them; where there are several, they are in the other table.
    static constexpr std::uint64_t kSeveral = ~std::uint64_t{0};
    LazyArray<std::uint64_t> one_;
    LazyArray<TicketSet> several_;
  };

  void add_long(std::uint64_t first, std::uint64_t end, const TicketSet& tickets,
                StreamTable& streams);

  Places pages_;
  Places groups_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_RUNS_PAGE_TICKETS_H_
