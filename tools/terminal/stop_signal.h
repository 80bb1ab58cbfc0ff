// SIGINT and SIGTERM as something that can be waited for, without a handler: both are blocked in
// this thread and in every thread that it starts afterwards, and taken by wait_until.
//
// Thread safety: make and use it on one thread, before any other thread is started.
// Cost: a system call a wait.
#ifndef GPUPOOL_TOOLS_TERMINAL_STOP_SIGNAL_H_
#define GPUPOOL_TOOLS_TERMINAL_STOP_SIGNAL_H_

#include <chrono>
#include <csignal>

namespace gpupool::tools {

class StopSignal {
 public:
  StopSignal();
  /// Lets the signals through again, so that a second one ends a slow shutdown.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// Sleeps until `time`, or until the program is told to stop: true then, from then on.
  bool wait_until(std::chrono::steady_clock::time_point time);
  bool is_set() const { return is_set_; }

 private:
  sigset_t signals_;
  sigset_t previous_;
  bool is_set_ = false;
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TERMINAL_STOP_SIGNAL_H_
