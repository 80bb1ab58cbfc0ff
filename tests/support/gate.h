// Where a driver call waits until it is let through.
//
// Thread safety: all methods from any thread. Waits are bounded, so that a pool that waits for the
// call fails the test instead of hanging it.
#ifndef GPUPOOL_TESTS_SUPPORT_GATE_H_
#define GPUPOOL_TESTS_SUPPORT_GATE_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace gpupool {

class Gate {
 public:
  static constexpr std::chrono::seconds kLongest{20};

  void pass() {
    std::unique_lock lock(mutex_);
    is_reached_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, kLongest, [this] { return is_open_; });
  }
  bool wait_until_reached() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLongest, [this] { return is_reached_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_reached_ = false;
  bool is_open_ = false;
};

}  // namespace gpupool

#endif  // GPUPOOL_TESTS_SUPPORT_GATE_H_
