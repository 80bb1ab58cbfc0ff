#include "integrations/torch/plugin/upkeep.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

namespace gpupool::torch {
namespace {

/// While it lives the calling thread takes no signal, nor does a thread that it makes.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t previous_;
};

}  // namespace

bool Upkeep::start(std::chrono::nanoseconds period, std::function<void()> step) {
  if (is_started_) return true;
  period_ = period;
  step_ = std::move(step);
  const SignalsBlocked shield;
  try {
    std::thread thread([this] { run(); });
    pthread_setname_np(thread.native_handle(), "gpupool-upkeep");
    thread.detach();
  } catch (const std::system_error&) {
    return false;
  }
  is_started_ = true;
  return true;
}

void Upkeep::run() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    is_in_step_ = true;
    lock.unlock();
    step_();
    lock.lock();
    is_in_step_ = false;
    changed_.notify_all();
    changed_.wait_for(lock, period_, [this] { return is_ending_; });
  }
}

void Upkeep::end(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  is_ending_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, patience, [this] { return !is_in_step_; });
}

}  // namespace gpupool::torch
