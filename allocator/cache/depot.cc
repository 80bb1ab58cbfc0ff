#include "cache/depot.h"

namespace gpupool::internal {
namespace {

void mark_chain(BlockRecord& head, std::uint32_t blocks, std::uint32_t next_chain) {
  head.store(head.load().with_chain_length(blocks));
  head.low_bytes.set(next_chain);
}

}  // namespace

void Depot::put(std::uint32_t bin, Chain chain, BlockRecord* records) {
  mark_chain(records[chain.head], chain.blocks, heads_[bin]);
  heads_[bin] = chain.head;
  bins_[bin / 64] |= std::uint64_t{1} << bin % 64;
  small_bytes_ += std::uint64_t{chain.blocks} * kBinBytes[bin];
  is_touched_ = true;
}

Chain Depot::take(std::uint32_t bin, BlockRecord* records) {
  Chain chain;
  chain.head = heads_[bin];
  if (chain.head == 0) return chain;
  chain.blocks = records[chain.head].load().chain_length();
  heads_[bin] = records[chain.head].low_bytes.get();
  if (heads_[bin] == 0) bins_[bin / 64] &= ~(std::uint64_t{1} << bin % 64);
  small_bytes_ -= std::uint64_t{chain.blocks} * kBinBytes[bin];
  is_touched_ = true;
  return chain;
}

bool Depot::put_runs(const RunChain& chain, Run* blocks) {
  Slot* place = nullptr;
  for (Slot& slot : slots_) {
    if (slot.head != 0 && slot.units == chain.units) {
      place = &slot;
      break;
    }
    if (slot.head == 0 && place == nullptr) place = &slot;
  }
  if (place == nullptr) return false;
  mark_chain(blocks[chain.head].record, chain.blocks, place->head);
  *place = {chain.head, chain.units};
  sizes_ |= size_bit(chain.units);
  run_bytes_ += chain.bytes();
  is_touched_ = true;
  return true;
}

RunChain Depot::take_from(Slot& slot, Run* blocks) {
  BlockRecord& head = blocks[slot.head].record;
  const RunChain chain{slot.head, head.load().chain_length(), slot.units};
  slot.head = head.low_bytes.get();
  run_bytes_ -= chain.bytes();
  if (slot.head == 0) {
    sizes_ = 0;
    for (const Slot& other : slots_) {
      if (other.head != 0) sizes_ |= size_bit(other.units);
    }
  }
  is_touched_ = true;
  return chain;
}

RunChain Depot::take_runs(std::uint32_t units, Run* blocks) {
  for (Slot& slot : slots_) {
    if (slot.head != 0 && slot.units == units) return take_from(slot, blocks);
  }
  return {};
}

RunChain Depot::take_any_runs(Run* blocks) {
  for (Slot& slot : slots_) {
    if (slot.head != 0) return take_from(slot, blocks);
  }
  return {};
}

}  // namespace gpupool::internal
