// Emptying caches into the shared tiers: the calling thread's own, other threads' by claiming them,
// and what nobody has used for a while.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::BlockRecord;
using internal::Chain;
using internal::kBinCount;
using internal::MutexLock;
using internal::Run;
using internal::RunChain;
using internal::ThreadCache;
using internal::ThreadRecord;

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
  const Run* const blocks = tiers_.directory().runs();
  const TicketSet tickets = tickets_of(stream);
  for (std::uint32_t id = chain.head; id != 0;) {
    const std::uint32_t next = blocks[id].record.next.get();
    tiers_.put_run(id, tickets);
    id = next;
  }
  return chain.bytes();
}

std::uint64_t Pool::Impl::let_go(const RunChain& chain, ThreadCache& cache) {
  if (chain.head == 0) return 0;
  cache.depot->demand().note_let_go(chain.units, chain.bytes());
  return flush(chain, cache.stream);
}

std::uint64_t Pool::Impl::flush_runs(ThreadCache& cache) {
  if (!cache.may_hold_runs) return 0;
  std::uint64_t moved = 0;
  for (;;) {
    const RunChain chain = cache.runs.evict_other(0, tiers_.directory().runs());
    if (chain.head == 0) break;
    moved += let_go(chain, cache);
  }
  cache.runs.rest();
  cache.may_hold_runs = false;
  --run_caches_;
  update_run_share();
  return moved;
}

std::uint64_t Pool::Impl::flush_nearest_runs(ThreadRecord* record, StreamIndex stream,
                                             std::uint32_t units) {
  if (record == nullptr) return 0;
  for (ThreadCache* cache = record->caches; cache != nullptr; cache = cache->next) {
    if (cache->stream != stream || cache->runs.bytes() == 0) continue;
    return let_go(cache->runs.take_nearest(units, tiers_.directory().runs()), *cache);
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

std::optional<std::uint64_t> Pool::Impl::flush_depot(StreamIndex stream, bool must) {
  internal::Depot& depot = *depots_[stream];
  if (must) {
    depot.lock().lock();
  } else if (!depot.lock().lock_briefly()) {
    return std::nullopt;
  }
  const std::lock_guard lock(depot.lock(), std::adopt_lock);
  std::uint64_t moved = 0;
  depot_small_bytes_.fetch_sub(depot.small_bytes(), std::memory_order_relaxed);
  while (depot.small_bytes() > 0) {
    moved += flush(depot.take(depot.any_bin(), tiers_.directory().records()), stream);
  }
  while (depot.run_bytes() > 0) {
    moved += flush(depot.take_any_runs().link(tiers_.directory().runs()), stream);
  }
  depot_run_quota_.fetch_sub(depot.take_idle_quota(), std::memory_order_relaxed);
  return moved;
}

std::uint64_t Pool::Impl::depot_bytes() const noexcept {
  return depot_small_bytes_.load(std::memory_order_relaxed) +
         depot_run_quota_.load(std::memory_order_relaxed);
}

bool Pool::Impl::has_handed_over() const {
  return depot_bytes() > 0 && std::any_of(depots_.begin(), depots_.end(),
                                          [](const auto& depot) { return depot->bytes() > 0; });
}

std::uint64_t Pool::Impl::flush_depots() {
  passed_over_.depots.clear();
  std::uint64_t moved = 0;
  for (StreamIndex i = 0; i < depots_.size() && depot_bytes() > 0; ++i) {
    const auto flushed = flush_depot(i, false);
    moved += flushed.value_or(0);
    if (!flushed.has_value()) passed_over_.depots.push_back(i);
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
std::uint64_t Pool::Impl::for_claimed(const ThreadRecord* record, bool must, F is_meant, G visit) {
  claimed_.clear();
  caches_.for_each_cache([&](const ThreadRecord& owner, ThreadCache& cache) {
    if (&owner != record && !cache.claim.has_ended() && is_meant(cache)) claimed_.push_back(&cache);
  });
  const std::size_t count = caches_.claim(claimed_, must);
  passed_over_.caches.assign(claimed_.begin() + static_cast<std::ptrdiff_t>(count), claimed_.end());
  std::uint64_t moved = 0;
  for (std::size_t i = 0; i < count; ++i) {
    moved += visit(*claimed_[i]);
    claimed_[i]->claim.release();
  }
  return moved;
}

std::uint64_t Pool::Impl::flush_others(const ThreadRecord* record) {
  return for_claimed(
      record, false, [](const ThreadCache& cache) { return !cache.is_empty(); },
      [&](ThreadCache& cache) { return flush(cache); });
}

std::uint64_t Pool::Impl::drain_all() {
  ThreadRecord* const record = find_own_record();
  std::uint64_t moved = flush_own(record);
  moved += flush_depots();
  moved += flush_others(record);
  if (moved > 0) emit({.kind = SlowPathEventKind::cache_drain, .bytes = moved});
  return moved;
}

std::uint64_t Pool::Impl::flush_passed_over(internal::PassedOver& left) {
  claimed_.clear();
  std::copy_if(left.caches.begin(), left.caches.end(), std::back_inserter(claimed_),
               [](const ThreadCache* cache) { return !cache->claim.has_ended(); });
  const std::size_t count = caches_.claim(claimed_, false);
  std::uint64_t moved = 0;
  for (std::size_t i = 0; i < count; ++i) {
    moved += flush(*claimed_[i]);
    // Where its owner, inside meanwhile, may have handed some of it over.
    left.depots.push_back(claimed_[i]->stream);
    claimed_[i]->claim.release();
    caches_.unbar(*claimed_[i]);
  }
  left.caches.assign(claimed_.begin() + static_cast<std::ptrdiff_t>(count), claimed_.end());
  // Once it has left, the owner is not let in again before this has been here: so it cannot be
  // stopped inside time and again. Anew each time: another thread that waits may have lifted the
  // bar.
  for (ThreadCache* cache : left.caches) caches_.bar(*cache);
  const auto is_flushed = [&](StreamIndex stream) {
    const auto flushed = flush_depot(stream, false);
    moved += flushed.value_or(0);
    return flushed.has_value();
  };
  std::erase_if(left.depots, is_flushed);
  if (moved > 0) emit({.kind = SlowPathEventKind::cache_drain, .bytes = moved});
  return moved;
}

std::uint64_t Pool::Impl::drain_patiently() {
  constexpr std::chrono::microseconds kPause{50};
  std::uint64_t moved = 0;
  internal::PassedOver left;
  {
    MutexLock lock(mu_);
    moved = drain_all();
    std::swap(left, passed_over_);
  }
  // Only those: of many busy threads some are always inside, and a pass that finds none may never
  // come.
  while (!left.is_empty()) {
    // Long enough for the scheduler to let whoever was stopped go on, whatever his priority.
    std::this_thread::sleep_for(kPause);
    MutexLock lock(mu_);
    moved += flush_passed_over(left);
  }
  return moved;
}

void Pool::Impl::end_caches(StreamIndex stream, const ThreadRecord* record) {
  const auto end = [&](ThreadCache& cache) {
    const std::uint64_t moved = flush(cache);
    if (cache.has_left_over.get()) cache.last_ticket = streams_.ticket(stream);
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
  flush_depot(stream, true);
}

std::uint32_t Pool::Impl::tick_at(std::uint64_t now_ns) const {
  return first_tick_ + static_cast<std::uint32_t>((now_ns - aging_start_ns_) / internal::kTickNs);
}

void Pool::Impl::restart_aging() {
  const std::uint64_t now = pool_time();
  first_tick_ = tick_at(now);
  aging_start_ns_ = now;
  next_aging_ns_ = now + kCacheAgeNs;
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
      const RunChain chain = cache.runs.take_if(is_old_run, tiers_.directory().runs());
      if (chain.head == 0) break;
      moved += let_go(chain, cache);
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
    internal::Depot& depot = *depots_[i];
    if (!depot.lock().lock_briefly()) continue;  // somebody uses it
    const bool is_old_depot = !depot.was_touched();
    depot.lock().unlock();
    if (is_old_depot) flush_depot(i, false);
  }
}

}  // namespace gpupool
