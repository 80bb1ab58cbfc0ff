#include "gpupool/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "base/thread_exits.h"

namespace gpupool {
namespace {

constexpr std::uint32_t kExiting = 1;       // handlers of atexit() run
constexpr std::uint32_t kMainHasEnded = 2;  // by exit(), or by pthread_exit()
constexpr std::uint32_t kFork = 4;          // and all above: the number of forks

constinit std::atomic<std::uint32_t> current_epoch{0};

void note_fork() {
  // Its own exit is another one.
  const std::uint32_t forks = current_epoch.load(std::memory_order_relaxed) / kFork;
  current_epoch.store((forks + 1) * kFork, std::memory_order_relaxed);
  internal::forget_all_threads();
}

void note_exit() { current_epoch.fetch_or(kExiting, std::memory_order_relaxed); }

/// The main thread's own objects go before all that is static, so that this is noticed also by what
/// was made static after atexit() was last called.
struct MainThreadEnd {
  ~MainThreadEnd() {
    if (gettid() == getpid()) current_epoch.fetch_or(kMainHasEnded, std::memory_order_relaxed);
  }
  void touch() noexcept {}
};
thread_local MainThreadEnd main_thread_end;

}  // namespace

std::uint32_t process_epoch() noexcept { return current_epoch.load(std::memory_order_relaxed); }

ProcessState process_state_since(std::uint32_t epoch) noexcept {
  const std::uint32_t now = process_epoch();
  if (now / kFork != epoch / kFork) return ProcessState::forked;
  if ((now & kExiting) != 0) return ProcessState::exiting;
  // After pthread_exit() of the main thread the others go on.
  const bool is_main_exiting = (now & kMainHasEnded) != 0 && gettid() == getpid();
  return is_main_exiting ? ProcessState::exiting : ProcessState::same;
}

void watch_process() noexcept {
  static std::once_flag once;
  std::call_once(once, [] { static_cast<void>(run_in_forked_children(note_fork)); });
  // Again each time: the handlers run in the reverse order. Where the host has no memory for one,
  // the main thread's end tells.
  static_cast<void>(std::atexit(note_exit));
  if (gettid() == getpid()) main_thread_end.touch();
}

bool run_in_forked_children(void (*handler)()) noexcept {
  return pthread_atfork(nullptr, nullptr, handler) == 0;
}

}  // namespace gpupool
