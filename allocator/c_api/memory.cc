// gpupool.h: blocks and streams.
#include <cstddef>
#include <string>

#include "c_api/handle.h"
#include "gpupool/tag.h"

namespace gpupool::internal {
namespace {

static_assert(GPUPOOL_OUT_OF_MEMORY == static_cast<int>(Error::out_of_memory));
static_assert(GPUPOOL_LIMIT_EXCEEDED == static_cast<int>(Error::limit_exceeded));
static_assert(GPUPOOL_INVALID_ARGUMENT == static_cast<int>(Error::invalid_argument));
static_assert(GPUPOOL_BACKEND_FAILURE == static_cast<int>(Error::backend_failure));
static_assert(GPUPOOL_NOT_SUPPORTED == static_cast<int>(Error::not_supported));
static_assert(GPUPOOL_CLASS_NORMAL == static_cast<int>(AllocationClass::normal));
static_assert(GPUPOOL_CLASS_CONTIGUOUS == static_cast<int>(AllocationClass::contiguous));
static_assert(GPUPOOL_TAG_NONE == kUntagged.index());
static_assert(GPUPOOL_TAG_CURRENT == kCurrentTag.index());
static_assert(GPUPOOL_MAX_TAGS == kMaxTags);

/// Most failures are those of a device that is full: then the report is the text.
gpupool_status finish(gpupool_pool* pool, Result<void*> result, void** block) {
  *block = result.value();
  if (result.ok()) return GPUPOOL_OK;
  const FailureReport report = pool->pool->last_failure();
  return fail(static_cast<gpupool_status>(result.error()),
              report.happened ? report.text() : to_string(result.error()));
}

gpupool_status finish(bool is_done) {
  if (is_done) return GPUPOOL_OK;
  return fail(GPUPOOL_REFUSED, "refused as misuse, and counted; the misuse handler was told more");
}

}  // namespace
}  // namespace gpupool::internal

using gpupool::internal::fail;
using gpupool::internal::finish;
using gpupool::internal::guarded;
using gpupool::internal::null_argument;
using gpupool::internal::ref_of;

gpupool_status gpupool_adopt_stream(gpupool_pool* pool, gpupool_raw_stream stream,
                                    gpupool_stream** adopted) {
  if (pool == nullptr || adopted == nullptr) return null_argument("pool or adopted is NULL");
  *adopted = nullptr;
  return guarded([&] {
    const auto ref = gpupool::internal::adopt(pool, stream);
    if (!ref.ok()) return fail(ref.error());
    *adopted = reinterpret_cast<gpupool_stream*>(ref.value().state());
    return GPUPOOL_OK;
  });
}

gpupool_status gpupool_release_stream(gpupool_pool* pool, gpupool_stream* stream) {
  if (pool == nullptr) return null_argument("pool is NULL");
  return guarded([&] { return finish(pool->pool->release_stream(ref_of(stream))); });
}

gpupool_status gpupool_allocate(gpupool_pool* pool, size_t bytes, gpupool_raw_stream stream,
                                void** block) {
  if (block != nullptr) *block = nullptr;
  if (pool == nullptr || block == nullptr) return null_argument("pool or block is NULL");
  return guarded([&] {
    return finish(pool, pool->pool->allocate(bytes, gpupool::resolve_stream(pool, stream)), block);
  });
}

gpupool_status gpupool_allocate_adopted(gpupool_pool* pool, size_t bytes, gpupool_stream* stream,
                                        void** block) {
  if (block != nullptr) *block = nullptr;
  if (pool == nullptr || block == nullptr) return null_argument("pool or block is NULL");
  return guarded([&] { return finish(pool, pool->pool->allocate(bytes, ref_of(stream)), block); });
}

void gpupool_request_init(gpupool_request* request, size_t size) {
  if (request == nullptr || size < sizeof request->size) return;
  gpupool_request defaults{};
  defaults.tag = GPUPOOL_TAG_CURRENT;
  defaults.alignment = gpupool::kDefaultAlignment;
  gpupool::internal::copy_out(defaults, request, size);
}

gpupool_status gpupool_allocate_request(gpupool_pool* pool, const gpupool_request* request,
                                        gpupool_raw_stream stream, void** block) {
  if (block != nullptr) *block = nullptr;
  if (pool == nullptr || request == nullptr || block == nullptr) {
    return null_argument("pool, request or block is NULL");
  }
  return guarded([&] {
    gpupool_request given{};
    gpupool_request_init(&given, sizeof given);
    const auto least = offsetof(gpupool_request, alignment);
    if (const char* const problem = gpupool::internal::copy_in(request, least, given)) {
      return fail(GPUPOOL_INVALID_ARGUMENT, std::string("gpupool_request: ") + problem);
    }
    if (given.tag > GPUPOOL_TAG_NONE || given.allocation_class > GPUPOOL_CLASS_CONTIGUOUS) {
      return fail(GPUPOOL_INVALID_ARGUMENT,
                  "tag or allocation_class is none of the numbers in gpupool.h");
    }
    const gpupool::AllocationRequest wanted{
        .bytes = given.bytes,
        .alignment = given.alignment,
        .tag = gpupool::Tag(static_cast<std::uint8_t>(given.tag)),
        .allocation_class = static_cast<gpupool::AllocationClass>(given.allocation_class)};
    return finish(pool, pool->pool->allocate(wanted, gpupool::resolve_stream(pool, stream)), block);
  });
}

gpupool_status gpupool_deallocate(gpupool_pool* pool, void* block, gpupool_raw_stream stream) {
  if (pool == nullptr) return null_argument("pool is NULL");
  return guarded(
      [&] { return finish(pool->pool->deallocate(block, gpupool::resolve_stream(pool, stream))); });
}

gpupool_status gpupool_deallocate_sized(gpupool_pool* pool, void* block, size_t bytes,
                                        gpupool_raw_stream stream) {
  if (pool == nullptr) return null_argument("pool is NULL");
  return guarded([&] {
    return finish(pool->pool->deallocate(block, bytes, gpupool::resolve_stream(pool, stream)));
  });
}

gpupool_status gpupool_deallocate_adopted(gpupool_pool* pool, void* block, gpupool_stream* stream) {
  if (pool == nullptr) return null_argument("pool is NULL");
  return guarded([&] { return finish(pool->pool->deallocate(block, ref_of(stream))); });
}

gpupool_status gpupool_find_size(const gpupool_pool* pool, const void* block, size_t* bytes) {
  if (pool == nullptr || bytes == nullptr) return null_argument("pool or bytes is NULL");
  *bytes = 0;
  const auto size = pool->pool->find_size(block);
  if (!size.ok()) return fail(GPUPOOL_INVALID_ARGUMENT, "no live block of this pool starts there");
  *bytes = size.value();
  return GPUPOOL_OK;
}

gpupool_status gpupool_record_stream(gpupool_pool* pool, void* block, gpupool_raw_stream stream) {
  if (pool == nullptr) return null_argument("pool is NULL");
  return guarded([&] {
    return finish(pool->pool->record_stream(block, gpupool::resolve_stream(pool, stream)));
  });
}

gpupool_status gpupool_record_use(gpupool_pool* pool, void* block, gpupool_raw_stream stream) {
  if (pool == nullptr) return null_argument("pool is NULL");
  return guarded(
      [&] { return finish(pool->pool->record_use(block, gpupool::resolve_stream(pool, stream))); });
}

gpupool_status gpupool_note_dependency(gpupool_pool* pool, gpupool_raw_stream source,
                                       gpupool_raw_stream destination) {
  if (pool == nullptr) return null_argument("pool is NULL");
  return guarded([&] {
    const auto from = gpupool::internal::adopt(pool, source);
    if (!from.ok()) return fail(from.error());
    const auto to = gpupool::internal::adopt(pool, destination);
    if (!to.ok()) return fail(to.error());
    if (pool->pool->note_dependency(from.value(), to.value())) return GPUPOOL_OK;
    return fail(GPUPOOL_BACKEND_FAILURE, "no event could be recorded for the source");
  });
}

gpupool_status gpupool_find_tag(const gpupool_pool* pool, const char* name, uint32_t* tag) {
  if (pool == nullptr || name == nullptr || tag == nullptr) {
    return null_argument("pool, name or tag is NULL");
  }
  const auto found = pool->pool->find_tag(name);
  *tag = found.ok() ? found.value().index() : GPUPOOL_TAG_NONE;
  if (found.ok()) return GPUPOOL_OK;
  return fail(GPUPOOL_INVALID_ARGUMENT, "no tag of the pool has that name");
}

uint32_t gpupool_set_tag(uint32_t tag) {
  const bool is_index = tag < GPUPOOL_MAX_TAGS;
  return gpupool::exchange_current_tag(is_index ? gpupool::Tag(static_cast<std::uint8_t>(tag))
                                                : gpupool::kUntagged)
      .index();
}
