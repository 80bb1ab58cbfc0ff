#include "backend/free_ranges.h"

#include <iterator>

#include "base/check.h"

namespace gpupool::internal {

FreeRanges::FreeRanges(std::uint64_t begin, std::uint64_t end) { insert(begin, end); }

void FreeRanges::insert(std::uint64_t begin, std::uint64_t end) {
  if (begin == end) return;
  by_begin_.emplace(begin, end);
  by_bytes_.emplace(end - begin, begin);
}

void FreeRanges::erase(std::map<std::uint64_t, std::uint64_t>::iterator hole) {
  by_bytes_.erase({hole->second - hole->first, hole->first});
  by_begin_.erase(hole);
}

std::optional<std::uint64_t> FreeRanges::take(std::uint64_t bytes, std::uint64_t alignment) {
  for (auto it = by_bytes_.lower_bound({bytes, 0}); it != by_bytes_.end(); ++it) {
    const std::uint64_t hole_begin = it->second;
    const std::uint64_t hole_end = hole_begin + it->first;
    const std::uint64_t begin = (hole_begin + alignment - 1) & ~(alignment - 1);
    if (begin < hole_begin || begin > hole_end || hole_end - begin < bytes) continue;
    erase(by_begin_.find(hole_begin));
    insert(hole_begin, begin);
    insert(begin + bytes, hole_end);
    return begin;
  }
  return std::nullopt;
}

void FreeRanges::give_back(std::uint64_t begin, std::uint64_t bytes) {
  std::uint64_t end = begin + bytes;
  auto next = by_begin_.lower_bound(begin);
  GPUPOOL_CHECK(next == by_begin_.end() || next->first >= end);
  if (next != by_begin_.begin()) {
    auto previous = std::prev(next);
    GPUPOOL_CHECK(previous->second <= begin);
    if (previous->second == begin) {
      begin = previous->first;
      erase(previous);
    }
  }
  if (next != by_begin_.end() && next->first == end) {
    end = next->second;
    erase(next);
  }
  insert(begin, end);
}

}  // namespace gpupool::internal
