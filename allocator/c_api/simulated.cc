// gpupool.h: the other side of a simulated device.
#include "c_api/handle.h"

namespace gpupool::internal {
namespace {

gpupool_status no_card() {
  return fail(GPUPOOL_NOT_SUPPORTED, "only for pools on a simulated device");
}

}  // namespace
}  // namespace gpupool::internal

using gpupool::internal::fail;
using gpupool::internal::guarded;
using gpupool::internal::no_card;

gpupool_status gpupool_simulated_create_stream(gpupool_pool* pool, gpupool_raw_stream* stream) {
  if (pool == nullptr || stream == nullptr || pool->simulated == nullptr) return no_card();
  return guarded([&] {
    *stream = pool->simulated->create_stream();
    return GPUPOOL_OK;
  });
}

gpupool_status gpupool_simulated_destroy_stream(gpupool_pool* pool, gpupool_raw_stream stream) {
  if (pool == nullptr || pool->simulated == nullptr) return no_card();
  return guarded([&] {
    pool->simulated->destroy_stream(stream);
    return GPUPOOL_OK;
  });
}

gpupool_status gpupool_simulated_launch(gpupool_pool* pool, gpupool_raw_stream stream,
                                        const void* block, size_t bytes) {
  if (pool == nullptr || pool->simulated == nullptr) return no_card();
  return guarded([&] {
    gpupool::SimulatedWork work;
    work.address = reinterpret_cast<gpupool::DeviceAddress>(block);
    work.bytes = bytes;
    work.until_completed = true;
    if (pool->simulated->launch(stream, work).ok()) return GPUPOOL_OK;
    return fail(GPUPOOL_BACKEND_FAILURE, pool->simulated->last_violation());
  });
}

gpupool_status gpupool_simulated_complete(gpupool_pool* pool, gpupool_raw_stream stream) {
  if (pool == nullptr || pool->simulated == nullptr) return no_card();
  return guarded([&] {
    pool->simulated->complete(stream);
    return GPUPOOL_OK;
  });
}

gpupool_status gpupool_simulated_begin_capture(gpupool_pool* pool, gpupool_raw_stream stream) {
  if (pool == nullptr || pool->simulated == nullptr) return no_card();
  return guarded([&] {
    pool->simulated->begin_capture(stream);
    return GPUPOOL_OK;
  });
}

gpupool_status gpupool_simulated_end_capture(gpupool_pool* pool, gpupool_raw_stream stream) {
  if (pool == nullptr || pool->simulated == nullptr) return no_card();
  return guarded([&] {
    pool->simulated->end_capture(stream);
    return GPUPOOL_OK;
  });
}
