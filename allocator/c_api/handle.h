// What stands behind a gpupool_pool*, and how every function of gpupool.h ends: a status, with a
// text in the calling thread's gpupool_last_error() where it is not GPUPOOL_OK.
//
// Invariant: no exception leaves guarded(); what the host's heap or the system refuses is a status.
// Thread safety: the error text is per thread; a handle does not change while it lives. Cost: a
// try block, free where nothing throws.
#ifndef GPUPOOL_C_API_HANDLE_H_
#define GPUPOOL_C_API_HANDLE_H_

#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <string_view>

#include "gpupool/c_handle.h"
#include "gpupool/gpupool.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"

struct gpupool_pool {
  std::unique_ptr<gpupool::Backend> backend;
  std::unique_ptr<gpupool::Pool> pool;  // ends before the backend
  gpupool::SimulatedBackend* simulated = nullptr;
  gpupool::DefaultStream default_stream = gpupool::DefaultStream::legacy;
};

namespace gpupool::internal {

/// Keeps `text` for gpupool_last_error() and gives `status` back.
gpupool_status fail(gpupool_status status, std::string_view text) noexcept;
inline gpupool_status fail(const Status& status) noexcept {
  return fail(static_cast<gpupool_status>(status.code), status.message);
}
inline gpupool_status fail(Error error) noexcept {
  return fail(static_cast<gpupool_status>(error), to_string(error));
}
inline gpupool_status null_argument(const char* name) noexcept {
  return fail(GPUPOOL_INVALID_ARGUMENT, name);
}

template <class Body>
gpupool_status guarded(const Body& body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    return fail(GPUPOOL_HOST_FAILURE, error.what());
  } catch (...) {
    return fail(GPUPOOL_HOST_FAILURE, "an exception of unknown type");
  }
}

/// Copies the first `size` bytes of `value`, whose first field is told how many those are; the rest
/// of a longer struct of a later version becomes 0.
template <class T>
void copy_out(T value, T* target, std::size_t size) noexcept {
  const std::size_t known = size < sizeof(T) ? size : sizeof(T);
  value.size = static_cast<std::uint32_t>(known);
  std::memset(static_cast<void*>(target), 0, size);
  std::memcpy(static_cast<void*>(target), &value, known);
}

/// Reads a struct of the caller's, which may be of another version, over the defaults in `value`:
/// what it lacks stays as it is there. Why it is none: a size that no version has, the first of
/// which had `least` bytes, or what a later version added and is set; nullptr if nothing.
template <class T>
const char* copy_in(const T* given, std::size_t least, T& value) noexcept {
  constexpr std::size_t kMost = 4096;  // what is read of memory that may be anything
  const std::size_t size = given->size;
  if (size < least || size % alignof(T) != 0 || size > kMost) {
    return "size is none that the struct has in any version: its init function sets it";
  }
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) return "a field is set that a later version added, which this one lacks";
  }
  std::memcpy(static_cast<void*>(&value), given, size < sizeof(T) ? size : sizeof(T));
  return nullptr;
}

inline StreamRef ref_of(gpupool_stream* stream) noexcept {
  return StreamRef(reinterpret_cast<StreamState*>(stream));
}
/// The stream's reference, for what the pool offers with a reference alone.
Result<StreamRef> adopt(gpupool_pool* pool, gpupool_raw_stream stream);

}  // namespace gpupool::internal

#endif  // GPUPOOL_C_API_HANDLE_H_
