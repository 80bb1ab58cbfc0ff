// What DebugOptions does to a block when it is handed out and when it comes back.
//
// Note [Guards]
// While any is on, no thread gets a cache at hand, so that every call goes the way that takes the
// pool's lock, and the path of a hit has nothing to ask. What is done on the device is work of the
// call's own stream: a block is filled after all that its holder gave that stream, and before the
// next holder's work there; for another stream it is a part of what the block's ticket waits for.
// It is done without the pool's lock, between the exchange that takes the block from its holder
// and its way into caches and tiers, and on the way out before the block is live and its request
// counted as served: nobody else can have the block meanwhile. Where growing has served it, that is
// under the growth lock.
//
// scrub must hold always. Where a freed block cannot be filled at once, because another stream uses
// it as well (record_stream, record_use) or the free is in a capture (a graph would fill the memory
// again at each replay, whoever has it then), it is not, and from then on blocks are zeroed when
// they are handed out, too. In a capture that is a node of the graph, and right there: the block is
// the graph's.
//
// canary: kCanaryBytes behind what was requested; they count as waste. A write in front of a block
// meets those of the block before it. They are read back when the block is freed, which waits for
// the stream; a free in a capture does not look. What was found of a live block is remembered until
// the block is freed, so that it is told once. (To write the bytes anew instead would take the
// block from its holder meanwhile: freed in between, they would be another's.)
//
// Thread safety: any thread, without the pool's lock; find_untold() and note_told() make no driver
// call, and may be used under it. Cost: driver calls; off, a load.
#ifndef GPUPOOL_POOL_GUARDS_H_
#define GPUPOOL_POOL_GUARDS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/mutex.h"
#include "gpupool/backend.h"
#include "gpupool/options.h"

namespace gpupool::internal {

/// A block as the guards see it.
struct GuardedBlock {
  DeviceAddress address = 0;
  std::uint64_t requested_bytes = 0;
  std::uint64_t bytes = 0;
};

class Guards {
 public:
  Guards(Backend& backend, const DebugOptions& options)
      : backend_(backend), options_(options), is_on_(options.is_any()) {
    if (options.nvtx) notes_ = backend.block_notes();
  }

  bool is_on() const noexcept { return is_on_; }
  bool has_canaries() const noexcept { return options_.canary; }
  /// How much more each block takes.
  std::uint64_t canary_bytes() const noexcept { return options_.canary ? kCanaryBytes : 0; }
  /// The largest request that so many bytes in a row serve.
  std::uint64_t request_in(std::uint64_t bytes) const noexcept {
    return bytes - std::min(bytes, canary_bytes());
  }
  BlockNotes* notes() const noexcept { return notes_; }

  /// On an error the block is not fit to be handed out.
  Result<void> on_hand_out(const GuardedBlock& block, RawStream stream);
  /// Gives where the first byte behind the block that was written to lies, from the block's start.
  std::optional<std::uint64_t> on_free(const GuardedBlock& block, RawStream stream,
                                       bool has_other_uses);
  /// What lies behind a block where that was written to; nothing, too, where it cannot be read.
  using Canary = std::array<std::uint8_t, kCanaryBytes>;
  std::optional<Canary> find_overrun(const GuardedBlock& block, RawStream stream);
  /// Where the first byte of that lies which nobody was told of, from the block's start.
  std::optional<std::uint64_t> find_untold(const GuardedBlock& block, const Canary& found);
  /// All of that is told of from now on. Requires: the block stays live during the call.
  void note_told(const GuardedBlock& block, const Canary& found);

  std::uint64_t fills() const noexcept { return fills_.load(std::memory_order_relaxed); }
  std::uint64_t postponed() const noexcept { return postponed_.load(std::memory_order_relaxed); }

 private:
  Result<void> fill(DeviceAddress address, std::uint64_t bytes, std::uint8_t value,
                    RawStream stream);
  void forget(const GuardedBlock& block);

  static constexpr std::uint8_t kCanaryByte = 0xc5;

  Backend& backend_;
  const DebugOptions options_;
  const bool is_on_;
  BlockNotes* notes_ = nullptr;
  std::atomic<std::uint64_t> fills_{0};
  std::atomic<std::uint64_t> postponed_{0};
  Mutex told_mu_;  // taken last
  std::unordered_map<DeviceAddress, Canary> told_ GPUPOOL_GUARDED_BY(told_mu_);
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_GUARDS_H_
