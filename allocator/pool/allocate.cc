// Serving a request without the driver: check, route, cache, shared tiers, and what can be had by
// giving caches back and looking for completed work.
#include <utility>

#include "base/duration_bucket.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::MutexLock;
using internal::MutexUnlock;

namespace {

/// One that caches serve: their blocks have the alignment of their tier, and nothing special.
bool is_plain(const AllocationRequest& request) {
  return request.alignment <= internal::kGranuleBytes &&
         internal::is_power_of_two(request.alignment) &&
         request.allocation_class == AllocationClass::normal &&
         request.capture_pool == CapturePoolId{};
}

/// The driver does not know the stream, or there is no place for it.
constexpr internal::Fault kNoStream{FailureCause::handle, Error::backend_failure};

void count_duration(DurationHistogram& histogram, std::uint64_t ns) {
  ++histogram.count[internal::duration_bucket(ns)];
  histogram.sum_ns += ns;
}

}  // namespace

Result<void*> Pool::Impl::allocate_cold(const AllocationRequest& request,
                                        internal::StreamState* stream, bool was_asked,
                                        std::optional<CaptureState> capture) {
  if (request.bytes == 0) return nullptr;
  if (is_closed()) [[unlikely]]
    return Error::not_supported;
  internal::ThreadRecord* const record = own_record();
  internal::HotSlot& hot = internal::hot_slot;
  // Set aside by a hit that asked for the next one to be timed.
  const bool is_timed = std::exchange(hot.is_timing_due, false);
  if (!was_asked && record != nullptr && is_plain(request) && has_at_hand(*record, stream)) {
    const Tag tag = request.tag == kCurrentTag ? hot.tag : request.tag;
    if (void* const block = take_thoroughly(request.bytes, tag, is_timed)) return block;
    // One that is to be timed goes the way where a clock is at hand.
    if (tag == hot.tag && !is_timed) {
      return request.bytes > internal::kChunkBytes ? miss_run(request.bytes, stream)
                                                   : miss_small(request.bytes, stream);
    }
  }
  return allocate_shared(request, stream, record, is_timed, capture);
}

Result<void*> Pool::Impl::allocate_shared(const AllocationRequest& request,
                                          internal::StreamState* stream,
                                          internal::ThreadRecord* record, bool is_timed,
                                          std::optional<CaptureState> capture, bool waits) {
  const internal::StreamState* const asking = stream;
  const internal::Placement placement = place(stream, capture, request.capture_pool);
  Shape shape;
  LadderLog log;
  {
    MutexLock lock(mu_);
    ++shared_requests_;
    is_timed = is_timed || shared_requests_ % internal::ThreadCounters::kSampleEvery == 0;
    const std::uint64_t start = is_timed ? steady_clock().now_ns() : 0;
    if (!placement.is_same_stream || !streams_.is_known(stream)) {
      return refuse_stream(request, stream);
    }
    if (const auto fault = find_fault(request)) return fail(request, *fault, stream);
    stream = serving_stream(placement, stream);
    if (stream == nullptr) return fail(request, kNoStream, nullptr);

    shape = internal::shape_of(request.bytes + guards_.canary_bytes(), request.alignment);
    if (request.allocation_class == AllocationClass::normal) {
      internal::ThreadCache* const cache = open_cache(record, stream);
      Tier tier = Tier::cache;
      BlockRef block = cache != nullptr ? take_cached(*cache, shape) : BlockRef();
      if (!block.exists()) {
        tier = shape.tier;
        if (tier == Tier::run && cache != nullptr) note_run_miss(*cache, shape.units);
        block = take_shared(shape, stream, internal::Reach::before_end);
        if (block.exists() && cache != nullptr && shape.tier != Tier::run) {
          refill(*cache, shape.bin());
        }
      }
      if (!block.exists()) {
        block = take_after_reclaim(request, shape, stream, record, log);
        if (!block.exists()) {
          block = take_of_others(shape, *stream);
          if (block.exists()) log.note_gain(LadderRung::other_streams, shape.block_bytes);
        }
        if (block.is_run()) tier = Tier::run;
      }
      if (block.exists()) {
        if (is_timed) {
          count_duration(counted_.allocation_duration[static_cast<std::size_t>(tier)],
                         steady_clock().now_ns() - start);
        }
        const auto served = hand_out(block, request, *stream, record);
        if (log.has_any()) log.add_to(counted_, served.ok());
        if (!served.ok()) return fail(request, {FailureCause::guard, served.error()}, asking);
        if (waits) {
          count_miss(request, MissReason::pending, asking, log);
        } else if (tier != Tier::cache) {
          // A block of the cache counts as a hit there by not being counted here.
          counters_of(record).shared_hits[static_cast<std::size_t>(tier)].add(1);
        }
        return served;
      }
    }
  }
  const std::uint64_t start = steady_clock().now_ns();
  auto result = allocate_slowly(request, shape, stream, record, log);
  MutexLock lock(mu_);
  count_duration(counted_.allocation_duration[kTierCount], steady_clock().now_ns() - start);
  return result;
}

Error Pool::Impl::refuse_stream(const AllocationRequest& request,
                                const internal::StreamState* stream) {
  const MisuseReport misuse = count_misuse({.kind = Misuse::unknown_stream, .pointer = stream});
  const Error error = fail(request, {FailureCause::stream, Error::invalid_argument}, stream);
  MutexUnlock unlock(mu_);
  report_misuse(misuse);
  return error;
}

Result<void*> Pool::Impl::allocate_raw(const AllocationRequest& request, RawStream raw,
                                       bool waits) {
  if (request.bytes == 0) return nullptr;
  if (is_closed()) return Error::not_supported;
  CaptureState capture = CaptureState::none;
  internal::StreamState* stream = find_or_adopt(raw, &capture);
  if (stream == nullptr) {
    MutexLock lock(mu_);
    return fail(request, kNoStream, nullptr);
  }
  // A graph replays what it captured: what caches have, others may get in between.
  if (internal::is_captured(capture) || waits) {
    return allocate_shared(request, stream, own_record(), false, capture, waits);
  }
  return allocate_cold(request, stream, false, capture);
}

std::optional<internal::Fault> Pool::Impl::find_fault(const AllocationRequest& request) const {
  using internal::Fault;
  if (!internal::is_power_of_two(request.alignment) || request.alignment > kMaxAlignment) {
    return Fault{FailureCause::alignment, Error::invalid_argument};
  }
  if (request.capture_pool.first == kUnannounced) {
    return Fault{FailureCause::private_pool, Error::invalid_argument};
  }
  if (request.bytes > kMaxRequestBytes || request.bytes > limit_bytes_.get()) {
    return Fault{FailureCause::size, Error::limit_exceeded};
  }
  return std::nullopt;
}

Pool::Impl::BlockRef Pool::Impl::take_shared(const Shape& shape,
                                             const internal::StreamState* stream,
                                             internal::Reach reach) {
  // A request lets go of the lock and comes back: its stream's index may be another's by now.
  if (stream->is_released()) return {};
  const StreamIndex index = stream->index();
  switch (shape.tier) {
    case Tier::size_class: return tiers_.take_slot(shape.size_class, index, reach);
    case Tier::buddy: return tiers_.take_buddy(shape.units, index, reach);
    case Tier::run: return tiers_.take_run(shape.units, shape.align_units, index, reach);
    case Tier::cache: break;
  }
  return {};
}

bool Pool::Impl::has_nothing_to_reclaim(const internal::ThreadRecord& record,
                                        StreamIndex stream) const {
  for (const internal::ThreadCache* cache = record.caches; cache != nullptr; cache = cache->next) {
    if (!cache->is_unused()) return false;
  }
  if (has_handed_over()) return false;
  return !tiers_.runs().has_of_others(stream);
}

Pool::Impl::BlockRef Pool::Impl::take_after_reclaim(const AllocationRequest& request,
                                                    const Shape& shape,
                                                    const internal::StreamState* stream,
                                                    internal::ThreadRecord* record,
                                                    LadderLog& log) {
  // What T0 may keep may be taken from the end instead. Without that a few sizes by turns, where
  // only the end is free, would empty the caches each time. Not where another thread may be in the
  // driver for long.
  const bool may_extend = tiers_.runs().is_within_use(shape.units_needed()) &&
                          !growth_mu_.is_held() && can_grow(shape, stream->index());
  bool has_looked = false;
  if (!may_extend) {
    const BlockRef block = reclaim(shape, stream, record, has_looked, log);
    if (block.exists()) {
      const std::uint64_t limit =
          depots_[stream->index()]->demand().worth_bytes() / internal::kUnitBytes;
      tiers_.runs().widen_use(shape.units_needed(), limit);
      return block;
    }
  }
  BlockRef block = take_shared(shape, stream, internal::Reach::everywhere);
  if (!block.exists() && !has_looked) {
    // All that is left is growing, which takes longer than the other's look mostly does.
    pause_to_complete_work(Patience::brief, &log);
    block = take_shared(shape, stream, internal::Reach::everywhere);
  }
  if (block.exists() || shape.tier == Tier::run) return block;
  // A piece that is too short for a chunk serves a block that fills it, sooner than the driver;
  // where the pool cannot grow, any block.
  if (!internal::fills_units(shape, request.bytes) && can_grow(shape, stream->index())) {
    return block;
  }
  return take_as_run(shape, stream);
}

Pool::Impl::BlockRef Pool::Impl::reclaim(const Shape& shape, const internal::StreamState* stream,
                                         internal::ThreadRecord* record, bool& has_looked,
                                         LadderLog& log) {
  // Before more of the arena's end is taken, whether it is backed already or not: so a second
  // pass over the same requests places them as the first did, and needs no more than that held.
  // Cheapest first: the asking thread's own runs need neither a claim nor, for their own stream,
  // that any completion is known.
  const StreamIndex index = stream->index();
  const auto retry = [&] {
    ++counted_.retries;
    return take_shared(shape, stream, internal::Reach::before_end);
  };
  while (const std::uint64_t bytes = flush_nearest_runs(record, index, shape.units_needed())) {
    log.note(LadderRung::caches, bytes);
    if (const BlockRef block = retry(); block.exists()) return block;
  }
  const std::uint64_t moved = flush_own_runs(record) + flush_depots();
  log.note(LadderRung::caches, moved);
  // Completions tell this stream nothing new of its own memory. Where another thread is at it, and
  // may be stuck in the driver, this one goes on without.
  const std::optional<std::uint64_t> completed =
      tiers_.runs().has_of_others(index) || shape.tier != Tier::run
          ? pause_to_complete_work(Patience::none, &log)
          : 0;
  has_looked = completed.has_value();
  if (completed.value_or(0) > 0 || moved > 0) {
    if (const BlockRef block = retry(); block.exists()) return block;
  }
  // Small blocks keep chunks from being whole; they are given back last, since they are few bytes.
  if (const std::uint64_t bytes = flush_own(record); bytes > 0) {
    log.note(LadderRung::caches, bytes);
    if (const BlockRef block = retry(); block.exists()) return block;
  }
  if (can_grow(shape, index)) return {};
  const std::uint64_t drained = drain_all();
  log.note(LadderRung::caches, drained);
  if (drained == 0) return {};
  pause_to_complete_work(Patience::none, &log);
  return retry();
}

Pool::Impl::BlockRef Pool::Impl::take_as_run(const Shape& shape,
                                             const internal::StreamState* stream) {
  if (stream->is_released()) return {};
  return tiers_.take_run(shape.units_alone(), 1, stream->index(), internal::Reach::everywhere);
}

Result<void*> Pool::Impl::hand_out(BlockRef block, const AllocationRequest& request,
                                   const internal::StreamState& stream,
                                   internal::ThreadRecord* record) {
  const std::uint32_t tag = code_of(request.tag == kCurrentTag ? current_tag() : request.tag);
  const std::uint64_t bytes = tiers_.bytes_of(block);
  internal::BlockRecord& block_record = tiers_.record(block);
  const std::uint32_t bin = block_record.load().bin();
  void* const address = address_of(block);
  const StreamIndex shown = stream.shown_index();
  auto word = internal::BlockWord::live(tag, bin, shown);
  if (stream.is_pseudo()) [[unlikely]] {
    using Kind = internal::PrivatePools::Kind;
    word = make_private(word, address, stream.index(), block.is_run() ? Kind::run : Kind::in_chunk,
                        bytes);
  }
  // Before anything is counted: who gets nothing was not served.
  if (guards_.is_on()) [[unlikely]] {
    if (const auto done = guard(block, request.bytes, word, stream); !done.ok()) {
      return done.error();
    }
  }
  internal::ThreadCounters& counters = counters_of(record);
  bool is_noted = false;
  if (block.is_run()) {
    is_noted = counters.count_run(request.bytes, bytes);
  } else {
    is_noted = counters.count_small(bin, request.bytes);
    // An aligned block lies in a bin of larger requests.
    const std::size_t bucket = internal::size_bucket(request.bytes);
    const std::size_t counted_as = internal::size_bucket(bytes);
    if (bucket != counted_as) {
      counters.moved[bucket].add(1);
      counters.moved[counted_as].add(~std::uint64_t{0});
    }
  }
  if (tag != internal::BlockWord::kUntaggedCode) counters.count_tagged(tag, request.bytes);
  if (is_noted) note_step_locked(record);
  block_record.set_requested(request.bytes);
  block_record.tick.set(tick_.get());
  // Last, so that a block is live only once its record is whole.
  block_record.store(word);
  if (recorder_ != nullptr) [[unlikely]]
    recorder_->note_allocation(address, request.bytes, trace_stream(shown));
  return address;
}

}  // namespace gpupool
