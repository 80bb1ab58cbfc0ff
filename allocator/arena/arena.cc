#include "arena/arena.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace gpupool::internal {

Arena::Arena(Driver& driver, std::uint64_t page_capacity)
    : driver_(driver), page_capacity_(page_capacity) {}

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
    const PageSpan pages = mapping.pages;
    for (std::uint64_t page = pages.first; page < pages.end(); ++page) {
      GPUPOOL_CHECK(table_[page].mapping == 0);
      table_[page].mapping = index + 1;
    }
    if (pages.first >= high_water_) {
      if (pages.first > high_water_) add_hole({high_water_, pages.first - high_water_});
      high_water_ = pages.end();
    } else {
      remove_hole(pages);
    }
    held_bytes_ += mapping.bytes;
    overhead_bytes_ += mapping.bytes - pages.count * kPageBytes;
    pages_backed_total_ += pages.count;
    ++mapping_count_;
    on_commit(mapping);
  }
}

void Arena::withdraw(const Mapping& mapping) {
  const Mapping gone = mapping;  // the argument may lie in mappings_
  const std::uint32_t index = table_[gone.pages.first].mapping - 1;
  for (std::uint64_t page = gone.pages.first; page < gone.pages.end(); ++page) {
    GPUPOOL_CHECK(table_[page].mapping == index + 1);
    table_[page].mapping = 0;
  }
  add_hole(gone.pages);
  free_mappings_.push_back(index);
  held_bytes_ -= gone.bytes;
  overhead_bytes_ -= gone.bytes - gone.pages.count * kPageBytes;
  pages_returned_total_ += gone.pages.count;
  --mapping_count_;
  on_withdraw(gone);
}

void Arena::keep_stuck(const std::vector<Mapping>& stuck) {
  for (const Mapping& mapping : stuck) {
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
  const std::uint64_t gap = gap_pages();
  for (const PageSpan& hole : holes_) {
    // A gap stays on both sides, where gaps are kept at all.
    if (hole.count >= pages + 2 * gap) return PageSpan{hole.first + gap, pages};
  }
  const std::uint64_t first = high_water_ + (high_water_ > 0 ? gap : 0);
  if (first + pages > page_capacity_) return std::nullopt;
  return PageSpan{first, pages};
}

void Arena::add_hole(PageSpan pages) {
  auto next = std::lower_bound(
      holes_.begin(), holes_.end(), pages.first,
      [](const PageSpan& hole, std::uint64_t first) { return hole.first < first; });
  if (next != holes_.begin() && std::prev(next)->end() == pages.first) {
    --next;
    next->count += pages.count;
  } else {
    next = holes_.insert(next, pages);
  }
  const auto after = std::next(next);
  if (after != holes_.end() && next->end() == after->first) {
    next->count += after->count;
    holes_.erase(after);
  }
}

void Arena::remove_hole(PageSpan pages) {
  const auto hole = std::find_if(holes_.begin(), holes_.end(), [&](const PageSpan& candidate) {
    return candidate.first <= pages.first && pages.end() <= candidate.end();
  });
  GPUPOOL_CHECK(hole != holes_.end());
  const PageSpan before{hole->first, pages.first - hole->first};
  const PageSpan after{pages.end(), hole->end() - pages.end()};
  const auto at = holes_.erase(hole);
  const auto inserted = after.count > 0 ? holes_.insert(at, after) : at;
  if (before.count > 0) holes_.insert(inserted, before);
}

std::uint64_t Arena::metadata_bytes() const noexcept {
  return high_water_ * sizeof(PageEntry) + mappings_.capacity() * sizeof(Mapping) +
         holes_.capacity() * sizeof(PageSpan);
}

void Arena::check_invariants() const {
  std::uint64_t bytes = 0;
  std::uint64_t hole_pages = 0;
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
  for (std::size_t i = 0; i < holes_.size(); ++i) {
    hole_pages += holes_[i].count;
    GPUPOOL_CHECK(i == 0 || holes_[i - 1].end() < holes_[i].first);
  }
  GPUPOOL_CHECK(hole_pages == unbacked);
  for (const Mapping& mapping : stuck_) {
    if (mapping.address == 0) bytes += mapping.bytes;  // the others are on the line, counted there
  }
  GPUPOOL_CHECK(bytes == held_bytes_);
}

}  // namespace gpupool::internal
