#include "tests/gpu/peers/watchdog.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace gpupool::gpu_tests {

Watchdog::Watchdog(Report& report, std::string path)
    : report_(report), path_(std::move(path)), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::begin(const std::string& step, std::chrono::seconds limit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  report_.progress = 0;
  step_ = step;
  deadline_ = std::chrono::steady_clock::now() + limit;
}

void Watchdog::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  step_.clear();
}

void Watchdog::watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!is_ending_) {
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    if (!step_.empty() && std::chrono::steady_clock::now() > deadline_) give_up(step_);
  }
}

void Watchdog::give_up(const std::string& step) {
  report_.fault(step, "hangs: its time is long over, after " +
                          std::to_string(report_.progress.load()) + " rounds");
  static_cast<void>(report_.save(path_));
  report_.print();
  std::fflush(stdout);
  // Without destructors and handlers: those wait for the device.
  std::_Exit(kHung);
}

}  // namespace gpupool::gpu_tests
