// Lets the one owner of a structure in and out without a locked instruction, and any other thread
// keep it out for a while: the cost lies with whoever claims.
//
//   owner                         claimer
//   inside = 1                    gate |= claimed
//   (compiler barrier)            heavy_fence()
//   gate == 0 ? go on : leave     wait until inside == 0
//
// After the fence either the owner's mark is visible to the claimer, or the claimer's flag to the
// owner (the asymmetric form of Dekker's algorithm; as in Dice, Huang and Yang, "Asymmetric Dekker
// Synchronization", 2001, and in the kernel's membarrier(2)). Where the process may not use
// heavy_fence(), the gate has a bit that sends the owner through a locked exchange.
//
// Thread safety: enter() and leave() by the owner; the rest by one claimer at a time. What the
// claim guards is read by others all the same, so it consists of Relaxed fields.
#ifndef GPUPOOL_CACHE_CLAIM_H_
#define GPUPOOL_CACHE_CLAIM_H_

#include <atomic>
#include <cstdint>

namespace gpupool::internal {

class Claim {
 public:
  /// Starts open, or barred. `has_fence`: the claimers use heavy_fence().
  void start(bool has_fence, bool is_barred = false) noexcept {
    inside_.store(0, std::memory_order_relaxed);
    gate_.store((has_fence ? 0 : kExchange) | (is_barred ? kBarred : 0), std::memory_order_release);
  }

  /// False: claimed, barred or ended. Then nothing was entered.
  bool enter() noexcept {
    inside_.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const std::uint32_t gate = gate_.load(std::memory_order_acquire);
    if (gate == 0) [[likely]]
      return true;
    if (gate == kExchange) {
      inside_.exchange(1, std::memory_order_seq_cst);
      if (gate_.load(std::memory_order_seq_cst) == kExchange) return true;
    }
    leave();
    return false;
  }
  void leave() noexcept { inside_.store(0, std::memory_order_release); }

  /// For good: the owner is never let in again.
  void end() noexcept { gate_.fetch_or(kEnded, std::memory_order_seq_cst); }
  bool has_ended() const noexcept { return (gate_.load(std::memory_order_acquire) & kEnded) != 0; }

  /// Sends the owner through the pool's lock at each call, until it is unbarred: from when it has
  /// been seen outside, after a heavy_fence() where there is one. Whoever holds that lock may claim
  /// all the same.
  void bar() noexcept { gate_.fetch_or(kBarred, std::memory_order_seq_cst); }
  void unbar() noexcept { gate_.fetch_and(~kBarred, std::memory_order_release); }
  /// Barred or ended: the owner goes the long way, without a try.
  bool is_shut() const noexcept {
    return (gate_.load(std::memory_order_acquire) & (kBarred | kEnded)) != 0;
  }

  /// Keeps the owner out from when it has been seen outside, after a heavy_fence() where there is
  /// one.
  void claim() noexcept { gate_.fetch_or(kClaimed, std::memory_order_seq_cst); }
  bool is_outside() const noexcept { return inside_.load(std::memory_order_seq_cst) == 0; }
  void release() noexcept { gate_.fetch_and(~kClaimed, std::memory_order_release); }

 private:
  static constexpr std::uint32_t kClaimed = 1;
  static constexpr std::uint32_t kEnded = 2;
  static constexpr std::uint32_t kExchange = 4;
  static constexpr std::uint32_t kBarred = 8;

  std::atomic<std::uint32_t> inside_{0};
  std::atomic<std::uint32_t> gate_{kEnded};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_CACHE_CLAIM_H_
