// Tier T0 of a device, large part: run blocks that were just freed, by stream and exact size, last
// in first out; the oldest make room for the newest.
//
//   bytes() = sum of the blocks' sizes;   a block is in one bin and in the list by age
//
// Thread safety: under the pool's lock. Cost: put O(1); take O(cached blocks that share the bin).
// Links lie in the runs, which no index of free runs holds meanwhile.
#ifndef GPUPOOL_CACHE_LARGE_CACHE_H_
#define GPUPOOL_CACHE_LARGE_CACHE_H_

#include <array>
#include <cstdint>

#include "runs/run_table.h"

namespace gpupool::internal {

class LargeCache {
 public:
  explicit LargeCache(RunTable& runs) : runs_(runs) {}

  void put(RunId id);
  /// A block of exactly `units` that `stream` freed; 0 if there is none.
  RunId take(StreamIndex stream, std::uint32_t units);
  /// Takes out whichever was put in first; 0 if the cache is empty.
  RunId take_oldest();
  /// Takes out any block of `stream`; 0 if there is none.
  RunId take_of(StreamIndex stream);
  RunId oldest() const noexcept { return oldest_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::size_t kBinCount = 1024;
  static std::size_t bin_of(StreamIndex stream, std::uint32_t units) {
    // Fibonacci hashing (Knuth, TAOCP vol. 3, 6.4), which spreads sizes that differ by one step.
    const std::uint64_t key = (std::uint64_t{stream} << 32 | units) * 0x9e3779b97f4a7c15ULL;
    return static_cast<std::size_t>(key >> 54);
  }
  void unlink(RunId id);

  RunTable& runs_;
  std::uint64_t bytes_ = 0;
  RunId oldest_ = 0;
  RunId newest_ = 0;
  std::array<RunId, kBinCount> bins_{};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_CACHE_LARGE_CACHE_H_
