// A queue of at most kCapacity values that lives where it is a member: nothing is taken from the
// heap, whatever is put in.
//
// Thread safety: none. Cost: O(1).
#ifndef GPUPOOL_BASE_FIXED_RING_H_
#define GPUPOOL_BASE_FIXED_RING_H_

#include <array>
#include <cstddef>

namespace gpupool::internal {

template <class T, std::size_t kCapacity>
class FixedRing {
 public:
  bool empty() const noexcept { return size_ == 0; }
  bool is_full() const noexcept { return size_ == kCapacity; }
  std::size_t size() const noexcept { return size_; }

  /// The i-th oldest. Requires: i < size().
  T& operator[](std::size_t i) noexcept { return values_[(head_ + i) % kCapacity]; }
  const T& operator[](std::size_t i) const noexcept { return values_[(head_ + i) % kCapacity]; }
  // Requires: !empty().
  const T& front() const noexcept { return (*this)[0]; }
  T& back() noexcept { return (*this)[size_ - 1]; }
  const T& back() const noexcept { return (*this)[size_ - 1]; }

  /// Requires: !is_full().
  void push_back(const T& value) noexcept { values_[(head_ + size_++) % kCapacity] = value; }
  /// Requires: !empty().
  void pop_front() noexcept {
    head_ = (head_ + 1) % kCapacity;
    --size_;
  }

 private:
  std::array<T, kCapacity> values_{};
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_FIXED_RING_H_
