#include "exporter/http/maintainer.h"

#include <pthread.h>

#include <utility>

#include "exporter/http/signal_shield.h"

namespace gpupool::internal {

Maintainer::Maintainer(std::chrono::milliseconds period, std::function<void()> step)
    : step_(std::move(step)) {
  const SignalShield shield;
  thread_ = std::jthread([this, period](const std::stop_token& stop) { run(stop, period); });
  pthread_setname_np(thread_.native_handle(), "gpupool-upkeep");
}

void Maintainer::run(const std::stop_token& stop, std::chrono::milliseconds period) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    lock.unlock();  // a step may call functions of the program
    step_();
    lock.lock();
    wake_.wait_for(lock, stop, period, [] { return false; });
  }
}

}  // namespace gpupool::internal
