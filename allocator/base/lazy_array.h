// A table of records whose addresses never change and whose memory appears as it is touched: the
// whole table is reserved once, straight from the kernel, so that freeing a block never takes
// memory from the host's heap.
//
// Records start as zero bytes; T must be valid so. Not thread-safe by itself. Cost: one mmap.
#ifndef GPUPOOL_BASE_LAZY_ARRAY_H_
#define GPUPOOL_BASE_LAZY_ARRAY_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
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
    // Tables of a few bytes for each unit are looked up all over the place: with small pages an
    // address translation would be missed for each, which costs more than the lookup, most of all
    // in a virtual machine. Refused advice does no harm.
    const std::size_t spare = count * sizeof(T) >= kHugePageBytes ? kHugePageBytes : 0;
    const std::size_t bytes = count * sizeof(T) + spare;
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    mapping_ = memory;
    mapping_bytes_ = bytes;
    if (spare != 0) {
      ::madvise(memory, bytes, MADV_HUGEPAGE);
      const auto address = reinterpret_cast<std::uintptr_t>(memory);
      memory = reinterpret_cast<void*>((address + spare - 1) & ~(spare - 1));
    }
    data_ = static_cast<T*>(memory);
    count_ = count;
    return true;
  }

  T& operator[](std::size_t index) noexcept { return data_[index]; }
  const T& operator[](std::size_t index) const noexcept { return data_[index]; }
  std::size_t size() const noexcept { return count_; }

 private:
  void unmap() {
    if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
  }

  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

  T* data_ = nullptr;
  std::size_t count_ = 0;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_LAZY_ARRAY_H_
