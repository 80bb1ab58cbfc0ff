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
  /// The same before whatever is read next.
  T get_first() const noexcept { return value_.load(std::memory_order_acquire); }
  void set(T value) noexcept { value_.store(value, std::memory_order_relaxed); }
  /// What was written before is seen by whoever gets the value with get_first().
  void set_last(T value) noexcept { value_.store(value, std::memory_order_release); }
  void add(T delta) noexcept { set(static_cast<T>(get() + delta)); }
  /// Sets `to` where the value is `from`; for the rare writer that is not the owner.
  bool exchange_if(T from, T to) noexcept {
    return value_.compare_exchange_strong(from, to, std::memory_order_relaxed);
  }

 private:
  std::atomic<T> value_{};
};

/// The same that is written like a plain T, for fields of structures that are changed under a lock
/// and looked at by others without it.
template <class T>
class Racy {
 public:
  constexpr Racy() noexcept = default;
  constexpr Racy(T value) noexcept : value_(value) {}  // NOLINT: meant to be implicit
  Racy(const Racy& other) noexcept : value_(other.value_.get()) {}
  Racy& operator=(const Racy& other) noexcept { return *this = T{other}; }
  Racy& operator=(T value) noexcept {
    value_.set(value);
    return *this;
  }
  operator T() const noexcept { return value_.get(); }  // NOLINT: meant to be implicit
  Racy& operator+=(T delta) noexcept {
    value_.add(delta);
    return *this;
  }
  Racy& operator-=(T delta) noexcept {
    value_.add(static_cast<T>(0 - delta));
    return *this;
  }

 private:
  Relaxed<T> value_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_RELAXED_H_
