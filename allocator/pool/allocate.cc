// Serving a request without the driver: check, route, cache, shared tiers, and what can be had by
// giving caches back and looking for completed work.
#include "base/duration_bucket.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::MutexLock;
using internal::MutexUnlock;
using internal::SmallCache;

namespace {

/// One hit in so many is timed.
constexpr std::uint64_t kSampleEvery = 1024;
/// Beyond any device, and safe to round and to count in units of 4 KiB.
constexpr std::uint64_t kMaxRequestBytes = std::uint64_t{1} << 43;

void count_duration(DurationHistogram& histogram, std::uint64_t ns) {
  ++histogram.count[internal::duration_bucket(ns)];
  histogram.sum_ns += ns;
}

}  // namespace

Result<void*> Pool::Impl::allocate(const AllocationRequest& request,
                                   internal::StreamState* stream) {
  if (request.bytes == 0) return nullptr;
  const bool is_itself = is_still_itself(stream);
  Shape shape;
  {
    MutexLock lock(mu_);
    count_request(request.bytes);
    const bool is_sampled = counted_.requests % kSampleEvery == 0;
    const std::uint64_t start = is_sampled ? steady_clock().now_ns() : 0;
    if (!is_itself || !streams_.is_known(stream)) {
      const MisuseReport misuse = count_misuse({.kind = Misuse::unknown_stream, .pointer = stream});
      const Error error = fail(request, MissReason::size, Error::invalid_argument);
      MutexUnlock unlock(mu_);
      report_misuse(misuse);
      return error;
    }
    if (const auto fault = find_fault(request)) return fail(request, MissReason::size, *fault);

    shape = internal::shape_of(request.bytes, request.alignment);
    if (request.allocation_class == AllocationClass::normal) {
      Tier tier = Tier::cache;
      BlockRef block = take_cached(shape, stream->index());
      if (!block.exists()) {
        tier = shape.tier;
        block = take_shared(shape, stream->index(), internal::Reach::before_end);
      }
      if (!block.exists()) {
        block = take_after_reclaim(request, shape, stream->index());
        if (block.is_run()) tier = Tier::run;
      }
      if (block.exists()) {
        count_hit(tier);
        if (is_sampled) {
          count_duration(counted_.allocation_duration[static_cast<std::size_t>(tier)],
                         steady_clock().now_ns() - start);
        }
        return hand_out(block, request, stream->index());
      }
    }
  }
  const std::uint64_t start = steady_clock().now_ns();
  auto result = allocate_slowly(request, shape, stream);
  MutexLock lock(mu_);
  count_duration(counted_.allocation_duration[kTierCount], steady_clock().now_ns() - start);
  return result;
}

Result<void*> Pool::Impl::allocate_raw(const AllocationRequest& request, RawStream raw) {
  if (request.bytes == 0) return nullptr;
  CaptureState capture = CaptureState::none;
  internal::StreamState* stream = find_or_adopt(raw, &capture);
  if (stream == nullptr || capture == CaptureState::active) {
    // A graph replays what it captured: memory that others may get in between would be shared.
    MutexLock lock(mu_);
    count_request(request.bytes);
    return fail(request, MissReason::size,
                stream == nullptr ? Error::backend_failure : Error::not_supported);
  }
  return allocate(request, stream);
}

std::optional<Error> Pool::Impl::find_fault(const AllocationRequest& request) const {
  if (!internal::is_power_of_two(request.alignment) || request.alignment > kMaxAlignment) {
    return Error::invalid_argument;
  }
  if (!(request.capture_pool == CapturePoolId{})) return Error::not_supported;
  if (request.bytes > kMaxRequestBytes || request.bytes > limit_bytes_) {
    return Error::limit_exceeded;
  }
  return std::nullopt;
}

Pool::Impl::BlockRef Pool::Impl::take_cached(const Shape& shape, StreamIndex stream) {
  // Blocks in the cache have whatever alignment their tier gives; more is never looked for there.
  if (shape.align_units > 1) return {};
  BlockRef block;
  if (shape.tier == Tier::run) {
    block.run = large_cache_.take(stream, shape.units);
  } else {
    const std::size_t bin = shape.tier == Tier::size_class ? SmallCache::slot_bin(shape.size_class)
                                                           : SmallCache::buddy_bin(shape.units);
    const std::uint32_t code = small_caches_[stream]->take(bin, shape.block_bytes);
    if (code != 0) block = BlockRef::from_code(code);
  }
  if (block.exists()) cached_bytes_ -= shape.block_bytes;
  return block;
}

Pool::Impl::BlockRef Pool::Impl::take_shared(const Shape& shape, StreamIndex stream,
                                             internal::Reach reach) {
  switch (shape.tier) {
    case Tier::size_class: return tiers_.take_slot(shape.size_class, stream, reach);
    case Tier::buddy: return tiers_.take_buddy(shape.units, stream, reach);
    case Tier::run: return tiers_.take_run(shape.units, shape.align_units, stream, reach);
    case Tier::cache: break;
  }
  return {};
}

Pool::Impl::BlockRef Pool::Impl::take_after_reclaim(const AllocationRequest& request,
                                                    const Shape& shape, StreamIndex stream) {
  // Before more of the arena's end is taken, whether it is backed already or not: so a second
  // pass over the same requests places them as the first did, and needs no more than that held.
  // Cheapest first: the asking stream's own cache needs no completion to be known.
  if (drain_stream(stream) > 0) {
    ++counted_.retries;
    const BlockRef block = take_shared(shape, stream, internal::Reach::before_end);
    if (block.exists()) return block;
  }
  const std::uint64_t moved = drain_all();
  // Where another thread is at it, and may be stuck in the driver, this one goes on without.
  const std::optional<std::uint64_t> completed = pause_to_complete_work(Patience::none);
  if (completed.value_or(0) > 0 || moved > 0) {
    ++counted_.retries;
    const BlockRef block = take_shared(shape, stream, internal::Reach::before_end);
    if (block.exists()) return block;
  }
  BlockRef block = take_shared(shape, stream, internal::Reach::everywhere);
  if (!block.exists() && !completed.has_value()) {
    // All that is left is growing, which takes longer than the other's look mostly does.
    pause_to_complete_work(Patience::brief);
    block = take_shared(shape, stream, internal::Reach::everywhere);
  }
  if (block.exists() || shape.tier == Tier::run) return block;
  // A piece that is too short for a chunk serves a block that fills it, sooner than the driver;
  // where the pool cannot grow, any block.
  if (!internal::fills_units(shape, request.bytes) && can_grow(shape, stream)) return block;
  return take_as_run(shape, stream);
}

Pool::Impl::BlockRef Pool::Impl::take_as_run(const Shape& shape, StreamIndex stream) {
  return tiers_.take_run(shape.units_alone(), 1, stream, internal::Reach::everywhere);
}

void* Pool::Impl::hand_out(BlockRef block, const AllocationRequest& request, StreamIndex stream) {
  count_live(tiers_.record(block), request, stream, tiers_.bytes_of(block));
  return reinterpret_cast<void*>(arena_->address_of(tiers_.unit_of(block)) +
                                 tiers_.byte_in_unit(block));
}

void Pool::Impl::count_live(internal::BlockRecord& record, const AllocationRequest& request,
                            StreamIndex stream, std::uint64_t block_bytes) {
  const Tag tag = request.tag == kCurrentTag ? current_tag() : request.tag;
  record.tag = tag.index() < options_.tags.size() ? tag.index() : kUntagged.index();
  record.stream = stream;
  record.requested = request.bytes;
  record.has_extra_uses = false;
  record.tick = tick_;
  if (record.tag != kUntagged.index()) counted_.tag_live_bytes[record.tag] += request.bytes;
  waste_bytes_ += block_bytes - request.bytes;
  counted_.live_requested_bytes += request.bytes;
  counted_.requested_bytes_total += request.bytes;
  ++counted_.live_blocks;
  if (counted_.live_requested_bytes > counted_.peak_requested_bytes) {
    counted_.peak_requested_bytes = counted_.live_requested_bytes;
  }
  peak_window_.note_requested(counted_.live_requested_bytes);
  // Last, so that a block is live only once its record is whole.
  record.use.store(internal::BlockUse::live, std::memory_order_release);
}

void Pool::Impl::count_request(std::size_t bytes) {
  ++counted_.requests;
  ++counted_.requests_by_size[internal::size_bucket(bytes)];
}

void Pool::Impl::count_hit(Tier tier) {
  ++counted_.hits;
  ++counted_.hits_by_tier[static_cast<std::size_t>(tier)];
}

Error Pool::Impl::fail(const AllocationRequest& request, MissReason reason, Error error) {
  ++counted_.misses;
  ++counted_.failures;
  ++counted_.misses_by_reason[static_cast<std::size_t>(reason)];
  ++counted_.failures_by_reason[static_cast<std::size_t>(reason)];

  FailureReport& report = last_failure_;
  report.happened = true;
  report.error = error;
  report.reason = reason;
  report.time_ns = clock_.now_ns();
  report.requested_bytes = request.bytes;
  report.limit_bytes = limit_bytes_;
  report.held_bytes = held_bytes();
  report.live_requested_bytes = counted_.live_requested_bytes;
  report.waste_bytes = waste_bytes_ + tiers_.slab_tail_bytes() + arena_->overhead_bytes();
  report.cached_bytes = cached_bytes_;
  report.pending_bytes = pending_bytes();
  report.free_bytes = free_bytes();
  report.largest_free_block_bytes = tiers_.runs().largest_ready_units() * internal::kUnitBytes;
  report.largest_satisfiable_bytes = largest_satisfiable();
  report.device_free_bytes = counted_.device_free_bytes;
  report.device_total_bytes = counted_.device_total_bytes;
  emit({.kind = SlowPathEventKind::failure,
        .bytes = request.bytes,
        .failed = true,
        .error = error,
        .miss_reason = reason});
  return error;
}

}  // namespace gpupool
