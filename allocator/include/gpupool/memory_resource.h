// A pool as a memory resource of CCCL (cuda::mr), for its containers and for RMM. Header only; the
// one header of this library that needs CUDA's, where it is included and nowhere else.
//
//   gpupool::MemoryResource resource(*pool);  // a handle: copies name the same pool
//   void* p = resource.allocate(stream, bytes, alignment);        // CCCL 3.1 and later
//   void* q = resource.allocate_async(bytes, alignment, stream);  // CCCL 3.0, as in CUDA 13.0
//
// It needs C++20, as all headers here do (nvcc -std=c++20). CUDA 13 has CCCL in a folder of its
// own, which nvcc knows; any other compiler is given it: -I$CUDA/include/cccl -I$CUDA/include.
//
// It has the names of both versions, so that one class satisfies
//   CCCL 3.0    cuda::mr::resource (allocate and deallocate without a stream), async_resource
//   CCCL 3.1+   cuda::mr::synchronous_resource (allocate_sync, deallocate_sync), resource
// with cuda::mr::device_accessible. CCCL 3.0 hides its concepts behind
// LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE: whoever includes <cuda/memory_resource> before
// this header defines that first.
//
// With a stream, memory is stream-ordered, as Pool says. Without one, what is allocated may be used
// on any stream at once, which waits for the device (Pool::allocate_for_any_stream); and what is
// given back must be in use by no stream any more, which is CCCL's contract for that form.
//
// Errors are exceptions, as CCCL expects of a resource: OutOfMemory, a std::bad_alloc, for whatever
// the pool cannot serve, and std::invalid_argument for an alignment it does not offer. Giving back
// never throws; misuse is counted and refused by the pool.
//
// Thread safety: as Pool. The pool outlives all handles.
#ifndef GPUPOOL_MEMORY_RESOURCE_H_
#define GPUPOOL_MEMORY_RESOURCE_H_

#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif

#include <cstddef>
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "gpupool/pool.h"

namespace gpupool {

/// A request that the pool could not serve, with the reason in words.
class OutOfMemory : public std::bad_alloc {
 public:
  OutOfMemory(Error error, std::string text) : error_(error), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  Error error() const noexcept { return error_; }

 private:
  Error error_;
  std::string text_;
};

class MemoryResource {
 public:
  explicit MemoryResource(Pool& pool) noexcept : pool_(&pool) {}

  Pool& pool() const noexcept { return *pool_; }

  // With a stream. CCCL 3.1 and later:
  void* allocate(cuda::stream_ref stream, std::size_t bytes,
                 std::size_t alignment = kDefaultAlignment) {
    return checked(pool_->allocate(request_of(bytes, alignment), RawStream{stream.get()}), bytes);
  }
  void deallocate(cuda::stream_ref stream, void* pointer, std::size_t bytes,
                  std::size_t = kDefaultAlignment) noexcept {
    // What is refused is counted and reported by the pool; there is nobody here to tell.
    static_cast<void>(pool_->deallocate(pointer, bytes, RawStream{stream.get()}));
  }
  // CCCL 3.0:
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
    return allocate(stream, bytes, alignment);
  }
  void* allocate_async(std::size_t bytes, cuda::stream_ref stream) {
    return allocate(stream, bytes);
  }
  void deallocate_async(void* pointer, std::size_t bytes, std::size_t alignment,
                        cuda::stream_ref stream) noexcept {
    deallocate(stream, pointer, bytes, alignment);
  }
  void deallocate_async(void* pointer, std::size_t bytes, cuda::stream_ref stream) noexcept {
    deallocate(stream, pointer, bytes);
  }

  // Without one. CCCL 3.1 and later:
  void* allocate_sync(std::size_t bytes, std::size_t alignment = kDefaultAlignment) {
    return checked(pool_->allocate_for_any_stream(request_of(bytes, alignment)), bytes);
  }
  void deallocate_sync(void* pointer, std::size_t bytes, std::size_t = kDefaultAlignment) noexcept {
    static_cast<void>(pool_->deallocate_unused(pointer, bytes));
  }
  // CCCL 3.0:
  void* allocate(std::size_t bytes, std::size_t alignment = kDefaultAlignment) {
    return allocate_sync(bytes, alignment);
  }
  void deallocate(void* pointer, std::size_t bytes,
                  std::size_t alignment = kDefaultAlignment) noexcept {
    deallocate_sync(pointer, bytes, alignment);
  }

  friend bool operator==(const MemoryResource& a, const MemoryResource& b) noexcept {
    return a.pool_ == b.pool_;
  }
  friend constexpr void get_property(const MemoryResource&, cuda::mr::device_accessible) noexcept {}

 private:
  static AllocationRequest request_of(std::size_t bytes, std::size_t alignment) {
    AllocationRequest request;
    request.bytes = bytes;
    request.alignment = alignment;
    return request;
  }
  void* checked(Result<void*> result, std::size_t bytes) const {
    if (result.ok()) return result.value();
    if (result.error() == Error::invalid_argument) {
      throw std::invalid_argument("gpupool: an alignment that is no power of two, or above 2MiB");
    }
    // Another thread may have failed since; then the numbers are those of its request.
    const FailureReport report = pool_->last_failure();
    throw OutOfMemory(result.error(), report.requested_bytes == bytes
                                          ? report.text()
                                          : "gpupool: " + std::to_string(bytes) +
                                                " bytes: " + to_string(result.error()));
  }

  Pool* pool_;
};

}  // namespace gpupool

#endif  // GPUPOOL_MEMORY_RESOURCE_H_
