// Tier T0 of one thread and stream, small part: slots and buddy blocks that were just freed, by
// exact size, last in first out.
//
// A bin has two chains, linked through the block records: the one in use and a full one behind it,
// so that a chain changes hands whole (Bonwick and Adams, "Magazines and Vmem", USENIX 2001).
//
//   sum over bins of (limit + blocks of the full chain) * bytes  = granted_bytes <= limit_bytes
//
// so that what lies here is bounded without a count of bytes on the way in and out: a bin starts
// without any grant, and gets more when it runs empty or full.
//
// Thread safety: the owner inside its claim, or a claimer. Cost: put and take O(1), no lock.
#ifndef GPUPOOL_CACHE_MAGAZINES_H_
#define GPUPOOL_CACHE_MAGAZINES_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/relaxed.h"
#include "cache/bin.h"

namespace gpupool::internal {

/// Blocks linked through BlockRecord::next.
struct Chain {
  std::uint32_t head = 0;  // code of the first block; 0: none
  std::uint32_t blocks = 0;
};

class Magazines {
 public:
  void start(std::uint64_t limit_bytes);

  /// 0: the bin is empty.
  std::uint32_t take(std::uint32_t bin, BlockRecord* records) noexcept {
    Bin& b = bins_[bin];
    if (b.head.get() == 0 && b.full.get() != 0) use_full_chain(b, bin);
    return take_quickly(bin, records);
  }
  /// The same from the chain in use alone.
  std::uint32_t take_quickly(std::uint32_t bin, BlockRecord* records) noexcept {
    Bin& b = bins_[bin];
    const std::uint32_t head = b.head.get();
    if (head == 0) [[unlikely]]
      return 0;
    b.head.set(records[head].next.get());
    b.blocks.set(static_cast<std::uint16_t>(b.blocks.get() - 1));
    return head;
  }

  /// False: the bin is full; nothing has changed.
  bool put(std::uint32_t bin, std::uint32_t code, BlockRecord* records) noexcept {
    Bin& b = bins_[bin];
    const std::uint16_t blocks = b.blocks.get();
    if (blocks >= b.limit.get()) [[unlikely]]
      return false;
    records[code].next.set(b.head.get());
    b.head.set(code);
    b.blocks.set(static_cast<std::uint16_t>(blocks + 1));
    return true;
  }

  /// Makes room in a full bin: a higher limit, or the chain set behind. False: neither is possible.
  bool make_room(std::uint32_t bin);
  /// A bin that ran empty may hold more from now on.
  void grow(std::uint32_t bin);
  /// How many blocks to fetch for an empty bin.
  std::uint32_t batch(std::uint32_t bin) const noexcept;
  /// Sets a chain behind the one in use. False: there is one already, or no grant for it.
  bool put_chain(std::uint32_t bin, Chain chain);
  /// What take_chain() would take.
  Chain next_chain(std::uint32_t bin) const noexcept {
    const Bin& b = bins_[bin];
    if (b.full.get() != 0) return {b.full.get(), b.full_blocks.get()};
    return {b.head.get(), b.blocks.get()};
  }
  /// Takes the full chain, or the one in use where there is none.
  Chain take_chain(std::uint32_t bin);
  /// The block that would be taken next, as far as another thread can tell; 0: none.
  std::uint32_t head(std::uint32_t bin) const noexcept {
    const std::uint32_t code = bins_[bin].head.get();
    return code != 0 ? code : bins_[bin].full.get();
  }
  bool is_empty() const noexcept;
  /// Whether no bin may hold anything. By the owner.
  bool is_unused() const noexcept { return granted_bytes_ == 0; }
  /// Calls `visit(bin)` for each bin that may have blocks, then takes all grants back, so that the
  /// same requests again find everything as new. Requires: visit() empties the bin.
  template <class F>
  void empty_all(F visit) {
    for (std::size_t word = 0; word < used_bins_.size(); ++word) {
      for (std::uint64_t rest = used_bins_[word]; rest != 0; rest &= rest - 1) {
        const auto bin = static_cast<std::uint32_t>(
            word * 64 + static_cast<std::size_t>(std::countr_zero(rest)));
        visit(bin);
        bins_[bin].limit.set(0);
      }
      used_bins_[word] = 0;
    }
    granted_bytes_ = 0;
  }

 private:
  struct Bin {
    Relaxed<std::uint32_t> head;
    Relaxed<std::uint16_t> blocks;  // of the chain in use
    Relaxed<std::uint16_t> limit;   // of the same
    Relaxed<std::uint32_t> full;
    Relaxed<std::uint16_t> full_blocks;
  };

  void use_full_chain(Bin& bin, std::uint32_t index) noexcept;
  bool grant(std::uint32_t bin, std::uint64_t bytes);
  bool raise_limit(std::uint32_t bin, std::uint32_t limit);
  /// Takes back what bins may hold and do not.
  void shrink_idle_grants(std::uint32_t except);

  std::array<Bin, kBinCount> bins_;
  std::array<std::uint64_t, (kBinCount + 63) / 64> used_bins_{};  // that were granted anything
  std::uint64_t granted_bytes_ = 0;
  std::uint64_t limit_bytes_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_CACHE_MAGAZINES_H_
