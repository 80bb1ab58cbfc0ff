// A field that one thread at a time writes and others may read meanwhile: each access is whole, and
// orders nothing else.
//
// add() is a load and a store, not one locked step: for fields with a single writer.
// Thread safety: as said. Cost: that of a plain access.
#ifndef GPUPOOL_BASE_RELAXED_H_
#define GPUPOOL_BASE_RELAXED_H_

#include <atomic>

namespace gpupool::internal {

template <class T>
class Relaxed {
 public:
  constexpr Relaxed() noexcept = default;
  constexpr explicit Relaxed(T value) noexcept : value_(value) {}

  T get() const noexcept { return value_.load(std::memory_order_relaxed); }
  void set(T value) noexcept { value_.store(value, std::memory_order_relaxed); }
  void add(T delta) noexcept { set(static_cast<T>(get() + delta)); }
  /// Sets `to` where the value is `from`; for the rare writer that is not the owner.
  bool exchange_if(T from, T to) noexcept {
    return value_.compare_exchange_strong(from, to, std::memory_order_relaxed);
  }

 private:
  std::atomic<T> value_{};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_RELAXED_H_
