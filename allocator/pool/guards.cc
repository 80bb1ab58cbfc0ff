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
  if (options_.canary && is_free_of_capture) overrun = find_overrun(block, stream);
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

std::optional<std::uint64_t> Guards::find_overrun(const GuardedBlock& block, RawStream stream) {
  std::array<std::uint8_t, kCanaryBytes> found;
  const DeviceAddress end = block.address + block.requested_bytes;
  if (!backend_.read(end, found.size(), found.data(), stream).ok()) return std::nullopt;
  const auto wrong = std::find_if(found.begin(), found.end(),
                                  [](std::uint8_t byte) { return byte != kCanaryByte; });
  if (wrong == found.end()) return std::nullopt;
  return block.requested_bytes + static_cast<std::uint64_t>(wrong - found.begin());
}

}  // namespace gpupool::internal
