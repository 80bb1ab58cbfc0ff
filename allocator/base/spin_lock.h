// A lock for a few stores that two threads hardly ever make at once: no sleep, no line of its own.
//
// Thread safety: any. Cost: one exchange to take, a store to give back; whoever waits for it spins,
// and one that must have it lets others run meanwhile, since the holder may have been stopped.
#ifndef GPUPOOL_BASE_SPIN_LOCK_H_
#define GPUPOOL_BASE_SPIN_LOCK_H_

#include <sched.h>

#include <atomic>

#include "base/spin.h"

namespace gpupool::internal {

class SpinLock {
 public:
  bool try_lock() noexcept {
    return !is_locked_.load(std::memory_order_relaxed) &&
           !is_locked_.exchange(true, std::memory_order_acquire);
  }
  /// Looks for about a microsecond, longer than the lock is held by a thread that runs.
  bool lock_briefly() noexcept {
    constexpr int kLooks = 64;
    for (int i = 0; i < kLooks; ++i) {
      if (try_lock()) return true;
      pause_briefly();
    }
    return false;
  }
  void lock() noexcept {
    while (!lock_briefly()) ::sched_yield();
  }
  void unlock() noexcept { is_locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> is_locked_{false};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_SPIN_LOCK_H_
