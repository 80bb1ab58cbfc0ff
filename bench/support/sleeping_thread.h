// A second thread that sleeps until its owner ends. In a process that never had one, the C library
// leaves the atomic operations out of its mutex, and every lock looks cheaper than it is in a
// service (by 17 ns here).
//
// Thread safety: one owner. Cost: a thread.
#ifndef GPUPOOL_BENCH_SUPPORT_SLEEPING_THREAD_H_
#define GPUPOOL_BENCH_SUPPORT_SLEEPING_THREAD_H_

#include <future>
#include <thread>

namespace gpupool::bench {

class SleepingThread {
 public:
  SleepingThread() : thread_([wake = wake_.get_future()]() mutable { wake.wait(); }) {}
  ~SleepingThread() {
    wake_.set_value();
    thread_.join();
  }
  SleepingThread(const SleepingThread&) = delete;
  SleepingThread& operator=(const SleepingThread&) = delete;

 private:
  std::promise<void> wake_;
  std::thread thread_;
};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_SUPPORT_SLEEPING_THREAD_H_
