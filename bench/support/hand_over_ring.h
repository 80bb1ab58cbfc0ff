// A bounded queue of blocks from one thread to one other: how a producer hands to a consumer what
// it allocated.
//
// Invariant: taken_ <= given_ <= taken_ + kCapacity.
// Thread safety: one thread gives, one takes. Cost: a few instructions a block. Each side tells the
// other of kPublished blocks at once, keeps what it alone uses on a line of its own, and rereads
// the other's position only when it believes the ring full or empty; so hardly any line moves
// between the cores for the ring itself, and what is measured is the blocks. A side that has to
// wait spins, and then lets others run.
#ifndef GPUPOOL_BENCH_SUPPORT_HAND_OVER_RING_H_
#define GPUPOOL_BENCH_SUPPORT_HAND_OVER_RING_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace gpupool::bench {

class HandOverRing {
 public:
  static constexpr std::uint64_t kCapacity = 1024;
  static constexpr std::uint64_t kPublished = 16;

  /// Waits while the ring is full.
  void give(void* block) {
    const std::uint64_t at = giver_.position;
    if (at - giver_.others == kCapacity) {
      giver_.others = wait_until_other_than(taken_, at - kCapacity);
    }
    blocks_[at % kCapacity] = block;
    giver_.position = at + 1;
    if (giver_.position % kPublished == 0) publish();
  }
  /// So that the last blocks are taken, too.
  void publish() { given_.store(giver_.position, std::memory_order_release); }

  /// Waits while the ring is empty.
  void* take() {
    const std::uint64_t at = taker_.position;
    if (at == taker_.others) taker_.others = wait_until_other_than(given_, at);
    void* const block = blocks_[at % kCapacity];
    taker_.position = at + 1;
    if (taker_.position % kPublished == 0) {
      taken_.store(taker_.position, std::memory_order_release);
    }
    return block;
  }

 private:
  static constexpr std::size_t kLine = 64;

  /// What one side alone uses.
  struct alignas(kLine) Side {
    std::uint64_t position = 0;
    std::uint64_t others = 0;  // as last seen
  };

  static std::uint64_t wait_until_other_than(const std::atomic<std::uint64_t>& position,
                                             std::uint64_t value) {
    constexpr int kSpins = 1000;
    for (int spins = 0;; ++spins) {
      const std::uint64_t seen = position.load(std::memory_order_acquire);
      if (seen != value) return seen;
      if (spins > kSpins) std::this_thread::yield();
    }
  }

  Side giver_;
  Side taker_;
  alignas(kLine) std::atomic<std::uint64_t> given_{0};
  alignas(kLine) std::atomic<std::uint64_t> taken_{0};
  alignas(kLine) std::array<void*, kCapacity> blocks_{};
};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_SUPPORT_HAND_OVER_RING_H_
