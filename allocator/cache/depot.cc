#include "cache/depot.h"

namespace gpupool::internal {

void Depot::put(std::uint32_t bin, Chain chain, BlockRecord* records) {
  BlockRecord& head = records[chain.head];
  head.store(head.load().with_chain_length(chain.blocks));
  head.low_bytes.set(heads_[bin].get());
  heads_[bin].set(chain.head);
  bins_[bin / 64] |= std::uint64_t{1} << bin % 64;
  small_bytes_.add(std::uint64_t{chain.blocks} * kBinBytes[bin]);
  is_touched_ = true;
}

Chain Depot::take(std::uint32_t bin, BlockRecord* records) {
  Chain chain;
  chain.head = heads_[bin].get();
  if (chain.head == 0) return chain;
  chain.blocks = records[chain.head].load().chain_length();
  const std::uint32_t next = records[chain.head].low_bytes.get();
  heads_[bin].set(next);
  if (next == 0) bins_[bin / 64] &= ~(std::uint64_t{1} << bin % 64);
  small_bytes_.add(0 - std::uint64_t{chain.blocks} * kBinBytes[bin]);
  is_touched_ = true;
  return chain;
}

bool Depot::put_runs(const RunBatch& batch) {
  const auto place = static_cast<std::size_t>(std::countr_one(used_));
  if (place == kMaxBatches) return false;
  used_ = static_cast<std::uint16_t>(used_ | 1U << place);
  batches_[place].copy(batch);
  sizes_.set(sizes_.get() | size_bit(batch.units));
  run_bytes_.add(batch.bytes());
  is_touched_ = true;
  return true;
}

RunBatch Depot::take_from(std::uint32_t place, std::uint32_t most) {
  RunBatch taken;
  batches_[place].move_newest(most, taken);
  run_bytes_.add(0 - taken.bytes());
  is_touched_ = true;
  if (batches_[place].blocks > 0) return taken;
  used_ = static_cast<std::uint16_t>(used_ & ~(1U << place));
  std::uint64_t sizes = 0;
  for (std::uint32_t rest = used_; rest != 0; rest &= rest - 1) {
    sizes |= size_bit(batches_[static_cast<std::size_t>(std::countr_zero(rest))].units);
  }
  sizes_.set(sizes);
  return taken;
}

RunBatch Depot::take_runs(std::uint32_t units, std::uint32_t most) {
  for (std::uint32_t rest = used_; rest != 0;) {
    const auto place = static_cast<std::uint32_t>(std::bit_width(rest)) - 1;
    if (batches_[place].units == units) return take_from(place, most);
    rest &= ~(1U << place);
  }
  return {};
}

RunBatch Depot::take_any_runs() {
  if (used_ == 0) return {};
  return take_from(static_cast<std::uint32_t>(std::countr_zero(used_)), RunBatch::kMost);
}

}  // namespace gpupool::internal
