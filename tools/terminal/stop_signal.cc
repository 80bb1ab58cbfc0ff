#include "tools/terminal/stop_signal.h"

#include <pthread.h>

#include <algorithm>

namespace gpupool::tools {

StopSignal::StopSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, &previous_);
}

StopSignal::~StopSignal() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

bool StopSignal::wait_until(std::chrono::steady_clock::time_point time) {
  // A signal that is blocked stays pending, so none is lost between two waits; another signal or
  // a stop of the process can end a wait early, hence the loop.
  while (!is_set_) {
    const auto now = std::chrono::steady_clock::now();
    const auto rest = std::max(std::chrono::nanoseconds(time - now), std::chrono::nanoseconds(0));
    timespec timeout{};
    timeout.tv_sec = static_cast<time_t>(rest.count() / 1'000'000'000);
    timeout.tv_nsec = static_cast<long>(rest.count() % 1'000'000'000);
    if (sigtimedwait(&signals_, nullptr, &timeout) > 0) is_set_ = true;
    if (rest.count() == 0) break;
  }
  return is_set_;
}

}  // namespace gpupool::tools
