// Tier T0 below the path of a hit: what a cache gets from the shared tiers and from other threads,
// and where what it has no room for goes.
#include <algorithm>

#include "pool/hand_out.h"

namespace gpupool {

using internal::BlockRecord;
using internal::BlockWord;
using internal::Chain;
using internal::MutexLock;
using internal::Run;
using internal::RunBatch;
using internal::RunChain;
using internal::ThreadCache;

namespace {

/// Whether a run for which a cache has no room may push others out of it. One that takes more than
/// a quarter of the cache would make most of it serve one size.
bool may_displace(std::uint64_t bytes, std::uint64_t limit_bytes) {
  constexpr std::uint64_t kAlways = 2 << 20;  // also where many caches share the device's limit
  return bytes <= limit_bytes && (bytes <= limit_bytes / 4 || bytes <= kAlways);
}

}  // namespace

// Taking.

Pool::Impl::BlockRef Pool::Impl::take_cached(ThreadCache& cache, const Shape& shape) {
  // Blocks in caches have whatever alignment their tier gives; more is never looked for there.
  if (shape.align_units > 1) return {};
  if (shape.tier == Tier::run) {
    Run* const blocks = tiers_.directory().runs();
    if (const internal::RunId id = cache.runs.take(shape.units, blocks)) return {id, 0, 0};
  } else if (const std::uint32_t code =
                 cache.small.take(shape.bin(), tiers_.directory().records())) {
    return BlockRef::from_code(code);
  }
  return take_handed_over(cache, shape);
}

Pool::Impl::BlockRef Pool::Impl::take_handed_over(ThreadCache& cache, const Shape& shape) {
  if (shape.tier == Tier::run) return {take_handed_over_run(cache, shape.units), 0, 0};
  const std::uint32_t code = take_handed_over_small(cache, shape.bin());
  return code == 0 ? BlockRef() : BlockRef::from_code(code);
}

void Pool::Impl::refill(ThreadCache& cache, std::uint32_t bin) {
  cache.small.grow(bin);
  if (!internal::is_slot_bin(bin)) return;
  // More of the same slab, which costs no memory that is not there already.
  const auto size_class = static_cast<internal::SizeClass>(bin);
  std::array<std::uint32_t, BlockWord::kMaxChain> codes;
  std::uint32_t count = 0;
  for (const std::uint32_t batch = cache.small.batch(bin); count + 1 < batch; ++count) {
    if (!tiers_.has_open_slab(size_class, cache.stream)) break;
    codes[count] = tiers_.take_slot(size_class, cache.stream, internal::Reach::before_end).code();
  }
  BlockRecord* const records = tiers_.directory().records();
  // The lowest on top, as the slab gives them.
  while (count > 0) {
    const std::uint32_t code = codes[--count];
    records[code].tick.set(tick_.get());
    if (!cache.small.put(bin, code, records)) {
      put_shared(BlockRef::from_code(code), cache.stream);
    }
  }
}

// Giving back.

GPUPOOL_INLINE void Pool::Impl::put_run(ThreadCache& cache, internal::RunId id,
                                        std::uint32_t units) {
  Run* const blocks = tiers_.directory().runs();
  // A small block that was served as a run has no bin where it would be looked for.
  if (units > internal::kUnitsPerChunk) {
    set_run_limit(cache);
    if (cache.runs.put(id, units, blocks)) return;
    while (may_displace(units * internal::kUnitBytes, cache.runs.limit_bytes())) {
      if (cache.runs.put(id, units, blocks)) return;
      const RunChain other = cache.runs.evict_other(units, blocks);
      if (other.head != 0) {
        let_go(other, cache);
        set_run_limit(cache);
        continue;
      }
      // The cache is full of this size alone: somebody else allocates it, or nobody does.
      const RunBatch own = cache.runs.find_older_half(units, blocks);
      if (own.blocks == 0) break;
      cache.hands_over =
          hand_over_runs(cache, own) || (collect_idle_quota() > 0 && hand_over_runs(cache, own));
      cache.runs.cut(own, blocks);
      if (!cache.hands_over) flush(own.link(blocks), cache.stream);
    }
    cache.depot->demand().note_let_go(units, units * internal::kUnitBytes);
    if (cache.runs.bytes() != 0) shrink_to_worth(cache);
  }
  tiers_.put_run(id, tickets_of(cache.stream));
}

void Pool::Impl::shrink_to_worth(ThreadCache& cache) {
  set_run_limit(cache);
  while (cache.runs.bytes() > cache.runs.limit_bytes()) {
    const RunChain other = cache.runs.evict_other(0, tiers_.directory().runs());
    if (other.head == 0) return;
    flush(other, cache.stream);
  }
}

GPUPOOL_COLD bool Pool::Impl::finish_run_free(internal::RunId id) {
  ThreadCache& cache = *internal::hot_slot.cache;
  if (cache.hands_over && put_run_handing_over(cache, id)) {
    note_step(*internal::hot_slot.record);
    return true;
  }
  bool is_close_due = false;
  {
    MutexLock lock(mu_);
    cache.has_left_over.set(false);
    if (cache.claim.has_ended()) [[unlikely]] {
      put_after_end(cache, {id, 0, 0});
    } else {
      put_run(cache, id, tiers_.directory().runs()[id].units);
      if (cache.is_of_own_stream) is_close_due = note_own_free(cache);
    }
  }
  if (is_close_due) close_epoch_if_free(cache.stream);
  internal::ThreadRecord& record = *internal::hot_slot.record;
  if (record.counters.has_stepped()) note_step(record);
  return true;
}

void Pool::Impl::put_left_over(DeviceAddress address) {
  ThreadCache& cache = *internal::hot_slot.cache;
  const std::uint64_t unit = addresses_->unit_at(address);
  const BlockRef block = tiers_.directory().find(unit, address % internal::kUnitBytes);
  if (!block.is_run() && cache.claim.enter()) {
    const std::uint32_t bin = tiers_.record(block).load().bin();
    const bool has_room =
        cache.small.make_room(bin) || (!cache.is_of_own_stream && hand_over_small(cache, bin));
    const bool is_put =
        has_room && cache.small.put(bin, block.code(), tiers_.directory().records());
    if (is_put) cache.has_left_over.set(false);
    cache.claim.leave();
    if (is_put) return;
  }
  bool is_close_due = false;
  {
    MutexLock lock(mu_);
    cache.has_left_over.set(false);
    if (cache.claim.has_ended()) [[unlikely]] {
      put_after_end(cache, block);
    } else {
      put_cached(&cache, block, cache.stream);
      if (cache.is_of_own_stream) is_close_due = note_own_free(cache);
    }
  }
  if (is_close_due) close_epoch_if_free(cache.stream);
}

void Pool::Impl::put_after_end(const ThreadCache& cache, BlockRef block) {
  // With the ticket of the stream as it was: the index may be another's by now.
  TicketSet tickets;
  tickets.add(cache.last_ticket, streams_);
  tiers_.put(block, tickets);
}

bool Pool::Impl::note_own_free(const ThreadCache& cache) {
  streams_.note_own_free(cache.stream);
  return streams_.is_own_close_due(cache.stream);
}

void Pool::Impl::put_cached(ThreadCache* cache, BlockRef block, StreamIndex stream) {
  if (cache == nullptr) {
    put_shared(block, stream);
  } else if (!block.is_run()) {
    put_small(*cache, tiers_.record(block).load().bin(), block.code());
  } else {
    const auto units = static_cast<std::uint32_t>(tiers_.bytes_of(block) / internal::kUnitBytes);
    // What would be a hit, but for the recording, is put as one: it asks for no other share.
    if (recorder_ != nullptr && cache->runs.put(block.run, units, tiers_.directory().runs()))
      return;
    put_run(*cache, block.run, units);
  }
}

void Pool::Impl::put_small(ThreadCache& cache, std::uint32_t bin, std::uint32_t code) {
  BlockRecord* const records = tiers_.directory().records();
  const auto put = [&] { return cache.small.put(bin, code, records); };
  if (put() || (cache.small.make_room(bin) && put())) return;
  // A whole chain goes, to whoever allocates what this thread frees.
  if (!hand_over_small(cache, bin)) {
    const Chain chain = cache.small.take_chain(bin);
    if (chain.head != 0) flush(chain, cache.stream);
  }
  if (put() || (cache.small.make_room(bin) && put())) return;
  put_shared(BlockRef::from_code(code), cache.stream);
}

void Pool::Impl::update_run_share() {
  run_share_bytes_.set(options_.cache_large_bytes / std::max<std::uint64_t>(run_caches_, 1));
}

void Pool::Impl::add_run_cache(ThreadCache& cache) {
  cache.may_hold_runs = true;
  ++run_caches_;
  update_run_share();
}

}  // namespace gpupool
