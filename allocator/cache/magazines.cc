#include "cache/magazines.h"

#include <algorithm>

namespace gpupool::internal {
namespace {

/// Blocks that a bin may hold at first: enough for a pair or two, so that sizes seen once strand
/// little.
constexpr std::uint32_t kFirstLimit = 4;

}  // namespace

void Magazines::start(std::uint64_t limit_bytes) {
  for (Bin& bin : bins_) {
    bin.head.set(0);
    bin.blocks.set(0);
    bin.limit.set(0);
    bin.full.set(0);
    bin.full_blocks.set(0);
  }
  used_bins_ = {};
  granted_bytes_ = 0;
  limit_bytes_ = limit_bytes;
}

void Magazines::use_full_chain(Bin& bin, std::uint32_t index) noexcept {
  const std::uint16_t blocks = bin.full_blocks.get();
  const std::uint16_t limit = bin.limit.get();
  bin.head.set(bin.full.get());
  bin.blocks.set(blocks);
  bin.full.set(0);
  bin.full_blocks.set(0);
  // The grant of the chain becomes the bin's where that has less.
  bin.limit.set(std::max(limit, blocks));
  granted_bytes_ -= std::uint64_t{std::min(limit, blocks)} * kBinBytes[index];
}

bool Magazines::grant(std::uint32_t bin, std::uint64_t bytes) {
  if (granted_bytes_ + bytes > limit_bytes_) return false;
  used_bins_[bin / 64] |= std::uint64_t{1} << bin % 64;
  granted_bytes_ += bytes;
  return true;
}

bool Magazines::raise_limit(std::uint32_t bin, std::uint32_t limit) {
  Bin& b = bins_[bin];
  const std::uint32_t now = b.limit.get();
  if (limit <= now) return false;
  const std::uint64_t more = std::uint64_t{limit - now} * kBinBytes[bin];
  if (!grant(bin, more)) {
    shrink_idle_grants(bin);
    if (!grant(bin, more)) return false;
  }
  b.limit.set(static_cast<std::uint16_t>(limit));
  return true;
}

void Magazines::shrink_idle_grants(std::uint32_t except) {
  for (std::uint32_t i = 0; i < kBinCount; ++i) {
    Bin& bin = bins_[i];
    const std::uint16_t blocks = bin.blocks.get();
    if (i == except || bin.limit.get() <= blocks) continue;
    granted_bytes_ -=
        std::uint64_t{static_cast<std::uint16_t>(bin.limit.get() - blocks)} * kBinBytes[i];
    bin.limit.set(blocks);
  }
}

bool Magazines::make_room(std::uint32_t bin) {
  Bin& b = bins_[bin];
  const std::uint32_t limit = b.limit.get();
  const std::uint32_t most = full_chain(bin);
  if (limit < most) {
    const std::uint32_t wish = std::min(most, std::max(kFirstLimit, 2 * limit));
    if (raise_limit(bin, wish) || raise_limit(bin, limit + 1)) return true;
  }
  const std::uint16_t blocks = b.blocks.get();
  if (b.full.get() != 0 || blocks == 0) return false;
  if (!grant(bin, std::uint64_t{blocks} * kBinBytes[bin])) return false;
  b.full.set(b.head.get());
  b.full_blocks.set(blocks);
  b.head.set(0);
  b.blocks.set(0);
  return true;
}

void Magazines::grow(std::uint32_t bin) {
  const std::uint32_t limit = bins_[bin].limit.get();
  raise_limit(bin, std::min(full_chain(bin), std::max(kFirstLimit, 2 * limit)));
}

std::uint32_t Magazines::batch(std::uint32_t bin) const noexcept {
  // Half of what it may hold, so that frees find room, too.
  return std::max<std::uint32_t>(bins_[bin].limit.get() / 2U, 1);
}

bool Magazines::put_chain(std::uint32_t bin, Chain chain) {
  Bin& b = bins_[bin];
  if (b.full.get() != 0) return false;
  const std::uint64_t bytes = std::uint64_t{chain.blocks} * kBinBytes[bin];
  if (!grant(bin, bytes)) {
    shrink_idle_grants(bin);
    if (!grant(bin, bytes)) return false;
  }
  b.full.set(chain.head);
  b.full_blocks.set(static_cast<std::uint16_t>(chain.blocks));
  return true;
}

Chain Magazines::take_chain(std::uint32_t bin) {
  Bin& b = bins_[bin];
  Chain chain{b.full.get(), b.full_blocks.get()};
  if (chain.head != 0) {
    b.full.set(0);
    b.full_blocks.set(0);
    granted_bytes_ -= std::uint64_t{chain.blocks} * kBinBytes[bin];
    return chain;
  }
  chain = {b.head.get(), b.blocks.get()};
  b.head.set(0);
  b.blocks.set(0);
  return chain;
}

bool Magazines::is_empty() const noexcept {
  return std::all_of(bins_.begin(), bins_.end(),
                     [](const Bin& bin) { return bin.head.get() == 0 && bin.full.get() == 0; });
}

}  // namespace gpupool::internal
