// gpupool.h: private pools and graph captures.
#include "c_api/handle.h"

namespace gpupool::internal {
namespace {

CapturePoolId id_of(gpupool_private_pool id) noexcept { return {id.first, id.second}; }

gpupool_status finish(const Result<void, Status>& result) {
  return result.ok() ? GPUPOOL_OK : fail(result.error());
}

}  // namespace
}  // namespace gpupool::internal

using gpupool::internal::finish;
using gpupool::internal::guarded;
using gpupool::internal::id_of;
using gpupool::internal::null_argument;
using gpupool::internal::ref_of;

gpupool_status gpupool_begin_private(gpupool_pool* pool, gpupool_private_pool id,
                                     gpupool_stream_filter takes, void* context) {
  if (pool == nullptr || takes == nullptr) return null_argument("pool or takes is NULL");
  return guarded([&] {
    const auto filter = [takes, context](gpupool::RawStream stream) {
      return takes(stream, context) != 0;
    };
    return finish(pool->pool->begin_allocate_to_pool(id_of(id), filter));
  });
}

gpupool_status gpupool_end_private(gpupool_pool* pool, gpupool_private_pool id) {
  if (pool == nullptr) return null_argument("pool is NULL");
  return guarded([&] { return finish(pool->pool->end_allocate_to_pool(id_of(id))); });
}

gpupool_status gpupool_release_private(gpupool_pool* pool, gpupool_private_pool id) {
  if (pool == nullptr) return null_argument("pool is NULL");
  return guarded([&] { return finish(pool->pool->release_pool(id_of(id))); });
}

gpupool_status gpupool_begin_capture(gpupool_pool* pool, gpupool_stream* stream,
                                     gpupool_private_pool id) {
  if (pool == nullptr) return null_argument("pool is NULL");
  return guarded([&] { return finish(pool->pool->begin_capture(ref_of(stream), id_of(id))); });
}

gpupool_status gpupool_end_capture(gpupool_pool* pool, gpupool_stream* stream) {
  if (pool == nullptr) return null_argument("pool is NULL");
  return guarded([&] { return finish(pool->pool->end_capture(ref_of(stream))); });
}
