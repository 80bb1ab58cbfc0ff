// Which pages of free runs are out of use, whatever their runs' tickets say.
#include <algorithm>
#include <bit>
#include <vector>

#include "base/units.h"
#include "runs/run_table.h"

namespace gpupool::internal {

TicketSet RunTable::tickets_of(RunId id, PageSpan pages) const {
  TicketSet tickets = runs_[id].tickets;
  tickets.prune(streams_);
  if (tickets.empty() || !tracks_pages_) return tickets;
  const TicketSet of_pages = page_tickets_.of(pages, streams_);
  if (tickets.has_fence() || of_pages.has_fence()) return of_pages.empty() ? of_pages : tickets;
  // Those of a group of pages may be of what lies elsewhere in it; the run's are all that count.
  TicketSet both;
  for (std::size_t i = 0; i < tickets.count(); ++i) {
    for (std::size_t j = 0; j < of_pages.count(); ++j) {
      if (of_pages[j].stream == tickets[i].stream) both.add(tickets[i], streams_);
    }
  }
  return both;
}

void RunTable::part_idle() {
  if (is_alone_ || !tracks_pages_ || pending_units_ == 0) return;
  std::vector<RunId> pending;
  const auto add = [&](const RunIndex& index, std::uint64_t& parted, std::uint64_t complete) {
    // A page that streams share waits for all of them, where they are kept apart.
    if (parted == complete && !streams_.keeps_apart()) return;
    parted = complete;
    for (RunId id = index.first_walked(); id != 0; id = index.next_walked(id)) {
      pending.push_back(id);
    }
  };
  add(nobodys_, nobodys_parted_, streams_.epochs_completed());
  for (StreamIndex stream = 0; stream < by_stream_.size(); ++stream) {
    OwnRuns& own = *by_stream_[stream];
    add(own.index, own.parted_epoch, streams_.complete_epoch(stream));
  }
  if (end_run_ != 0 && runs_[end_run_].holder != kAnybody) pending.push_back(end_run_);
  for (const RunId id : pending) part_idle_of(id);
}

void RunTable::part_idle_of(RunId id) {
  const std::uint64_t start = runs_[id].start;
  // From its end, so that its front keeps its id.
  std::uint64_t end = runs_[id].end();
  std::uint64_t idle_end = end;
  const auto part = [&](std::uint64_t from) {
    if (from == idle_end) return;
    put(take_at(id, from, static_cast<std::uint32_t>(idle_end - from), RunKind::leaving),
        TicketSet());
  };
  while (end > start) {
    const std::uint64_t page = (end - 1) / kUnitsPerPage;
    const std::uint64_t from = std::max(start, page * kUnitsPerPage);
    // Kept apart, a stream's memory is others' once it was given back: so of it whole pages alone.
    const bool is_idle =
        streams_.keeps_apart() ? is_wholly_idle(page, id) : tickets_of(id, {page, 1}).empty();
    if (!is_idle) {
      part(end);
      idle_end = from;
    }
    end = from;
  }
  part(start);
}

bool RunTable::are_idle(RunId id, PageSpan pages) const {
  return runs_[id].kind == RunKind::free && tickets_of(id, pages).empty();
}

bool RunTable::is_wholly_idle(std::uint64_t page, RunId id) const {
  const std::uint64_t start = page * kUnitsPerPage;
  while (id != 0 && runs_[id].start > start) id = free_before(runs_[id].start);
  while (id != 0 && tickets_of(id, {page, 1}).empty()) {
    if (runs_[id].end() >= start + kUnitsPerPage) return true;
    id = free_at(runs_[id].end());
  }
  return false;
}

std::uint64_t RunTable::idle_pages() const {
  if (!is_alone_ || !tracks_pages_) return empty_pages_;
  const bool is_large = arena_ != nullptr && arena_->has_large_mappings();
  std::uint64_t busy_pages = 0;
  std::uint64_t end = 0;  // of the last mapping that was counted
  empty_.for_each_word(page_high_water(), [&](std::uint64_t first, std::uint64_t bits) {
    std::uint64_t busy = page_tickets_.busy(first, bits, streams_);
    if (!is_large) {
      busy_pages += static_cast<std::uint64_t>(std::popcount(busy));
      return;
    }
    // Of a mapping all pages or none.
    for (; busy != 0; busy &= busy - 1) {
      const std::uint64_t page = first + static_cast<unsigned>(std::countr_zero(busy));
      if (page < end) continue;
      std::uint64_t start = page;
      while (start > 0 && arena_->are_of_one(start - 1, page)) --start;
      for (end = page + 1; arena_->are_of_one(end, page);) ++end;
      busy_pages += end - start;
    }
  });
  return empty_pages_ - busy_pages;
}

}  // namespace gpupool::internal
