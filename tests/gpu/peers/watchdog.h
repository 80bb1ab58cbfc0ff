// Ends the program where a step does not: calls that wait for a device which waits for another
// one's work would hang for ever, and take the machine with them.
//
// Thread safety: one thread begins and ends steps. Cost: a thread that wakes up ten times a second.
#ifndef GPUPOOL_TESTS_GPU_PEERS_WATCHDOG_H_
#define GPUPOOL_TESTS_GPU_PEERS_WATCHDOG_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "tests/gpu/peers/report.h"

namespace gpupool::gpu_tests {

/// The exit status of a program that was ended so.
inline constexpr int kHung = 3;

class Watchdog {
 public:
  /// `path`: where the report is saved before the program ends.
  Watchdog(Report& report, std::string path);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// From now on `step` runs, and has that long.
  void begin(const std::string& step, std::chrono::seconds limit);
  void end();

 private:
  using Time = std::chrono::steady_clock::time_point;
  void watch();
  [[noreturn]] void give_up(const std::string& step);

  Report& report_;
  const std::string path_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string step_;  // under mutex_; empty: none
  Time deadline_;     // under mutex_
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_PEERS_WATCHDOG_H_
