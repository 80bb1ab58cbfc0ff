// The mutex of the pool, visible to Clang's thread-safety analysis, and the locks that go with it.
//
// Taken by one locked instruction and given back by a plain store, where std::mutex takes two and a
// call for each: about 6 ns against 12, which every request pays that no cache serves. The price is
// the sleeper's: before it sleeps it has heavy_fence() see to it that whoever unlocks sees it (the
// asymmetric form of the futex mutex: Drepper, "Futexes Are Tricky", 2011, mutex 2). Where the
// process may not use heavy_fence(), a sleeper looks again every 100 us instead.
//
// Not fair, not recursive. A waiter spins for a few microseconds before it sleeps.
#ifndef GPUPOOL_BASE_MUTEX_H_
#define GPUPOOL_BASE_MUTEX_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#if defined(__clang__)
#define GPUPOOL_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define GPUPOOL_THREAD_ANNOTATION(x)
#endif
#define GPUPOOL_GUARDED_BY(x) GPUPOOL_THREAD_ANNOTATION(guarded_by(x))
#define GPUPOOL_REQUIRES(...) GPUPOOL_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define GPUPOOL_ACQUIRED_AFTER(...) GPUPOOL_THREAD_ANNOTATION(acquired_after(__VA_ARGS__))
#define GPUPOOL_EXCLUDES(...) GPUPOOL_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace gpupool::internal {

class GPUPOOL_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  constexpr Mutex() noexcept = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() GPUPOOL_THREAD_ANNOTATION(acquire_capability()) {
    if (!try_lock()) lock_slowly();
  }
  void unlock() GPUPOOL_THREAD_ANNOTATION(release_capability()) {
    is_locked_.store(0, std::memory_order_release);
    // Keeps the compiler from turning the two around; for the processor see lock_slowly().
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_relaxed) != 0) wake_one();
  }
  bool try_lock() GPUPOOL_THREAD_ANNOTATION(try_acquire_capability(true)) {
    std::uint32_t expected = 0;
    return is_locked_.compare_exchange_strong(expected, 1, std::memory_order_acquire,
                                              std::memory_order_relaxed);
  }
  /// As of a moment ago: for guesses alone.
  bool is_held() const noexcept { return is_locked_.load(std::memory_order_relaxed) != 0; }
  /// Tries for about as long, without sleeping: for waits shorter than a sleep is late.
  bool try_lock_for(std::chrono::microseconds limit)
      GPUPOOL_THREAD_ANNOTATION(try_acquire_capability(true));

 private:
  void lock_slowly();
  void wake_one();

  std::atomic<std::uint32_t> is_locked_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

class GPUPOOL_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) GPUPOOL_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() GPUPOOL_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// Lets go of a held mutex for a scope, around a driver call.
class GPUPOOL_THREAD_ANNOTATION(scoped_lockable) MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) GPUPOOL_THREAD_ANNOTATION(release_capability(mutex))
      : mutex_(mutex) {
    mutex_.unlock();
  }
  // "Release" is the end of the scope's effect, to the analysis; here that takes the mutex again.
  ~MutexUnlock() GPUPOOL_THREAD_ANNOTATION(release_capability()) { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_MUTEX_H_
