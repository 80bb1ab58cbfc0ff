// What the pool knows of one block, in 16 bytes: the same record for a slot of a slab, a buddy
// block, a run and a fallback.
//
// A block becomes live by a store, by whoever has it alone, and ceases to be so by one
// compare-exchange, so that of two frees that race one is refused and neither changes what it does
// not own. The other fields belong to whoever took the block out of `live` or is about to put it
// there; the map of the pool and claimers of caches read them meanwhile.
//
// A free block's record has the word 0, so that an address inside a block, or of one that was given
// back, never looks live.
#ifndef GPUPOOL_BASE_BLOCK_RECORD_H_
#define GPUPOOL_BASE_BLOCK_RECORD_H_

#include <atomic>
#include <cstdint>

#include "base/relaxed.h"

namespace gpupool::internal {

enum class BlockUse : std::uint8_t { none, live, cached };

/// State, tag, bin and stream of a block, packed so that they change together.
///
///   bits 0-1 use | 2 has_extra_uses | 3-8 tag | 9-24 stream | 25-31 bin
class BlockWord {
 public:
  static constexpr std::uint32_t kUntaggedCode = 63;
  /// Blocks that no bin of a small size holds: runs and fallbacks.
  static constexpr std::uint32_t kNoBin = 127;

  constexpr explicit BlockWord(std::uint32_t bits) noexcept : bits_(bits) {}
  static constexpr BlockWord live(std::uint32_t tag, std::uint32_t bin, std::uint32_t stream) {
    return live_untagged(bin, stream_bits(stream)).with_tag(tag);
  }
  // The same with the stream where it lies in the word, and without a tag.
  static constexpr std::uint32_t stream_bits(std::uint32_t stream) { return stream << 9; }
  static constexpr BlockWord live_untagged(std::uint32_t bin, std::uint32_t bits_of_stream) {
    return BlockWord(static_cast<std::uint32_t>(BlockUse::live) | kUntaggedCode << 3 |
                     bits_of_stream | bin << 25);
  }
  static constexpr BlockWord cached_in(std::uint32_t bin, std::uint32_t bits_of_stream) {
    return BlockWord(static_cast<std::uint32_t>(BlockUse::cached) | bits_of_stream | bin << 25);
  }
  constexpr BlockWord with_tag(std::uint32_t tag) const noexcept {
    return BlockWord((bits_ & ~(kUntaggedCode << 3)) | tag << 3);
  }
  constexpr bool is_untagged() const noexcept {
    return (bits_ & kUntaggedCode << 3) == kUntaggedCode << 3;
  }
  static constexpr BlockWord cached(std::uint32_t bin, std::uint32_t stream) {
    return cached_in(bin, stream_bits(stream));
  }

  constexpr std::uint32_t bits() const noexcept { return bits_; }
  constexpr BlockUse use() const noexcept { return static_cast<BlockUse>(bits_ & 3); }
  constexpr bool is_live() const noexcept { return use() == BlockUse::live; }
  /// Live, and without extra uses: one test, of a word that is on the path of every free.
  constexpr bool is_plainly_live() const noexcept { return ((bits_ - 1) & 7) == 0; }
  /// record_stream or record_use was called for it.
  constexpr bool has_extra_uses() const noexcept { return (bits_ & 4) != 0; }
  constexpr BlockWord with_extra_uses() const noexcept { return BlockWord(bits_ | 4); }
  /// An index of PoolOptions::tags, or kUntaggedCode.
  constexpr std::uint32_t tag() const noexcept { return bits_ >> 3 & 63; }
  constexpr std::uint32_t bin() const noexcept { return bits_ >> 25; }
  /// Of the stream that allocated it, or freed it.
  constexpr std::uint32_t stream() const noexcept { return bits_ >> 9 & 0xffff; }

  // The first block of a chain that was handed over needs neither tag nor extra uses.
  static constexpr std::uint32_t kMaxChain = 64;
  constexpr std::uint32_t chain_length() const noexcept { return tag() + 1; }
  constexpr BlockWord with_chain_length(std::uint32_t blocks) const noexcept {
    return BlockWord((bits_ & ~(std::uint32_t{63} << 3)) | (blocks - 1) << 3);
  }

 private:
  std::uint32_t bits_;
};

struct BlockRecord {
  BlockWord load() const noexcept { return BlockWord(word.load(std::memory_order_acquire)); }
  void store(BlockWord value) noexcept { word.store(value.bits(), std::memory_order_release); }
  void clear() noexcept { word.store(0, std::memory_order_relaxed); }
  /// The one step that takes a block from its holder. False: somebody else did, or has it again.
  bool take(BlockWord live, BlockWord cached) noexcept {
    std::uint32_t expected = live.bits();
    return word.compare_exchange_strong(expected, cached.bits(), std::memory_order_acq_rel,
                                        std::memory_order_acquire);
  }

  void set_requested(std::uint64_t bytes) noexcept {
    low_bytes.set(static_cast<std::uint32_t>(bytes));
  }
  /// Requires: live, and the block is at most 4 GiB larger than the request.
  std::uint64_t requested(std::uint64_t block_bytes) const noexcept {
    return block_bytes - (static_cast<std::uint32_t>(block_bytes) - low_bytes.get());
  }

  std::atomic<std::uint32_t> word{0};
  Relaxed<std::uint32_t> next;  // cached: the next of its chain
  /// Live: the request's bytes, of which the block's size tells those beyond 32 bits. First of a
  /// chain that was handed over: the next chain.
  Relaxed<std::uint32_t> low_bytes;
  Relaxed<std::uint32_t> tick;  // when it got this use, in kTickNs
};
static_assert(sizeof(BlockRecord) == 16);

/// Coarse time of a block's last change: 10 ms steps since the pool's start (497 days).
inline constexpr std::uint64_t kTickNs = 10'000'000;

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_BLOCK_RECORD_H_
