#include "c_api/handle.h"

#include <array>
#include <utility>

namespace gpupool {
namespace internal {
namespace {

constexpr std::size_t kMaxErrorText = 1024;
// Of fixed length, so that a host without memory can still say so.
thread_local std::array<char, kMaxErrorText> error_text{};

}  // namespace

gpupool_status fail(gpupool_status status, std::string_view text) noexcept {
  const std::size_t length = text.copy(error_text.data(), error_text.size() - 1);
  error_text[length] = '\0';
  return status;
}

Result<StreamRef> adopt(gpupool_pool* pool, gpupool_raw_stream stream) {
  return pool->pool->adopt_stream(resolve_stream(pool, stream));
}

}  // namespace internal

gpupool_pool* make_c_handle(std::unique_ptr<Backend> backend, std::unique_ptr<Pool> pool,
                            DefaultStream default_stream) {
  auto handle = std::make_unique<gpupool_pool>();
  handle->simulated = dynamic_cast<SimulatedBackend*>(backend.get());
  handle->backend = std::move(backend);
  handle->pool = std::move(pool);
  handle->default_stream = default_stream;
  return handle.release();
}

void set_last_error(std::string_view text) noexcept { internal::fail(GPUPOOL_REFUSED, text); }

const char* to_string(DefaultStream value) noexcept {
  return value == DefaultStream::per_thread ? "per_thread" : "legacy";
}

Pool& pool_of(gpupool_pool* handle) noexcept { return *handle->pool; }
Backend& backend_of(gpupool_pool* handle) noexcept { return *handle->backend; }

RawStream resolve_stream(const gpupool_pool* handle, RawStream stream) noexcept {
  if (stream != nullptr || handle->default_stream == DefaultStream::legacy) {
    return one_handle(stream);
  }
  return per_thread_stream();
}

}  // namespace gpupool

const char* gpupool_last_error(void) { return gpupool::internal::error_text.data(); }
