#include "base/mutex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <thread>

#include "base/heavy_fence.h"
#include "base/spin.h"

namespace gpupool::internal {
namespace {

/// How often to look before sleeping: some microseconds, longer than the lock is held mostly, and
/// about what it costs to sleep and be woken.
constexpr int kSpins = 100;
/// Between two looks of a sleeper that may be overlooked.
constexpr long kLookAgainNs = 100'000;

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

std::uint32_t* word(std::atomic<std::uint32_t>& value) {
  return reinterpret_cast<std::uint32_t*>(&value);
}

}  // namespace

void Mutex::lock_slowly() {
  for (int i = 0; i < kSpins; ++i) {
    pause_briefly();
    if (is_locked_.load(std::memory_order_relaxed) == 0 && try_lock()) return;
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  // From here on whoever unlocks sees a sleeper, or this thread sees the lock free: each thread has
  // passed a full barrier, so that its store and load of unlock() are both before it or both after.
  const bool has_fence = has_heavy_fence();
  if (has_fence) heavy_fence();
  while (!try_lock()) {
    const std::timespec look_again{0, kLookAgainNs};
    ::syscall(SYS_futex, word(is_locked_), FUTEX_WAIT_PRIVATE, 1, has_fence ? nullptr : &look_again,
              nullptr, 0);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void Mutex::wake_one() {
  ::syscall(SYS_futex, word(is_locked_), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

bool Mutex::try_lock_for(std::chrono::microseconds limit) {
  if (try_lock()) return true;
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
    if (try_lock()) return true;
  }
  return false;
}

}  // namespace gpupool::internal
