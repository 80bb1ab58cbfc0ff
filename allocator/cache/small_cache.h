// Tier T0 of one stream, small part: slots and buddy blocks that were just freed on it, by exact
// size, last in first out. They are the stream's own, so nothing is asked before reuse.
//
//   bytes() = sum of the blocks' sizes <= limit_bytes
//
// Thread safety: under the pool's lock. Cost: one list operation; links lie in the block records.
#ifndef GPUPOOL_CACHE_SMALL_CACHE_H_
#define GPUPOOL_CACHE_SMALL_CACHE_H_

#include <array>
#include <cstdint>

#include "base/lazy_array.h"
#include "buddy/chunk.h"
#include "size_class/size_class.h"

namespace gpupool::internal {

class SmallCache {
 public:
  /// Bins: one a size class, then one for each number of units that a buddy block can have.
  static constexpr std::size_t kBinCount = kSizeClassCount + kUnitsPerChunk + 1;
  static constexpr std::size_t slot_bin(SizeClass size_class) { return size_class; }
  static constexpr std::size_t buddy_bin(std::uint32_t units) { return kSizeClassCount + units; }

  SmallCache(LazyArray<Chunk>& chunks, std::uint64_t limit_bytes)
      : chunks_(&chunks), limit_bytes_(limit_bytes) {}

  /// False where the cache is full. `code` is BlockRef::code of a block of `bytes`.
  bool put(std::size_t bin, std::uint32_t code, std::uint64_t bytes) {
    if (bytes_ + bytes > limit_bytes_) return false;
    record(code).next = heads_[bin];
    heads_[bin] = code;
    bytes_ += bytes;
    is_touched_ = true;
    return true;
  }
  /// A block of this bin, of `bytes`; 0 if there is none.
  std::uint32_t take(std::size_t bin, std::uint64_t bytes) {
    const std::uint32_t code = heads_[bin];
    if (code == 0) return 0;
    heads_[bin] = record(code).next;
    bytes_ -= bytes;
    is_touched_ = true;
    return code;
  }
  /// The head of a bin, for emptying it with take().
  std::uint32_t peek(std::size_t bin) const noexcept { return heads_[bin]; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// Whether anything was put or taken since the last call.
  bool was_touched() noexcept {
    const bool touched = is_touched_;
    is_touched_ = false;
    return touched;
  }

 private:
  BlockRecord& record(std::uint32_t code) noexcept {
    return (*chunks_)[code / kGranulesPerChunk].blocks[code % kGranulesPerChunk];
  }

  LazyArray<Chunk>* chunks_;
  std::uint64_t limit_bytes_;
  std::uint64_t bytes_ = 0;
  bool is_touched_ = false;
  std::array<std::uint32_t, kBinCount> heads_{};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_CACHE_SMALL_CACHE_H_
