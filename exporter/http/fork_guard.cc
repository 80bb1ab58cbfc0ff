#include "exporter/http/fork_guard.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>

#include "gpupool/process.h"

namespace gpupool::internal {
namespace {

constexpr std::size_t kMaxSockets = 64;  // beyond that a child keeps the socket: no harm to us
constexpr int kNoSocket = -1;

struct Slot {
  std::atomic<int> socket{kNoSocket};
};

std::array<Slot, kMaxSockets>& slots() {
  // Never destroyed: a fork may come while the program's static objects are.
  static auto* const table = new std::array<Slot, kMaxSockets>();
  return *table;
}

void close_in_child() {
  for (Slot& slot : slots()) {
    const int socket = slot.socket.exchange(kNoSocket, std::memory_order_relaxed);
    if (socket != kNoSocket) close(socket);
  }
}

void register_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    slots();
    // Where that fails, as where the table is full, a child keeps the sockets: no harm to us.
    static_cast<void>(run_in_forked_children(close_in_child));
  });
}

void replace_first(int from, int to) {
  for (Slot& slot : slots()) {
    int expected = from;
    if (slot.socket.compare_exchange_strong(expected, to, std::memory_order_relaxed)) return;
  }
}

}  // namespace

ForkGuard::ForkGuard(const std::vector<int>& sockets) : sockets_(sockets) {
  register_once();
  for (const int socket : sockets_) replace_first(kNoSocket, socket);
}

ForkGuard::~ForkGuard() {
  for (const int socket : sockets_) replace_first(socket, kNoSocket);
}

}  // namespace gpupool::internal
