#include "cache/run_bins.h"

#include <bit>

namespace gpupool::internal {

void RunBins::start() {
  for (Slot& slot : slots_) {
    slot.head.set(0);
    slot.units.set(0);
  }
  bytes_.set(0);
  limit_bytes_.set(0);
  assigned_ = {};
  hand_ = 0;
}

RunChain RunBins::take_all(Slot& slot, const Run* blocks) noexcept {
  RunChain chain{slot.head.get(), 0, slot.units.get()};
  for (std::uint32_t id = chain.head; id != 0; id = blocks[id].record.next.get()) ++chain.blocks;
  slot.head.set(0);
  bytes_.add(0 - chain.bytes());
  return chain;
}

bool RunBins::put_in_empty_slot(std::uint32_t id, std::uint32_t units, Run* blocks) noexcept {
  blocks[id].record.next.set(0);
  return put_chain({id, 1, units});
}

bool RunBins::put_chain(const RunChain& chain) noexcept {
  if (bytes_.get() + chain.bytes() > limit_bytes_.get()) return false;
  Slot* slot = find(chain.units);
  if (slot == nullptr) {
    const std::size_t first = slot_of(chain.units);
    const std::size_t chosen = slots_[first].head.get() == 0 ? first : first ^ 1;
    slot = &slots_[chosen];
    if (slot->head.get() != 0) return false;
    slot->units.set(chain.units);
    assigned_[chosen / 64] |= std::uint64_t{1} << chosen % 64;
  }
  if (slot->head.get() != 0) return false;
  slot->head.set(chain.head);
  bytes_.add(chain.bytes());
  return true;
}

std::uint32_t RunBins::room_for(std::uint32_t units) const noexcept {
  const Slot* const slot = find(units);
  const std::size_t first = slot_of(units);
  const bool has_slot = slot != nullptr
                            ? slot->head.get() == 0
                            : slots_[first].head.get() == 0 || slots_[first ^ 1].head.get() == 0;
  if (!has_slot || bytes_.get() > limit_bytes_.get()) return 0;
  return static_cast<std::uint32_t>((limit_bytes_.get() - bytes_.get()) / (units * kUnitBytes));
}

RunBatch RunBins::find_older_half(std::uint32_t units, const Run* blocks) const noexcept {
  RunBatch older;
  const Slot* const slot = find(units);
  if (slot == nullptr || slot->head.get() == 0) return older;
  const auto count = static_cast<std::uint32_t>(bytes_.get() / (units * kUnitBytes));
  // Of very many, as an option that was raised allows, the walk would cost more than it saves.
  if (count > kMostWalked) return older;
  const std::uint32_t moved = count == 1 ? 1 : std::min(count - count / 2, RunBatch::kMost);
  std::uint32_t left = count;
  std::uint32_t id = slot->head.get();
  for (; id != 0 && left > 0; id = blocks[id].record.next.get()) {
    if (left-- <= moved) older.ids[left] = id;
  }
  // As many as there would be if all were of this size.
  if (id != 0 || left > 0 || bytes_.get() != count * std::uint64_t{units} * kUnitBytes)
    return older;
  older.blocks = moved;
  older.units = units;
  return older;
}

void RunBins::cut(const RunBatch& older, Run* blocks) noexcept {
  Slot& slot = *find(older.units);
  const auto count = static_cast<std::uint32_t>(bytes_.get() / (older.units * kUnitBytes));
  if (count == older.blocks) {
    slot.head.set(0);
  } else {
    std::uint32_t last_kept = slot.head.get();
    for (std::uint32_t i = older.blocks + 1; i < count; ++i) {
      last_kept = blocks[last_kept].record.next.get();
    }
    blocks[last_kept].record.next.set(0);
  }
  bytes_.add(0 - older.bytes());
}

RunChain RunBatch::link(Run* runs) const noexcept {
  std::uint32_t head = 0;
  for (std::uint32_t i = 0; i < blocks; ++i) {
    runs[ids[i]].record.next.set(head);
    head = ids[i];
  }
  return {head, blocks, units};
}

RunChain RunBins::take_nearest(std::uint32_t units, const Run* blocks) noexcept {
  Slot* nearest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.head.get() == 0) continue;
    if (nearest == nullptr) {
      nearest = &slot;
      continue;
    }
    const std::uint32_t best = nearest->units.get();
    const std::uint32_t other = slot.units.get();
    const bool is_nearer =
        other >= units ? best < units || other < best : best < units && other > best;
    if (is_nearer) nearest = &slot;
  }
  return nearest == nullptr ? RunChain{} : take_all(*nearest, blocks);
}

void RunBins::unassign(std::size_t slot) noexcept {
  slots_[slot].units.set(0);
  assigned_[slot / 64] &= ~(std::uint64_t{1} << slot % 64);
}

RunChain RunBins::evict_other(std::uint32_t units, const Run* blocks) noexcept {
  const auto evict = [&](std::size_t slot) {
    const RunChain chain = take_all(slots_[slot], blocks);
    unassign(slot);
    return chain;
  };
  const std::size_t first = slot_of(units);
  const bool is_in_the_way =
      find(units) == nullptr && slots_[first].head.get() != 0 && slots_[first ^ 1].head.get() != 0;
  if (is_in_the_way) return evict(first);
  // Once around, each word from the hand on and the first word's beginning last.
  for (std::size_t i = 0; i <= assigned_.size(); ++i) {
    const std::size_t word = (hand_ / 64 + i) % assigned_.size();
    std::uint64_t rest = assigned_[word];
    if (i == 0) rest &= ~std::uint64_t{0} << hand_ % 64;
    for (; rest != 0; rest &= rest - 1) {
      const std::size_t slot = word * 64 + static_cast<std::size_t>(std::countr_zero(rest));
      if (slots_[slot].units.get() == units) continue;
      if (slots_[slot].head.get() == 0) {
        unassign(slot);
        continue;
      }
      hand_ = (slot + 1) % kSlotCount;
      return evict(slot);
    }
  }
  return {};
}

}  // namespace gpupool::internal
