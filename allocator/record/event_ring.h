// What a pool was asked for, on its way from the pool's lock to the thread that writes it down: a
// ring of fixed size.
//
// Thread safety: push() by one thread at a time, pop() by one other. Cost: a few stores; the memory
// is reserved once and appears as it is touched.
#ifndef GPUPOOL_RECORD_EVENT_RING_H_
#define GPUPOOL_RECORD_EVENT_RING_H_

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/lazy_array.h"

namespace gpupool::internal {

enum class RecordEventKind : std::uint32_t { allocate, free, fail };

struct RecordEvent {
  std::uint64_t address = 0;  // of the block; none where a request failed
  std::uint64_t bytes = 0;    // as asked for; not of a free
  std::uint64_t time_ns = 0;
  std::uint32_t stream = 0;  // its number in the trace; not of a failed request
  RecordEventKind kind = RecordEventKind::allocate;
};
static_assert(sizeof(RecordEvent) == 32);

class EventRing {
 public:
  /// Room for as many events as fit in `bytes`, down to a power of two. False where the host has no
  /// such room. Call once. Requires: one event fits.
  bool reserve(std::uint64_t bytes) {
    const std::uint64_t count = std::bit_floor(bytes / sizeof(RecordEvent));
    mask_ = count - 1;
    return events_.reserve(count);
  }

  /// False: full.
  bool push(const RecordEvent& event) noexcept {
    const std::uint64_t end = end_.load(std::memory_order_relaxed);
    if (end - known_begin_ > mask_) {
      known_begin_ = begin_.load(std::memory_order_acquire);
      if (end - known_begin_ > mask_) return false;
    }
    events_[end & mask_] = event;
    end_.store(end + 1, std::memory_order_release);
    return true;
  }
  /// False: empty.
  bool pop(RecordEvent& event) noexcept {
    const std::uint64_t begin = begin_.load(std::memory_order_relaxed);
    if (begin == end_.load(std::memory_order_acquire)) return false;
    event = events_[begin & mask_];
    begin_.store(begin + 1, std::memory_order_release);
    return true;
  }

 private:
  LazyArray<RecordEvent> events_;
  std::uint64_t mask_ = 0;
  alignas(64) std::atomic<std::uint64_t> end_{0};
  std::uint64_t known_begin_ = 0;  // as push() last saw it: not newer than it is
  alignas(64) std::atomic<std::uint64_t> begin_{0};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_RECORD_EVENT_RING_H_
