// A thread that does one thing after the other as it is told and stays in between, so that it has
// its caches and does not use them.
//
// Thread safety: told by one thread at a time.
#ifndef GPUPOOL_TESTS_UNIT_WORKER_H_
#define GPUPOOL_TESTS_UNIT_WORKER_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace gpupool {

class Worker {
 public:
  Worker() : thread_([this] { loop(); }) {}
  /// The thread ends, after what it was told last.
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void start(std::function<void()> work) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !work_; });
    work_ = std::move(work);
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !work_; });
  }
  void run(std::function<void()> work) {
    start(std::move(work));
    wait();
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return work_ || is_over_; });
      if (!work_) return;
      lock.unlock();
      work_();
      lock.lock();
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace gpupool

#endif  // GPUPOOL_TESTS_UNIT_WORKER_H_
