// The thread that calls Pool::maintain for every pool of the plug-in.
//
// Never joined and never destroyed: the process ends without it. It takes no signal, and between
// two steps it touches neither pool nor driver. Thread safety: start() by whoever makes pools,
// under their lock; end() from any thread. Not in a forked child, which has no such thread. Cost:
// one thread, asleep but for its steps.
#ifndef GPUPOOL_INTEGRATIONS_TORCH_UPKEEP_H_
#define GPUPOOL_INTEGRATIONS_TORCH_UPKEEP_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace gpupool::torch {

class Upkeep {
 public:
  /// From now on `step` is called each `period`. False where the system has no thread to give.
  bool start(std::chrono::nanoseconds period, std::function<void()> step);
  /// No step begins any more; waits for one under way, up to `patience`, since a driver that hangs
  /// must not keep the process from ending.
  void end(std::chrono::milliseconds patience);

 private:
  void run();

  std::chrono::nanoseconds period_{0};
  std::function<void()> step_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_started_ = false;
  bool is_ending_ = false;
  bool is_in_step_ = false;
};

}  // namespace gpupool::torch

#endif  // GPUPOOL_INTEGRATIONS_TORCH_UPKEEP_H_
