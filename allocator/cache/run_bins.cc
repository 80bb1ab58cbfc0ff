#include "cache/run_bins.h"

namespace gpupool::internal {

void RunBins::start() {
  for (Slot& slot : slots_) {
    slot.head.set(0);
    slot.units.set(0);
  }
  bytes_.set(0);
  limit_bytes_.set(0);
  hand_ = 0;
}

RunChain RunBins::take_all(Slot& slot, const RunBlock* blocks) noexcept {
  RunChain chain{slot.head.get(), 0, slot.units.get()};
  for (std::uint32_t id = chain.head; id != 0; id = blocks[id].record.next.get()) ++chain.blocks;
  slot.head.set(0);
  bytes_.add(0 - chain.bytes());
  return chain;
}

bool RunBins::put_in_empty_slot(std::uint32_t id, std::uint32_t units, RunBlock* blocks) noexcept {
  blocks[id].record.next.set(0);
  return put_chain({id, 1, units});
}

bool RunBins::put_chain(const RunChain& chain) noexcept {
  if (bytes_.get() + chain.bytes() > limit_bytes_.get()) return false;
  Slot* slot = find(chain.units);
  if (slot == nullptr) {
    const std::size_t first = slot_of(chain.units);
    slot = &slots_[slots_[first].head.get() == 0 ? first : first ^ 1];
  }
  if (slot->head.get() != 0) return false;
  slot->units.set(chain.units);
  slot->head.set(chain.head);
  bytes_.add(chain.bytes());
  return true;
}

RunChain RunBins::take_older_half(std::uint32_t units, RunBlock* blocks) noexcept {
  Slot* const slot = find(units);
  if (slot == nullptr || slot->head.get() == 0) return {};
  std::uint32_t count = 0;
  for (std::uint32_t id = slot->head.get(); id != 0; id = blocks[id].record.next.get()) ++count;
  if (count == 1) return take_all(*slot, blocks);
  std::uint32_t last_kept = slot->head.get();
  for (std::uint32_t i = 1; i < count / 2; ++i) last_kept = blocks[last_kept].record.next.get();
  const RunChain chain{blocks[last_kept].record.next.get(), count - count / 2, units};
  blocks[last_kept].record.next.set(0);
  bytes_.add(0 - chain.bytes());
  return chain;
}

RunChain RunBins::take_nearest(std::uint32_t units, const RunBlock* blocks) noexcept {
  Slot* nearest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.head.get() == 0) continue;
    if (nearest == nullptr) {
      nearest = &slot;
      continue;
    }
    const std::uint32_t best = nearest->units.get();
    const std::uint32_t other = slot.units.get();
    const bool is_nearer = other >= units ? best < units || other < best
                                          : best < units && other > best;
    if (is_nearer) nearest = &slot;
  }
  return nearest == nullptr ? RunChain{} : take_all(*nearest, blocks);
}

RunChain RunBins::take_other(std::uint32_t units, const RunBlock* blocks) noexcept {
  Slot& first = slots_[slot_of(units)];
  Slot& second = slots_[slot_of(units) ^ 1];
  const bool is_in_the_way = first.head.get() != 0 && first.units.get() != units &&
                             second.head.get() != 0 && second.units.get() != units;
  if (is_in_the_way) return take_all(first, blocks);
  for (std::size_t i = 0; i < kSlotCount; ++i) {
    Slot& slot = slots_[hand_];
    hand_ = (hand_ + 1) % kSlotCount;
    if (slot.head.get() != 0 && slot.units.get() != units) return take_all(slot, blocks);
  }
  return {};
}

}  // namespace gpupool::internal
