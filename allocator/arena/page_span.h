// Pages in a row, by number.
//
// Thread safety: a plain value.
#ifndef GPUPOOL_ARENA_PAGE_SPAN_H_
#define GPUPOOL_ARENA_PAGE_SPAN_H_

#include <cstdint>

namespace gpupool::internal {

/// Pages [first, first + count).
struct PageSpan {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::uint64_t end() const noexcept { return first + count; }
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_ARENA_PAGE_SPAN_H_
