// Small things that every measurement needs.
//
// Thread safety: plain functions; a SleepingThread belongs to one thread.
#ifndef GPUPOOL_BENCH_PEERS_TIMING_H_
#define GPUPOOL_BENCH_PEERS_TIMING_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

namespace gpupool::bench {

using Time = std::chrono::steady_clock::time_point;

inline Time now() { return std::chrono::steady_clock::now(); }

inline double ns_between(Time start, Time end) {
  return std::chrono::duration<double, std::nano>(end - start).count();
}

inline double ns_since(Time start) { return ns_between(start, now()); }

/// The middle value, of an even number the mean of the middle two. Requires: not empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

inline double least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

/// Makes the compiler produce `value`, and nothing more.
template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

/// A second thread that does nothing. In a process that never had one, the C library leaves out the
/// atomic operations of its locks, which flatters whatever takes a lock.
class SleepingThread {
 public:
  SleepingThread() : thread_([this] { sleep(); }) {}
  ~SleepingThread() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_all();
    thread_.join();
  }
  SleepingThread(const SleepingThread&) = delete;
  SleepingThread& operator=(const SleepingThread&) = delete;

 private:
  void sleep() {
    std::unique_lock lock(mutex_);
    over_.wait(lock, [this] { return is_over_; });
  }

  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_TIMING_H_
