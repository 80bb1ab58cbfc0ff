#include "base/thread_exits.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <utility>
#include <vector>

namespace gpupool::internal {

struct ThreadExits::Anchor {
  std::mutex mutex;
  std::function<void(std::uint64_t)> on_exit;  // empty once closed
};

namespace {

struct Watches {
  std::vector<std::pair<std::shared_ptr<ThreadExits::Anchor>, std::uint64_t>> entries;

  ~Watches() {
    if (::syscall(SYS_gettid) == ::getpid()) return;
    for (const auto& [anchor, key] : entries) {
      const std::lock_guard<std::mutex> lock(anchor->mutex);
      if (anchor->on_exit) anchor->on_exit(key);
    }
  }
};

thread_local Watches watches;

}  // namespace

ThreadExits::ThreadExits(std::function<void(std::uint64_t)> on_exit)
    : anchor_(std::make_shared<Anchor>()) {
  anchor_->on_exit = std::move(on_exit);
}

void ThreadExits::watch(std::uint64_t key) { watches.entries.emplace_back(anchor_, key); }

void ThreadExits::close() {
  const std::lock_guard<std::mutex> lock(anchor_->mutex);
  anchor_->on_exit = nullptr;
}

}  // namespace gpupool::internal
