// Tier T0 below the path of a hit: a thread's record and caches, what they hand to each other and
// to the shared tiers, and how others get at what they hold.
#include <algorithm>

#include "base/check.h"
#include "pool/hand_out.h"

namespace gpupool {

using internal::BlockRecord;
using internal::BlockWord;
using internal::Chain;
using internal::HotSlot;
using internal::kBinBytes;
using internal::kBinCount;
using internal::MutexLock;
using internal::RunBlock;
using internal::RunChain;
using internal::ThreadCache;
using internal::ThreadRecord;

namespace {

/// Takes the first block out of a chain.
template <class C, class Records>
std::uint32_t pop(C& chain, Records next_of) {
  const std::uint32_t head = chain.head;
  chain.head = next_of(head);
  --chain.blocks;
  return head;
}

}  // namespace

// Threads.

ThreadRecord* Pool::Impl::find_own_record() const {
  const HotSlot& hot = internal::hot_slot;
  for (const HotSlot::Known& known : hot.known) {
    if (known.pool == serial_) return known.record;
  }
  return nullptr;
}

ThreadRecord* Pool::Impl::own_record() {
  if (ThreadRecord* const known = find_own_record()) return known;
  HotSlot& hot = internal::hot_slot;
  if (hot.is_ending) return nullptr;
  ThreadRecord* record = nullptr;
  if (const internal::ThreadExitEntry* const entry = internal::find_own_entry(this)) {
    record = static_cast<ThreadRecord*>(entry->context);
  } else {
    {
      MutexLock lock(mu_);
      record = caches_.open_record();
      if (record == nullptr) return nullptr;
      record->exit.on_exit = on_thread_exit;
      record->exit.owner = this;
      record->exit.context = record;
      arm_all();
    }
    if (!internal::watch_thread(record->exit)) {
      MutexLock lock(mu_);
      caches_.close_record(*record);
      arm_all();
      return nullptr;
    }
  }
  std::shift_right(hot.known.begin(), hot.known.end(), 1);
  hot.known[0] = {serial_, record};
  return record;
}

internal::ThreadCounters& Pool::Impl::counters_of(ThreadRecord* record) {
  if (record != nullptr) return record->counters;
  if (!is_orphan_used_) {
    is_orphan_used_ = true;
    arm_all();
  }
  return orphan_->counters;
}

void Pool::Impl::on_thread_exit(void* impl, void* record) {
  static_cast<Impl*>(impl)->end_thread(*static_cast<ThreadRecord*>(record));
}

void Pool::Impl::end_thread(ThreadRecord& record) {
  if (record.own_stream != 0) end_own_stream(record);
  MutexLock lock(mu_);
  while (ThreadCache* const cache = record.caches) {
    flush(*cache);
    caches_.close_cache(record, *cache);
  }
  fold_peaks();
  caches_.close_record(record);
  arm_all();
}

void Pool::Impl::forget_threads() {
  // One at a time and without the pool's lock, which a thread that ends right now waits for while
  // it holds the other.
  for (;;) {
    ThreadRecord* record = nullptr;
    {
      MutexLock lock(mu_);
      record = caches_.records();
      while (record != nullptr && record->is_forgotten) record = record->next;
      if (record == nullptr) break;
      record->is_forgotten = true;
    }
    internal::forget_thread(record->exit);
  }
  internal::wait_for_exits(this);
}

void Pool::Impl::end_own_stream(const ThreadRecord& record) {
  // Its own thread is here for the last time, and nobody else could close the stream's epoch.
  MutexLock events(events_mu_);
  std::optional<internal::EpochEnd> last;
  {
    MutexLock lock(mu_);
    internal::StreamState* const stream = streams_.find(record.own_stream);
    if (stream != nullptr) last = let_go(stream, &record);
  }
  if (last.has_value()) this->record(*last);
}

// Caches of the calling thread.

ThreadCache* Pool::Impl::switch_to(ThreadRecord& record, const internal::StreamState* stream) {
  if (stream == nullptr || options_.verify_streams) return nullptr;
  ThreadCache* const cache = record.find(stream, stream->index());
  if (cache == nullptr) return nullptr;
  HotSlot& hot = internal::hot_slot;
  hot.pool = serial_;
  hot.stream = stream;
  hot.cache = cache;
  hot.record = &record;
  return cache;
}

bool Pool::Impl::has_at_hand(ThreadRecord& record, const internal::StreamState* stream) {
  const HotSlot& hot = internal::hot_slot;
  return (hot.pool == serial_ && hot.stream == stream) || switch_to(record, stream) != nullptr;
}

ThreadCache* Pool::Impl::open_cache(ThreadRecord* record, const internal::StreamState* stream) {
  if (record == nullptr) return nullptr;
  ThreadCache* cache = record->find(stream, stream->index());
  if (cache == nullptr) {
    // What is at hand may be dropped now, because its stream has ended.
    internal::hot_slot.stream = nullptr;
    cache = caches_.open_cache(*record, stream, stream->index(), options_.cache_small_bytes);
    if (cache == nullptr) return nullptr;
  }
  switch_to(*record, stream);
  return cache;
}

Pool::Impl::BlockRef Pool::Impl::take_cached(ThreadCache& cache, const Shape& shape) {
  // Blocks in caches have whatever alignment their tier gives; more is never looked for there.
  if (shape.align_units > 1) return {};
  if (shape.tier == Tier::run) {
    RunBlock* const blocks = tiers_.directory().run_blocks();
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

internal::RunId Pool::Impl::take_handed_over_run(ThreadCache& cache, std::uint32_t units) {
  RunBlock* const blocks = tiers_.directory().run_blocks();
  RunChain chain = depots_[cache.stream]->take_runs(units, blocks);
  if (chain.head == 0) return 0;
  depot_run_bytes_ -= chain.bytes();
  const internal::RunId id =
      pop(chain, [&](std::uint32_t run) { return blocks[run].record.next.get(); });
  set_run_limit(cache);
  if (chain.head != 0 && !cache.runs.put_chain(chain)) flush(chain, cache.stream);
  return id;
}

std::uint32_t Pool::Impl::take_handed_over_small(ThreadCache& cache, std::uint32_t bin) {
  BlockRecord* const records = tiers_.directory().records();
  Chain chain = depots_[cache.stream]->take(bin, records);
  if (chain.head == 0) return 0;
  const std::uint32_t code =
      pop(chain, [&](std::uint32_t block) { return records[block].next.get(); });
  cache.small.grow(bin);
  if (chain.head != 0 && !cache.small.put_chain(bin, chain)) flush(chain, cache.stream);
  return code;
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

GPUPOOL_COLD bool Pool::Impl::finish_run_free(internal::RunId id) {
  ThreadCache& cache = *internal::hot_slot.cache;
  bool is_close_due = false;
  {
    MutexLock lock(mu_);
    put_run(cache, id, tiers_.directory().run_blocks()[id].units.get());
    is_close_due = note_own_free(cache);
  }
  if (is_close_due) close_own_epoch(cache.stream);
  note_step(*internal::hot_slot.record);
  return true;
}

void Pool::Impl::put_left_over(DeviceAddress address) {
  ThreadCache& cache = *internal::hot_slot.cache;
  const std::uint64_t unit = addresses_->unit_at(address);
  const BlockRef block = tiers_.directory().find(unit, address % internal::kUnitBytes);
  if (!block.is_run() && cache.claim.enter()) {
    const std::uint32_t bin = tiers_.record(block).load().bin();
    const bool is_put = cache.small.make_room(bin) &&
                        cache.small.put(bin, block.code(), tiers_.directory().records());
    cache.claim.leave();
    if (is_put) return;
  }
  bool is_close_due = false;
  {
    MutexLock lock(mu_);
    put_cached(&cache, block, cache.stream);
    is_close_due = note_own_free(cache);
  }
  if (is_close_due) close_own_epoch(cache.stream);
}

bool Pool::Impl::note_own_free(const ThreadCache& cache) {
  if (!cache.is_of_own_stream || cache.claim.has_ended()) return false;
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
    put_run(*cache, block.run, units);
  }
}

void Pool::Impl::put_small(ThreadCache& cache, std::uint32_t bin, std::uint32_t code) {
  BlockRecord* const records = tiers_.directory().records();
  const auto put = [&] { return cache.small.put(bin, code, records); };
  if (!cache.claim.has_ended()) {
    if (put() || (cache.small.make_room(bin) && put())) return;
    // A whole chain goes, to whoever allocates what this thread frees.
    const Chain chain = cache.small.take_chain(bin);
    if (chain.head != 0) {
      internal::Depot& depot = *depots_[cache.stream];
      const std::uint64_t bytes = std::uint64_t{chain.blocks} * kBinBytes[bin];
      if (depot.small_bytes() + bytes <= options_.cache_small_bytes) {
        depot.put(bin, chain, records);
      } else {
        flush(chain, cache.stream);
      }
      if (put() || (cache.small.make_room(bin) && put())) return;
    }
  }
  put_shared(BlockRef::from_code(code), cache.stream);
}

void Pool::Impl::put_run(ThreadCache& cache, internal::RunId id, std::uint32_t units) {
  RunBlock* const blocks = tiers_.directory().run_blocks();
  // A small block that was served as a run has no bin where it would be looked for.
  if (!cache.claim.has_ended() && units > internal::kUnitsPerChunk) {
    set_run_limit(cache);
    const bool could_fit = units * internal::kUnitBytes <= cache.runs.limit_bytes();
    while (could_fit) {
      if (cache.runs.put(id, units, blocks)) return;
      const RunChain other = cache.runs.evict_other(units, blocks);
      if (other.head != 0) {
        flush(other, cache.stream);
        continue;
      }
      // The cache is full of this size alone: somebody else allocates it, or nobody does.
      const RunChain own = cache.runs.take_older_half(units, blocks);
      if (own.head == 0) break;
      if (own.blocks <= BlockWord::kMaxChain &&
          depot_run_bytes_ + own.bytes() <= run_limit_bytes_ / 2 &&
          depots_[cache.stream]->put_runs(own, blocks)) {
        depot_run_bytes_ += own.bytes();
      } else {
        flush(own, cache.stream);
      }
    }
  }
  put_shared({id, 0, 0}, cache.stream);
}

void Pool::Impl::update_run_limit() {
  // 0.2 % of what is held, where that is more.
  run_limit_bytes_ = std::max(options_.cache_large_bytes, held_bytes() / 500);
  run_share_bytes_ = run_limit_bytes_ / std::max<std::uint64_t>(run_caches_, 1);
}

void Pool::Impl::set_run_limit(ThreadCache& cache) {
  // What the device may have in caches is shared by the caches that hold any runs. One that holds
  // more than its new share keeps it until it is used, aged or claimed.
  if (!cache.may_hold_runs) {
    cache.may_hold_runs = true;
    ++run_caches_;
    update_run_limit();
  }
  cache.runs.set_limit(run_share_bytes_);
}

// To the shared tiers.

std::uint64_t Pool::Impl::flush(Chain chain, StreamIndex stream) {
  BlockRecord* const records = tiers_.directory().records();
  const TicketSet tickets = tickets_of(stream);
  std::uint64_t bytes = 0;
  for (std::uint32_t code = chain.head; code != 0;) {
    const std::uint32_t next = records[code].next.get();
    const BlockRef block = BlockRef::from_code(code);
    bytes += tiers_.bytes_of(block);
    tiers_.put(block, tickets);
    code = next;
  }
  return bytes;
}

std::uint64_t Pool::Impl::flush(const RunChain& chain, StreamIndex stream) {
  const RunBlock* const blocks = tiers_.directory().run_blocks();
  const TicketSet tickets = tickets_of(stream);
  for (std::uint32_t id = chain.head; id != 0;) {
    const std::uint32_t next = blocks[id].record.next.get();
    tiers_.put({id, 0, 0}, tickets);
    id = next;
  }
  return chain.bytes();
}

std::uint64_t Pool::Impl::flush_runs(ThreadCache& cache) {
  if (!cache.may_hold_runs) return 0;
  std::uint64_t moved = 0;
  for (;;) {
    const RunChain chain = cache.runs.evict_other(0, tiers_.directory().run_blocks());
    if (chain.head == 0) break;
    moved += flush(chain, cache.stream);
  }
  cache.runs.rest();
  cache.may_hold_runs = false;
  --run_caches_;
  update_run_limit();
  return moved;
}

std::uint64_t Pool::Impl::flush_nearest_runs(ThreadRecord* record, StreamIndex stream,
                                             std::uint32_t units) {
  if (record == nullptr) return 0;
  for (ThreadCache* cache = record->caches; cache != nullptr; cache = cache->next) {
    if (cache->stream != stream || cache->runs.bytes() == 0) continue;
    return flush(cache->runs.take_nearest(units, tiers_.directory().run_blocks()), stream);
  }
  return 0;
}

std::uint64_t Pool::Impl::flush_own_runs(ThreadRecord* record) {
  if (record == nullptr) return 0;
  std::uint64_t moved = 0;
  for (ThreadCache* cache = record->caches; cache != nullptr; cache = cache->next) {
    moved += flush_runs(*cache);
  }
  return moved;
}

std::uint64_t Pool::Impl::flush_bin(ThreadCache& cache, std::uint32_t bin) {
  std::uint64_t moved = 0;
  for (Chain chain = cache.small.take_chain(bin); chain.head != 0;
       chain = cache.small.take_chain(bin)) {
    moved += flush(chain, cache.stream);
  }
  return moved;
}

std::uint64_t Pool::Impl::flush(ThreadCache& cache) {
  std::uint64_t moved = flush_runs(cache);
  cache.small.empty_all([&](std::uint32_t bin) { moved += flush_bin(cache, bin); });
  return moved;
}

std::uint64_t Pool::Impl::flush_depot(StreamIndex stream) {
  internal::Depot& depot = *depots_[stream];
  std::uint64_t moved = 0;
  while (depot.small_bytes() > 0) {
    moved += flush(depot.take(depot.any_bin(), tiers_.directory().records()), stream);
  }
  depot_run_bytes_ -= depot.run_bytes();
  while (depot.run_bytes() > 0) {
    moved += flush(depot.take_any_runs(tiers_.directory().run_blocks()), stream);
  }
  return moved;
}

std::uint64_t Pool::Impl::flush_depots() {
  std::uint64_t moved = 0;
  for (StreamIndex i = 0; i < depots_.size(); ++i) {
    if (depots_[i]->bytes() > 0) moved += flush_depot(i);
  }
  return moved;
}

std::uint64_t Pool::Impl::flush_own(ThreadRecord* record) {
  if (record == nullptr) return 0;
  std::uint64_t moved = 0;
  for (ThreadCache* cache = record->caches; cache != nullptr; cache = cache->next) {
    moved += flush(*cache);
  }
  return moved;
}

// Caches of other threads.

template <class F, class G>
std::uint64_t Pool::Impl::for_claimed(const ThreadRecord* record, bool must_have_all, F is_meant,
                                      G visit) {
  claimed_.clear();
  caches_.for_each_cache([&](const ThreadRecord& owner, ThreadCache& cache) {
    if (&owner != record && !cache.claim.has_ended() && is_meant(cache)) claimed_.push_back(&cache);
  });
  const std::size_t count = caches_.claim(claimed_, must_have_all);
  std::uint64_t moved = 0;
  for (std::size_t i = 0; i < count; ++i) {
    moved += visit(*claimed_[i]);
    claimed_[i]->claim.release();
  }
  return moved;
}

std::uint64_t Pool::Impl::flush_others(const ThreadRecord* record, bool must_have_all) {
  return for_claimed(
      record, must_have_all, [](const ThreadCache& cache) { return !cache.is_empty(); },
      [&](ThreadCache& cache) { return flush(cache); });
}

std::uint64_t Pool::Impl::drain_all(bool must_have_all) {
  ThreadRecord* const record = find_own_record();
  std::uint64_t moved = flush_own(record);
  moved += flush_depots();
  moved += flush_others(record, must_have_all);
  if (moved > 0) emit({.kind = SlowPathEventKind::cache_drain, .bytes = moved});
  return moved;
}

void Pool::Impl::end_caches(StreamIndex stream, const ThreadRecord* record) {
  const auto end = [&](ThreadCache& cache) {
    const std::uint64_t moved = flush(cache);
    cache.claim.end();
    return moved;
  };
  for_claimed(
      record, true, [&](const ThreadCache& cache) { return cache.stream == stream; }, end);
  if (record != nullptr) {
    for (ThreadCache* cache = record->caches; cache != nullptr; cache = cache->next) {
      if (cache->stream == stream && !cache->claim.has_ended()) end(*cache);
    }
  }
  flush_depot(stream);
}

void Pool::Impl::age_caches(std::uint64_t now_ns) {
  if (now_ns < next_aging_ns_) return;
  next_aging_ns_ = now_ns + kCacheAgeNs;
  const internal::BlockDirectory& directory = tiers_.directory();
  const auto is_old = [&](BlockRef block) {
    // The newest of its list stands for all: what is below was put there earlier.
    constexpr auto kAgeTicks = static_cast<std::uint32_t>(kCacheAgeNs / internal::kTickNs);
    return tick_.get() - directory.record(block).tick.get() >= kAgeTicks;
  };
  const auto is_old_bin = [&](const ThreadCache& cache, std::uint32_t bin) {
    const std::uint32_t code = cache.small.head(bin);
    return code != 0 && is_old(BlockRef::from_code(code));
  };
  const auto is_old_run = [&](std::uint32_t id) { return is_old({id, 0, 0}); };
  const auto flush_old = [&](ThreadCache& cache) {
    std::uint64_t moved = 0;
    for (std::uint32_t bin = 0; bin < kBinCount; ++bin) {
      if (is_old_bin(cache, bin)) moved += flush_bin(cache, bin);
    }
    for (;;) {
      const RunChain chain = cache.runs.take_if(is_old_run, tiers_.directory().run_blocks());
      if (chain.head == 0) break;
      moved += flush(chain, cache.stream);
    }
    if (cache.runs.bytes() == 0) flush_runs(cache);
    return moved;
  };
  const auto has_old = [&](const ThreadCache& cache) {
    for (std::uint32_t bin = 0; bin < kBinCount; ++bin) {
      if (is_old_bin(cache, bin)) return true;
    }
    return cache.runs.has_any(is_old_run);
  };
  ThreadRecord* const record = find_own_record();
  for_claimed(record, false, has_old, flush_old);
  if (record != nullptr) {
    for (ThreadCache* cache = record->caches; cache != nullptr; cache = cache->next) {
      flush_old(*cache);
    }
  }
  for (StreamIndex i = 0; i < depots_.size(); ++i) {
    if (!depots_[i]->was_touched()) flush_depot(i);
  }
}

}  // namespace gpupool
