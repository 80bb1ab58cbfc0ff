// A mutex that Clang's thread-safety analysis can see, and the lock that goes with it. libstdc++'s
// own carries no annotations. Same cost as std::mutex.
#ifndef GPUPOOL_BASE_MUTEX_H_
#define GPUPOOL_BASE_MUTEX_H_

#include <chrono>
#include <mutex>
#include <thread>

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
  void lock() GPUPOOL_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() GPUPOOL_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  bool try_lock() GPUPOOL_THREAD_ANNOTATION(try_acquire_capability(true)) {
    return mutex_.try_lock();
  }
  /// Tries for about as long, without sleeping: for waits shorter than a sleep is late.
  bool try_lock_for(std::chrono::microseconds limit)
      GPUPOOL_THREAD_ANNOTATION(try_acquire_capability(true)) {
    if (mutex_.try_lock()) return true;
    const auto end = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
      if (mutex_.try_lock()) return true;
    }
    return false;
  }

 private:
  std::mutex mutex_;
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
