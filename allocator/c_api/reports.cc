// gpupool.h: what a pool says of itself, upkeep, and recordings.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>

#include "c_api/handle.h"

namespace gpupool::internal {
namespace {

static_assert(GPUPOOL_BACKING_VMM == static_cast<int>(Backing::vmm));
static_assert(GPUPOOL_BACKING_CUDAMALLOC == static_cast<int>(Backing::cudamalloc));
static_assert(GPUPOOL_RECYCLING_OFF == static_cast<int>(Recycling::off));
static_assert(GPUPOOL_RECYCLING_PRESSURE == static_cast<int>(Recycling::pressure));
static_assert(GPUPOOL_RECYCLING_EAGER == static_cast<int>(Recycling::eager));
static_assert(GPUPOOL_POLICY_NEVER == static_cast<int>(CrossStreamPolicy::never));
static_assert(GPUPOOL_POLICY_WHEN_DONE == static_cast<int>(CrossStreamPolicy::when_done));
static_assert(GPUPOOL_POLICY_WAIT == static_cast<int>(CrossStreamPolicy::wait));
static_assert(GPUPOOL_ON_MISUSE_REPORT == static_cast<int>(OnMisuse::report));
static_assert(GPUPOOL_ON_MISUSE_ABORT == static_cast<int>(OnMisuse::abort));
static_assert(GPUPOOL_DEFAULT_STREAM_LEGACY == static_cast<int>(DefaultStream::legacy));
static_assert(GPUPOOL_DEFAULT_STREAM_PER_THREAD == static_cast<int>(DefaultStream::per_thread));
static_assert(GPUPOOL_MISUSE_DOUBLE_FREE == static_cast<int>(Misuse::double_free));
static_assert(GPUPOOL_MISUSE_FOREIGN_POINTER == static_cast<int>(Misuse::foreign_pointer));
static_assert(GPUPOOL_MISUSE_INTERIOR_POINTER == static_cast<int>(Misuse::interior_pointer));
static_assert(GPUPOOL_MISUSE_WRONG_DEVICE == static_cast<int>(Misuse::wrong_device));
static_assert(GPUPOOL_MISUSE_WRONG_SIZE == static_cast<int>(Misuse::wrong_size));
static_assert(GPUPOOL_MISUSE_UNKNOWN_STREAM == static_cast<int>(Misuse::unknown_stream));
static_assert(GPUPOOL_MISUSE_LEAK == static_cast<int>(Misuse::leak));
static_assert(GPUPOOL_MISUSE_CANARY == static_cast<int>(Misuse::canary));
static_assert(GPUPOOL_MISUSE_CANARY + 1 == kMisuseCount);
static_assert(GPUPOOL_MISS_SIZE == static_cast<int>(MissReason::size));
static_assert(GPUPOOL_MISS_BUDGET == static_cast<int>(MissReason::budget));
static_assert(GPUPOOL_MISS_PENDING == static_cast<int>(MissReason::pending));
static_assert(GPUPOOL_MISS_FRAGMENTED == static_cast<int>(MissReason::fragmented));
static_assert(GPUPOOL_MISS_COLD == static_cast<int>(MissReason::cold));
static_assert(GPUPOOL_MISS_INVALID == static_cast<int>(MissReason::invalid));
static_assert(GPUPOOL_MISS_DRIVER == static_cast<int>(MissReason::driver));
static_assert(GPUPOOL_MISS_DRIVER + 1 == kMissReasonCount);
static_assert(GPUPOOL_BLOCK_LIVE == static_cast<int>(BlockState::live));
static_assert(GPUPOOL_BLOCK_CACHED == static_cast<int>(BlockState::cached));
static_assert(GPUPOOL_BLOCK_PENDING == static_cast<int>(BlockState::pending));
static_assert(GPUPOOL_BLOCK_FREE == static_cast<int>(BlockState::free));
static_assert(GPUPOOL_RECORD_STOPPED == static_cast<int>(RecordEnd::stopped));
static_assert(GPUPOOL_RECORD_FILE_FULL == static_cast<int>(RecordEnd::file_full));
static_assert(GPUPOOL_RECORD_BUFFER_FULL == static_cast<int>(RecordEnd::buffer_full));

gpupool_stats stats_of(const StatsV1& from) {
  gpupool_stats to{};
  to.tag_count = static_cast<std::uint32_t>(from.tag_count);
  to.requests = from.requests;
  to.hits = from.hits;
  to.misses = from.misses;
  to.failures = from.failures;
  to.fallbacks = from.fallbacks;
  to.frees = from.frees;
  to.driver_calls = from.driver_calls;
  to.held_bytes = from.held_bytes;
  to.live_requested_bytes = from.live_requested_bytes;
  to.waste_bytes = from.waste_bytes;
  to.cached_bytes = from.cached_bytes;
  to.pending_bytes = from.pending_bytes;
  to.free_bytes = from.free_bytes;
  to.pinned_bytes = from.pinned_bytes;
  to.limit_bytes = from.limit_bytes;
  to.limit_in_force_bytes = from.limit_in_force_bytes;
  to.device_free_bytes = from.device_free_bytes;
  to.device_total_bytes = from.device_total_bytes;
  to.largest_free_block_bytes = from.largest_free_block_bytes;
  to.largest_satisfiable_bytes = from.largest_satisfiable_bytes;
  to.fragmentation_ratio = from.fragmentation_ratio;
  to.peak_requested_bytes = from.peak_requested_bytes;
  to.peak_held_bytes = from.peak_held_bytes;
  to.live_blocks = from.live_blocks;
  to.misuses = std::accumulate(from.misuses.begin(), from.misuses.end(), std::uint64_t{0});
  std::copy(from.tag_live_bytes.begin(), from.tag_live_bytes.end(), to.tag_live_bytes);
  return to;
}

gpupool_failure failure_of(const FailureReport& from) {
  gpupool_failure to{};
  to.happened = from.happened ? 1 : 0;
  to.error = from.happened ? static_cast<std::uint32_t>(from.error) : 0;
  to.reason = static_cast<std::uint32_t>(from.reason);
  to.time_ns = from.time_ns;
  to.requested_bytes = from.requested_bytes;
  to.limit_bytes = from.limit_bytes;
  to.held_bytes = from.held_bytes;
  to.live_requested_bytes = from.live_requested_bytes;
  to.waste_bytes = from.waste_bytes;
  to.cached_bytes = from.cached_bytes;
  to.pending_bytes = from.pending_bytes;
  to.free_bytes = from.free_bytes;
  to.largest_free_block_bytes = from.largest_free_block_bytes;
  to.largest_satisfiable_bytes = from.largest_satisfiable_bytes;
  to.device_free_bytes = from.device_free_bytes;
  to.device_total_bytes = from.device_total_bytes;
  return to;
}

gpupool_block block_of(const BlockInfo& from) {
  gpupool_block to{};
  to.size = sizeof to;
  to.state = static_cast<std::uint32_t>(from.state);
  to.address = from.address;
  to.bytes = from.bytes;
  to.requested_bytes = from.requested_bytes;
  to.stream_id = from.stream_id;
  to.tag = from.tag.index();
  to.is_fallback = from.is_fallback ? 1 : 0;
  to.stream_handle = from.stream_handle.value_or(0);
  to.has_stream_handle = from.stream_handle.has_value() ? 1 : 0;
  return to;
}

/// As snprintf does: what fits, ended by 0, and the length of all of it.
std::size_t copy_text(const std::string& from, char* text, std::size_t capacity) noexcept {
  if (text != nullptr && capacity > 0) text[from.copy(text, capacity - 1)] = '\0';
  return from.size();
}

/// The last failure as one of its texts.
std::size_t copy_failure(const gpupool_pool* pool, std::string (FailureReport::*as)() const,
                         char* text, std::size_t capacity) noexcept {
  std::size_t length = 0;
  if (pool == nullptr) return length;
  static_cast<void>(guarded([&] {
    length = copy_text((pool->pool->last_failure().*as)(), text, capacity);
    return GPUPOOL_OK;
  }));
  return length;
}

}  // namespace
}  // namespace gpupool::internal

using gpupool::internal::copy_out;
using gpupool::internal::fail;
using gpupool::internal::guarded;
using gpupool::internal::null_argument;

const char* gpupool_status_name(gpupool_status status) {
  switch (status) {
    case GPUPOOL_OK: return "ok";
    case GPUPOOL_REFUSED: return "refused";
    case GPUPOOL_HOST_FAILURE: return "host_failure";
    default: return gpupool::to_string(static_cast<gpupool::Error>(status));
  }
}

gpupool_status gpupool_get_stats(const gpupool_pool* pool, gpupool_stats* stats, size_t size) {
  if (pool == nullptr || stats == nullptr || size < sizeof stats->size) {
    return null_argument("pool or stats is NULL, or the size is none");
  }
  return guarded([&] {
    copy_out(gpupool::internal::stats_of(pool->pool->stats()), stats, size);
    return GPUPOOL_OK;
  });
}

gpupool_status gpupool_visit_blocks(const gpupool_pool* pool, gpupool_block_visitor visitor,
                                    void* context) {
  if (pool == nullptr || visitor == nullptr) return null_argument("pool or visitor is NULL");
  return guarded([&] {
    pool->pool->visit_blocks([&](const gpupool::BlockInfo& info) {
      const gpupool_block block = gpupool::internal::block_of(info);
      visitor(&block, context);
    });
    return GPUPOOL_OK;
  });
}

size_t gpupool_copy_blocks(const gpupool_pool* pool, void* blocks, size_t block_size,
                           size_t capacity) {
  size_t count = 0;
  if (pool == nullptr || block_size < sizeof(std::uint32_t)) return count;
  static_cast<void>(guarded([&] {
    pool->pool->visit_blocks([&](const gpupool::BlockInfo& info) {
      if (blocks != nullptr && count < capacity) {
        void* const target = static_cast<char*>(blocks) + count * block_size;
        copy_out(gpupool::internal::block_of(info), static_cast<gpupool_block*>(target),
                 block_size);
      }
      ++count;
    });
    return GPUPOOL_OK;
  }));
  return count;
}

gpupool_status gpupool_get_failure(const gpupool_pool* pool, gpupool_failure* failure,
                                   size_t size) {
  if (pool == nullptr || failure == nullptr || size < sizeof failure->size) {
    return null_argument("pool or failure is NULL, or the size is none");
  }
  return guarded([&] {
    copy_out(gpupool::internal::failure_of(pool->pool->last_failure()), failure, size);
    return GPUPOOL_OK;
  });
}

size_t gpupool_failure_text(const gpupool_pool* pool, char* text, size_t capacity) {
  return gpupool::internal::copy_failure(pool, &gpupool::FailureReport::text, text, capacity);
}

size_t gpupool_failure_json(const gpupool_pool* pool, char* text, size_t capacity) {
  return gpupool::internal::copy_failure(pool, &gpupool::FailureReport::json, text, capacity);
}

uint64_t gpupool_trim(gpupool_pool* pool, uint64_t target_held_bytes) {
  return pool == nullptr ? 0 : pool->pool->trim(target_held_bytes);
}

gpupool_status gpupool_set_capacity(gpupool_pool* pool, uint64_t capacity_bytes,
                                    double capacity_fraction) {
  if (pool == nullptr) return null_argument("pool is NULL");
  return guarded([&] {
    gpupool::CapacityLimit capacity = capacity_fraction;
    if (capacity_bytes > 0) capacity = capacity_bytes;
    const auto set = pool->pool->set_capacity(capacity);
    return set.ok() ? GPUPOOL_OK : fail(set.error());
  });
}

int gpupool_maintain(gpupool_pool* pool, uint64_t budget_ns) {
  if (pool == nullptr) return 0;
  constexpr auto kLongest = std::uint64_t{1} << 62;
  const auto budget =
      std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(budget_ns, kLongest)));
  return pool->pool->maintain(budget).more_to_do ? 1 : 0;
}

uint64_t gpupool_drain(gpupool_pool* pool) {
  return pool == nullptr ? 0 : pool->pool->drain_caches();
}

void gpupool_reset_peaks(gpupool_pool* pool) {
  if (pool != nullptr) pool->pool->reset_peaks();
}

gpupool_status gpupool_record(gpupool_pool* pool, const char* path) {
  if (pool == nullptr || path == nullptr) return null_argument("pool or path is NULL");
  return guarded([&] {
    const auto begun = pool->pool->record(path);
    return begun.ok() ? GPUPOOL_OK : fail(begun.error());
  });
}

gpupool_status gpupool_stop_recording(gpupool_pool* pool, gpupool_record_report* report,
                                      size_t size) {
  if (pool == nullptr) return null_argument("pool is NULL");
  return guarded([&] {
    const auto ended = pool->pool->stop_recording();
    if (!ended.ok()) return fail(ended.error());
    if (report == nullptr || size < sizeof report->size) return GPUPOOL_OK;
    const gpupool::RecordReport& from = ended.value();
    gpupool_record_report to{};
    to.end = static_cast<std::uint32_t>(from.end);
    to.allocations = from.allocations;
    to.frees = from.frees;
    to.live_at_start = from.live_at_start;
    to.failed_requests = from.failed_requests;
    to.left_out = from.left_out;
    to.file_bytes = from.file_bytes;
    to.duration_ns = from.duration_ns;
    copy_out(to, report, size);
    return GPUPOOL_OK;
  });
}
