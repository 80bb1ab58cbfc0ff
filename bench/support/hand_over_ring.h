// A bounded queue of blocks from one thread to one other: how a producer hands to a consumer what
// it allocated.
//
// Invariant: taken_ <= given_ <= taken_ + kCapacity.
// Thread safety: one thread gives, one takes. Cost: each side rereads the other's position only
// when it believes the ring full or empty, so that a line moves between the cores now and then and
// not with every block. A side that has to wait spins, and then lets others run.
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

  /// Waits while the ring is full.
  void give(void* block) {
    const std::uint64_t given = given_.load(std::memory_order_relaxed);
    if (given - taken_as_seen_ == kCapacity) {
      taken_as_seen_ = wait_until_other_than(taken_, given - kCapacity);
    }
    blocks_[given % kCapacity] = block;
    given_.store(given + 1, std::memory_order_release);
  }

  /// Waits while the ring is empty.
  void* take() {
    const std::uint64_t taken = taken_.load(std::memory_order_relaxed);
    if (taken == given_as_seen_) given_as_seen_ = wait_until_other_than(given_, taken);
    void* const block = blocks_[taken % kCapacity];
    taken_.store(taken + 1, std::memory_order_release);
    return block;
  }

 private:
  static constexpr std::size_t kLine = 64;

  static std::uint64_t wait_until_other_than(const std::atomic<std::uint64_t>& position,
                                             std::uint64_t value) {
    constexpr int kSpins = 1000;
    for (int spins = 0;; ++spins) {
      const std::uint64_t seen = position.load(std::memory_order_acquire);
      if (seen != value) return seen;
      if (spins > kSpins) std::this_thread::yield();
    }
  }

  alignas(kLine) std::atomic<std::uint64_t> given_{0};
  std::uint64_t taken_as_seen_ = 0;
  alignas(kLine) std::atomic<std::uint64_t> taken_{0};
  std::uint64_t given_as_seen_ = 0;
  alignas(kLine) std::array<void*, kCapacity> blocks_{};
};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_SUPPORT_HAND_OVER_RING_H_
