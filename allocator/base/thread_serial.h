// Which thread is calling, by a number that no other thread of the process has or had; the ids of
// the standard library are given again when a thread has ended.
//
// Thread safety: any thread. Cost: a thread-local read.
#ifndef GPUPOOL_BASE_THREAD_SERIAL_H_
#define GPUPOOL_BASE_THREAD_SERIAL_H_

#include <atomic>
#include <cstdint>

namespace gpupool::internal {

inline std::uint64_t thread_serial() noexcept {
  static std::atomic<std::uint64_t> last{0};
  thread_local const std::uint64_t serial = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return serial;
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_THREAD_SERIAL_H_
