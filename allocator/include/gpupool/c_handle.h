// Between the two interfaces: a pool that was made in C++ as a handle of gpupool.h, and back, for
// libraries whose users call C while they themselves are C++.
//
// Thread safety: plain functions. Cost: none to speak of.
#ifndef GPUPOOL_C_HANDLE_H_
#define GPUPOOL_C_HANDLE_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "gpupool/backend.h"
#include "gpupool/gpupool.h"
#include "gpupool/pool.h"

namespace gpupool {

/// What a C caller means by the stream handle 0.
enum class DefaultStream : std::uint8_t { legacy, per_thread };
const char* to_string(DefaultStream value) noexcept;

/// The handle owns both, and gpupool_destroy ends them: the pool first.
gpupool_pool* make_c_handle(std::unique_ptr<Backend> backend, std::unique_ptr<Pool> pool,
                            DefaultStream default_stream);
Pool& pool_of(gpupool_pool* handle) noexcept;
Backend& backend_of(gpupool_pool* handle) noexcept;
/// `stream`, with 0 as the handle's pool was told to understand it.
RawStream resolve_stream(const gpupool_pool* handle, RawStream stream) noexcept;
/// What gpupool_last_error() says on this thread from now on: for libraries that add functions.
void set_last_error(std::string_view text) noexcept;

}  // namespace gpupool

#endif  // GPUPOOL_C_HANDLE_H_
