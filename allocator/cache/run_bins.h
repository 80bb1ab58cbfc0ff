// Tier T0 of one thread and stream, large part: run blocks that were just freed, by exact size,
// last in first out.
//
// A size has one of two slots, by a hash, until it is evicted; a third size that meets there has to
// wait until one is empty. Links lie in the blocks' records.
//
//   bytes() = sum of the blocks' sizes <= limit_bytes
//   a slot that has a size is in `assigned_`, with a block or without
//
// Thread safety: the owner inside its claim, or a claimer; bytes() and set_limit() by anybody.
// Cost: put and take O(1), no lock.
#ifndef GPUPOOL_CACHE_RUN_BINS_H_
#define GPUPOOL_CACHE_RUN_BINS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/relaxed.h"
#include "base/units.h"
#include "runs/run.h"

namespace gpupool::internal {

/// Blocks of one size, linked through BlockRecord::next.
struct RunChain {
  std::uint32_t head = 0;  // run id; 0: none
  std::uint32_t blocks = 0;
  std::uint32_t units = 0;  // of each

  std::uint64_t bytes() const noexcept { return std::uint64_t{blocks} * units * kUnitBytes; }
};

/// The same by their names, for other threads: the oldest first.
struct RunBatch {
  static constexpr std::uint32_t kMost = 62;

  std::uint32_t blocks = 0;
  std::uint32_t units = 0;  // of each
  std::array<std::uint32_t, kMost> ids;

  RunBatch() noexcept {}  // NOLINT: the names that there are none of stay what they were
  std::uint64_t bytes() const noexcept { return std::uint64_t{blocks} * units * kUnitBytes; }
  void copy(const RunBatch& from) noexcept {
    blocks = from.blocks;
    units = from.units;
    std::copy_n(from.ids.begin(), blocks, ids.begin());
  }
  /// Into a batch that has none.
  void move_newest(std::uint32_t most, RunBatch& to) noexcept {
    to.units = units;
    to.blocks = std::min(blocks, most);
    blocks -= to.blocks;
    std::copy_n(ids.begin() + blocks, to.blocks, to.ids.begin());
  }
  /// Links them, the newest first.
  RunChain link(Run* runs) const noexcept;
};

class RunBins {
 public:
  static constexpr std::size_t kSlotCount = 128;
  static constexpr std::uint32_t kMostWalked = 512;

  void start();
  /// Gives the limit back. Requires: everything was evicted.
  void rest() noexcept {
    limit_bytes_.set(0);
    hand_ = 0;
  }

  /// A block of exactly `units`; 0 if there is none.
  std::uint32_t take(std::uint64_t units, Run* blocks) noexcept {
    Slot* const slot = find(units);
    if (slot == nullptr) return 0;
    const std::uint32_t head = slot->head.get();
    if (head == 0) return 0;
    slot->head.set(blocks[head].record.next.get());
    bytes_.add(0 - units * kUnitBytes);
    return head;
  }

  /// False: beyond the limit, or no slot for the size; nothing has changed.
  bool put(std::uint32_t id, std::uint32_t units, Run* blocks) noexcept {
    const std::uint64_t bytes = bytes_.get() + units * kUnitBytes;
    if (bytes > limit_bytes_.get()) return false;
    Slot* const slot = find(units);
    if (slot == nullptr) [[unlikely]]
      return put_in_empty_slot(id, units, blocks);
    blocks[id].record.next.set(slot->head.get());
    slot->head.set(id);
    bytes_.set(bytes);
    return true;
  }

  /// Sets a chain into the slot of its size. False: beyond the limit, or no empty slot.
  bool put_chain(const RunChain& chain) noexcept;
  /// How many blocks a chain of that size may have to be set. Requires: there is none of it.
  std::uint32_t room_for(std::uint32_t units) const noexcept;
  /// The half of `units` that was put in first, or as many as a batch can have; none where there
  /// are other sizes, which are to make room first, or more than kMostWalked blocks. They stay
  /// until they are cut off. Cost: O(blocks).
  RunBatch find_older_half(std::uint32_t units, const Run* blocks) const noexcept;
  /// Takes out what was found, and nothing else has changed since. Looks at none of its blocks,
  /// which others may have already.
  void cut(const RunBatch& older, Run* blocks) noexcept;
  // Each takes out all blocks of one size; an empty chain where there is none.
  /// The size nearest to `units`: the smallest that is at least so large, or else the largest.
  /// Cost: O(slots).
  RunChain take_nearest(std::uint32_t units, const Run* blocks) noexcept;
  /// Whichever size `is_meant(head)` says yes to.
  template <class F>
  RunChain take_if(F is_meant, const Run* blocks) noexcept {
    for (Slot& slot : slots_) {
      const std::uint32_t head = slot.head.get();
      if (head != 0 && is_meant(head)) return take_all(slot, blocks);
    }
    return {};
  }
  template <class F>
  bool has_any(F is_meant) const noexcept {
    for (const Slot& slot : slots_) {
      const std::uint32_t head = slot.head.get();
      if (head != 0 && is_meant(head)) return true;
    }
    return false;
  }
  /// Another size, which loses its slot: one that stands in the way of `units`, or else the next
  /// in turn. Cost: O(1), amortised over the sizes that got slots.
  RunChain evict_other(std::uint32_t units, const Run* blocks) noexcept;

  std::uint64_t bytes() const noexcept { return bytes_.get(); }
  std::uint64_t limit_bytes() const noexcept { return limit_bytes_.get(); }
  void set_limit(std::uint64_t bytes) noexcept { limit_bytes_.set(bytes); }

 private:
  struct Slot {
    Relaxed<std::uint32_t> head;
    Relaxed<std::uint32_t> units;  // of the last size that it had
  };

  static std::size_t slot_of(std::uint64_t units) noexcept {
    // Fibonacci hashing (Knuth, TAOCP vol. 3, 6.4), which spreads sizes that differ by one step.
    return static_cast<std::uint32_t>(units) * std::uint32_t{0x9e3779b9} >> 25;
  }
  static_assert(kSlotCount == 1 << (32 - 25));
  /// The slot that has the size, perhaps without a block.
  Slot* find(std::uint64_t units) noexcept {
    const std::size_t first = slot_of(units);
    if (slots_[first].units.get() == units) [[likely]]
      return &slots_[first];
    return slots_[first ^ 1].units.get() == units ? &slots_[first ^ 1] : nullptr;
  }
  const Slot* find(std::uint64_t units) const noexcept {
    return const_cast<RunBins*>(this)->find(units);
  }
  bool put_in_empty_slot(std::uint32_t id, std::uint32_t units, Run* blocks) noexcept;
  RunChain take_all(Slot& slot, const Run* blocks) noexcept;
  void unassign(std::size_t slot) noexcept;

  std::array<Slot, kSlotCount> slots_;
  Relaxed<std::uint64_t> bytes_;
  Relaxed<std::uint64_t> limit_bytes_;
  std::array<std::uint64_t, kSlotCount / 64> assigned_{};
  std::size_t hand_ = 0;  // where evict_other() goes on
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_CACHE_RUN_BINS_H_
