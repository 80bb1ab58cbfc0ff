// The seam through which the pool reads time, so that ages, window peaks and histories can run in
// virtual time: a replay of an hour takes seconds and gives the same output, bit for bit.
//
// Thread safety: all methods may be called from any thread. Cost: steady_clock() about 20 ns; no
// hit reads a clock but one in 1 024.
#ifndef GPUPOOL_CLOCK_H_
#define GPUPOOL_CLOCK_H_

#include <atomic>
#include <cstdint>

namespace gpupool {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds since an arbitrary start; never goes back.
  virtual std::uint64_t now_ns() const noexcept = 0;
};

/// The machine's monotonic clock. Lives for the whole program.
const Clock& steady_clock() noexcept;

/// A clock that moves only when told to.
class VirtualClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override { return now_ns_.load(std::memory_order_relaxed); }
  void advance_ns(std::uint64_t delta_ns) noexcept {
    now_ns_.fetch_add(delta_ns, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> now_ns_{0};
};

}  // namespace gpupool

#endif  // GPUPOOL_CLOCK_H_
