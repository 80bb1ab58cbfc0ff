#include "arena/arena.h"

#include <algorithm>

#include "base/check.h"

namespace gpupool::internal {
namespace {

/// No number of completed epochs.
constexpr std::uint64_t kNeverLooked = ~std::uint64_t{0};

}  // namespace

Arena::Arena(Driver& driver, std::uint64_t page_capacity, std::uint64_t line_end)
    : driver_(driver), page_capacity_(page_capacity), line_end_(line_end) {}

bool Arena::reserve_tables() { return table_.reserve(page_capacity_); }

void Arena::commit(const std::vector<Mapping>& mappings) {
  for (const Mapping& mapping : mappings) {
    std::uint32_t index;
    if (free_mappings_.empty()) {
      index = static_cast<std::uint32_t>(mappings_.size());
      mappings_.push_back(mapping);
      free_mappings_.reserve(mappings_.size());
    } else {
      index = free_mappings_.back();
      free_mappings_.pop_back();
      mappings_[index] = mapping;
    }
    mappings_[index].index = index + 1;
    const PageSpan pages = mapping.pages;
    for (std::uint64_t page = pages.first; page < pages.end(); ++page) {
      GPUPOOL_CHECK(table_[page].mapping == 0);
      table_[page].mapping = index + 1;
    }
    fill(pages);
    held_bytes_ += mapping.bytes;
    overhead_bytes_ += mapping.bytes - pages.count * kPageBytes;
    pages_backed_total_ += pages.count;
    ++mapping_count_;
    if (pages.count > 1) ++large_mappings_;
    on_commit(mapping);
  }
}

void Arena::extend_line(std::uint64_t first, std::uint64_t end) {
  if (tail().count > 0) holes_.add(tail());
  gaps_ += first - line_end_;
  high_water_ = first;
  line_end_ = end;
}

void Arena::fill(PageSpan pages) {
  if (pages.first > high_water_) holes_.add({high_water_, pages.first - high_water_});
  // A handle may begin in a hole and end in the tail behind it.
  const std::uint64_t old_end = std::min(pages.end(), high_water_);
  if (pages.first < old_end) holes_.remove({pages.first, old_end - pages.first});
  high_water_ = std::max(high_water_, pages.end());
}

void Arena::relocate(const Mapping& to, const TicketSet& tickets) {
  Mapping& mapping = mappings_[to.index - 1];
  GPUPOOL_CHECK(mapping.pages.count == to.pages.count && mapping.handle == to.handle);
  for (std::uint64_t i = 0; i < to.pages.count; ++i) {
    std::uint32_t& old = table_[mapping.pages.first + i].mapping;
    std::uint32_t& now = table_[to.pages.first + i].mapping;
    GPUPOOL_CHECK(old == to.index && now == 0);
    old = 0;
    now = to.index;
  }
  fill(to.pages);
  add_stale(mapping.pages, mapping.address, to.index, tickets);
  mapping.pages = to.pages;
  mapping.address = to.address;
}

void Arena::add_stale(PageSpan pages, DeviceAddress address, std::uint32_t index,
                      const TicketSet& tickets) {
  ++mappings_[index - 1].aliases;
  if (tickets.empty()) {
    stale_.push_back({pages, address, index, tickets});
  } else {
    waiting_.push_back({pages, address, index, tickets});
    seen_complete_ = kNeverLooked;
  }
  stale_pages_ += pages.count;
}

void Arena::look_at_waiting(const StreamTable& streams) {
  if (waiting_.empty() || seen_complete_ == streams.epochs_completed()) return;
  seen_complete_ = streams.epochs_completed();
  const auto is_over = [&](Stale& stale) {
    stale.tickets.prune(streams);
    if (!stale.tickets.empty()) return false;
    stale_.push_back(stale);
    return true;
  };
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), is_over), waiting_.end());
}

std::vector<Stale> Arena::take_stale(const StreamTable& streams, std::uint64_t most_pages) {
  look_at_waiting(streams);
  std::vector<Stale> taken;
  for (std::uint64_t pages = 0; pages < most_pages && !stale_.empty(); stale_.pop_front()) {
    taken.push_back(stale_.front());
    pages += taken.back().pages.count;
  }
  return taken;
}

std::vector<PageSpan> Arena::holes_once_unmapped() const {
  std::vector<PageSpan> spans(holes_.begin(), holes_.end());
  for (const Stale& stale : stale_) spans.push_back(stale.pages);
  for (const Stale& stale : waiting_) spans.push_back(stale.pages);
  const auto is_before = [](PageSpan a, PageSpan b) { return a.first < b.first; };
  std::sort(spans.begin(), spans.end(), is_before);
  std::vector<PageSpan> joined;
  for (const PageSpan span : spans) {
    if (!joined.empty() && joined.back().end() == span.first) {
      joined.back().count += span.count;
    } else {
      joined.push_back(span);
    }
  }
  return joined;
}

void Arena::end_stale(const std::vector<Stale>& stale, bool is_unmapped) {
  if (!is_unmapped) {
    stale_.insert(stale_.end(), stale.begin(), stale.end());
    return;
  }
  for (const Stale& gone : stale) {
    --mappings_[gone.mapping - 1].aliases;
    stale_pages_ -= gone.pages.count;
    holes_.add(gone.pages);
  }
}

std::uint64_t Arena::whole_pages_of_large(std::uint64_t first, std::uint64_t end) const noexcept {
  const PageSpan& front = mapping_of(first).pages;
  if (front.first < first) first = front.end();
  if (first >= end) return 0;
  const PageSpan& back = mapping_of(end - 1).pages;
  if (back.end() > end) end = back.first;
  return end > first ? end - first : 0;
}

void Arena::withdraw(const Mapping& mapping) {
  const Mapping gone = mapping;  // the argument may lie in mappings_
  const std::uint32_t index = table_[gone.pages.first].mapping - 1;
  for (std::uint64_t page = gone.pages.first; page < gone.pages.end(); ++page) {
    GPUPOOL_CHECK(table_[page].mapping == index + 1);
    table_[page].mapping = 0;
  }
  holes_.add(gone.pages);
  GPUPOOL_CHECK(mappings_[index].aliases == 0);
  free_mappings_.push_back(index);
  held_bytes_ -= gone.bytes;
  overhead_bytes_ -= gone.bytes - gone.pages.count * kPageBytes;
  pages_returned_total_ += gone.pages.count;
  --mapping_count_;
  if (gone.pages.count > 1) --large_mappings_;
  on_withdraw(gone);
}

void Arena::keep_stuck(const std::vector<Mapping>& stuck) {
  for (const Mapping& mapping : stuck) {
    if (mapping.is_alias) {
      fill(mapping.pages);
      add_stale(mapping.pages, mapping.address, mapping.index, TicketSet());
      continue;
    }
    stuck_.push_back(mapping);
    stuck_bytes_ += mapping.bytes;
    if (mapping.address != 0) {
      commit({mapping});
    } else {
      held_bytes_ += mapping.bytes;
    }
  }
}

void Arena::forget_stuck(const Mapping& mapping) {
  const auto found = std::find_if(stuck_.begin(), stuck_.end(), [&](const Mapping& candidate) {
    return candidate.handle == mapping.handle && candidate.segment == mapping.segment;
  });
  GPUPOOL_CHECK(found != stuck_.end());
  const Mapping gone = *found;
  stuck_.erase(found);
  stuck_bytes_ -= gone.bytes;
  if (gone.address != 0) {
    withdraw(gone);
  } else {
    held_bytes_ -= gone.bytes;
  }
}

const Mapping& Arena::mapping_of(std::uint64_t page) const noexcept {
  return mappings_[table_[page].mapping - 1];
}

std::optional<PageSpan> Arena::find_unbacked(std::uint64_t pages) const {
  // A gap stays on both sides, where gaps are kept at all.
  const std::uint64_t gap = gap_pages();
  if (const auto hole = holes_.find_first(pages + 2 * gap))
    return PageSpan{hole->first + gap, pages};
  const std::uint64_t first = high_water_ + (high_water_ > 0 ? gap : 0);
  if (first + pages > line_end_) return std::nullopt;
  return PageSpan{first, pages};
}

std::uint64_t Arena::metadata_bytes() const noexcept {
  return high_water_ * sizeof(PageEntry) + mappings_.capacity() * sizeof(Mapping) +
         holes_.metadata_bytes() + (stale_.size() + waiting_.capacity()) * sizeof(Stale);
}

void Arena::check_invariants() const {
  std::uint64_t bytes = 0;
  std::uint64_t unbacked = 0;
  for (std::uint64_t page = 0; page < high_water_;) {
    if (!is_backed(page)) {
      ++unbacked;
      ++page;
      continue;
    }
    const Mapping& mapping = mapping_of(page);
    GPUPOOL_CHECK(mapping.pages.first == page && mapping.pages.count > 0);
    bytes += mapping.bytes;
    page = mapping.pages.end();
  }
  GPUPOOL_CHECK(holes_.check_invariants() + stale_pages_ + gaps_ == unbacked);
  for (const Mapping& mapping : stuck_) {
    if (mapping.address == 0) bytes += mapping.bytes;  // the others are on the line, counted there
  }
  GPUPOOL_CHECK(bytes == held_bytes_);
}

}  // namespace gpupool::internal
