#include "pool/guards.h"

#include <algorithm>
#include <array>

namespace gpupool::internal {

Result<void> Guards::fill(DeviceAddress address, std::uint64_t bytes, std::uint8_t value,
                          RawStream stream) {
  auto filled = backend_.fill(address, bytes, value, stream);
  if (filled.ok()) fills_.fetch_add(1, std::memory_order_relaxed);
  return filled;
}

Result<void> Guards::on_hand_out(const GuardedBlock& block, RawStream stream) {
  if (notes_ != nullptr) {
    notes_->add_block(block.address, block.requested_bytes + canary_bytes());
  }
  Result<void> result;
  if (options_.scrub && postponed() > 0) result = fill(block.address, block.bytes, 0, stream);
  if (options_.poison && result.ok()) {
    result = fill(block.address, block.requested_bytes, kPoisonByte, stream);
  }
  if (options_.canary && result.ok()) {
    result =
        backend_.fill(block.address + block.requested_bytes, kCanaryBytes, kCanaryByte, stream);
  }
  if (!result.ok() && notes_ != nullptr) notes_->remove_block(block.address);
  return result;
}

std::optional<std::uint64_t> Guards::on_free(const GuardedBlock& block, RawStream stream,
                                             bool has_other_uses) {
  const auto capture = backend_.capture_state(stream);
  const bool is_free_of_capture = capture.ok() && capture.value() == CaptureState::none;
  std::optional<std::uint64_t> overrun;
  if (options_.canary) {
    if (is_free_of_capture) {
      if (const auto found = find_overrun(block, stream)) overrun = find_untold(block, *found);
    }
    forget(block);
  }
  const bool may_fill = is_free_of_capture && !has_other_uses;
  if (options_.scrub) {
    // Whatever the reason, the next holder must not read it.
    const bool is_done = may_fill && fill(block.address, block.bytes, 0, stream).ok();
    if (!is_done) postponed_.fetch_add(1, std::memory_order_relaxed);
  } else if (options_.poison && may_fill) {
    // An aid to find faults: where it cannot be done the block is as it was.
    static_cast<void>(fill(block.address, block.bytes, kPoisonByte, stream).ok());
  }
  if (notes_ != nullptr) notes_->remove_block(block.address);
  return overrun;
}

std::optional<Guards::Canary> Guards::find_overrun(const GuardedBlock& block, RawStream stream) {
  Canary found;
  const DeviceAddress end = block.address + block.requested_bytes;
  if (!backend_.read(end, found.size(), found.data(), stream).ok()) return std::nullopt;
  const bool is_intact = std::all_of(found.begin(), found.end(),
                                     [](std::uint8_t byte) { return byte == kCanaryByte; });
  if (is_intact) return std::nullopt;
  return found;
}

std::optional<std::uint64_t> Guards::find_untold(const GuardedBlock& block, const Canary& found) {
  const MutexLock lock(told_mu_);
  const auto told = told_.find(block.address);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool is_told = told != told_.end() && found[i] == told->second[i];
    if (found[i] != kCanaryByte && !is_told) return block.requested_bytes + i;
  }
  return std::nullopt;
}

void Guards::note_told(const GuardedBlock& block, const Canary& found) {
  const MutexLock lock(told_mu_);
  told_.insert_or_assign(block.address, found);
}

void Guards::forget(const GuardedBlock& block) {
  const MutexLock lock(told_mu_);
  told_.erase(block.address);
}

}  // namespace gpupool::internal
