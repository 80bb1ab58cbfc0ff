#include "exporter/hang_up_signal.h"

#include <atomic>
#include <mutex>

namespace gpupool::internal {
namespace {

std::atomic<std::uint32_t> hang_ups{0};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "it is used by a signal handler");

std::mutex users_mutex;
int user_count = 0;          // under users_mutex
struct sigaction before {};  // under users_mutex: what was there before the first

void note(int) { hang_ups.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

HangUpSignal::HangUpSignal() : seen_(hang_ups.load(std::memory_order_relaxed)) {
  const std::lock_guard lock(users_mutex);
  if (user_count++ > 0) return;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;  // what the program waits for is not to be broken off
  sigemptyset(&action.sa_mask);
  sigaction(SIGHUP, &action, &before);
}

HangUpSignal::~HangUpSignal() {
  const std::lock_guard lock(users_mutex);
  if (--user_count > 0) return;
  struct sigaction now {};
  sigaction(SIGHUP, nullptr, &now);
  const bool is_ours = (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == note;
  if (is_ours) sigaction(SIGHUP, &before, nullptr);
}

bool HangUpSignal::take() noexcept {
  const std::uint32_t now = hang_ups.load(std::memory_order_relaxed);
  const bool has_come = now != seen_;
  seen_ = now;
  return has_come;
}

}  // namespace gpupool::internal
