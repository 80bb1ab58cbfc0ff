// Which parts of an interval are not taken: how the simulated device gives out addresses.
//
// Invariants: ranges are disjoint, never adjacent (neighbours are joined), and in both indices.
// Thread safety: none, the owner locks. Cost: O(log n) in the number of holes, plus the holes
// that would fit but for their alignment.
#ifndef GPUPOOL_BACKEND_FREE_RANGES_H_
#define GPUPOOL_BACKEND_FREE_RANGES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace gpupool::internal {

class FreeRanges {
 public:
  FreeRanges(std::uint64_t begin, std::uint64_t end);

  /// Takes `bytes` from the smallest hole that holds them at a multiple of `alignment`; nothing
  /// where none does. Requires: bytes > 0, alignment a power of two.
  std::optional<std::uint64_t> take(std::uint64_t bytes, std::uint64_t alignment);
  /// Requires: [begin, begin + bytes) was taken.
  void give_back(std::uint64_t begin, std::uint64_t bytes);

 private:
  void insert(std::uint64_t begin, std::uint64_t end);
  void erase(std::map<std::uint64_t, std::uint64_t>::iterator hole);

  std::map<std::uint64_t, std::uint64_t> by_begin_;             // begin -> end
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_bytes_;  // bytes, begin
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BACKEND_FREE_RANGES_H_
