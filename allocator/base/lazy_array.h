// A table of records whose addresses never change and whose memory appears as it is touched: the
// whole table is reserved once, straight from the kernel, so that freeing a block never takes
// memory from the host's heap.
//
// Records start as zero bytes; T must be valid so. Not thread-safe by itself. Cost: one mmap.
#ifndef GPUPOOL_BASE_LAZY_ARRAY_H_
#define GPUPOOL_BASE_LAZY_ARRAY_H_

#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "base/check.h"

namespace gpupool::internal {

template <class T>
class LazyArray {
 public:
  LazyArray() noexcept = default;
  ~LazyArray() { unmap(); }
  LazyArray(const LazyArray&) = delete;
  LazyArray& operator=(const LazyArray&) = delete;

  /// False where the kernel refuses to reserve `count` records. Call once.
  bool reserve(std::size_t count) {
    GPUPOOL_CHECK(data_ == nullptr);
    void* memory = ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    data_ = static_cast<T*>(memory);
    count_ = count;
    return true;
  }

  T& operator[](std::size_t index) noexcept { return data_[index]; }
  const T& operator[](std::size_t index) const noexcept { return data_[index]; }
  std::size_t size() const noexcept { return count_; }

 private:
  void unmap() {
    if (data_ != nullptr) ::munmap(data_, count_ * sizeof(T));
  }

  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_LAZY_ARRAY_H_
