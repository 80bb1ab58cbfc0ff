// From a thread that frees to one that allocates on the same stream: whole chains by way of the
// stream's depot, without the pool's lock.
//
// Note [Hand-over inside the claim]
// Who puts into a depot or takes from it is inside the claim of a cache of its stream, or holds
// mu_. The end of a stream claims and ends all its caches before it empties the depot, so nothing
// comes there afterwards. A block is in the depot or in one cache whenever the depot's lock is free
// and no owner is inside: so whoever has claimed all caches finds every block.
//
// A thread may be stopped while it holds a depot's lock. Whoever only would like to have something
// from there passes it over after a microsecond, as a cache whose owner does not leave.
#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "cache/depot.h"
#include "pool/hand_out.h"

namespace gpupool {

using internal::BlockRecord;
using internal::Chain;
using internal::Depot;
using internal::kBinBytes;
using internal::Run;
using internal::RunBatch;
using internal::ThreadCache;

namespace {

/// The depot's lock, where it is to be had at once.
class BriefLock {
 public:
  explicit BriefLock(Depot& depot) : lock_(depot.lock(), std::defer_lock) {
    if (depot.lock().lock_briefly()) lock_ = {depot.lock(), std::adopt_lock};
  }
  explicit operator bool() const noexcept { return lock_.owns_lock(); }

 private:
  std::unique_lock<internal::SpinLock> lock_;
};

}  // namespace

// Giving.

bool Pool::Impl::hand_over_small(ThreadCache& cache, std::uint32_t bin) {
  const Chain chain = cache.small.next_chain(bin);
  const std::uint64_t bytes = std::uint64_t{chain.blocks} * kBinBytes[bin];
  if (chain.head == 0) return false;
  {
    const BriefLock lock(*cache.depot);
    if (!lock || cache.depot->small_bytes() + bytes > options_.cache_small_bytes) return false;
    cache.small.take_chain(bin);
    cache.depot->put(bin, chain, tiers_.directory().records());
    depot_small_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  return true;
}

bool Pool::Impl::hand_over_runs(ThreadCache& cache, const RunBatch& batch) {
  // Half of very many small runs is more than a batch can have: they are rather joined.
  if (2 * batch.bytes() < cache.runs.bytes()) return false;
  Depot& depot = *cache.depot;
  const BriefLock lock(depot);
  if (!lock) return false;
  const std::uint64_t needed = depot.run_bytes() + batch.bytes();
  if (needed > depot.run_quota()) {
    // From what all depots may have together, before it is used.
    const std::uint64_t more = needed - depot.run_quota();
    const std::uint64_t before = depot_run_quota_.fetch_add(more, std::memory_order_relaxed);
    if (before + more > options_.cache_large_bytes / 2) {
      depot_run_quota_.fetch_sub(more, std::memory_order_relaxed);
      return false;
    }
    depot.add_run_quota(more);
  }
  return depot.put_runs(batch);
}

std::uint64_t Pool::Impl::collect_idle_quota() {
  std::uint64_t bytes = 0;
  for (const auto& depot : depots_) {
    if (const BriefLock lock(*depot); lock) bytes += depot->take_idle_quota();
  }
  depot_run_quota_.fetch_sub(bytes, std::memory_order_relaxed);
  return bytes;
}

bool Pool::Impl::put_run_handing_over(ThreadCache& cache, internal::RunId id) {
  Run* const blocks = tiers_.directory().runs();
  const std::uint32_t units = blocks[id].units;
  // A small block that was served as a run has no bin where it would be looked for. Frees on a
  // thread's own default stream are counted, and nobody else allocates there.
  if (units <= internal::kUnitsPerChunk || cache.is_of_own_stream) return false;
  if (!cache.claim.enter()) return false;
  bool is_put = false;
  if (cache.may_hold_runs) {
    cache.runs.set_limit(run_limit_of(cache));
    is_put = cache.runs.put(id, units, blocks);
    if (!is_put) {
      const RunBatch older = cache.runs.find_older_half(units, blocks);
      cache.hands_over = older.blocks > 0 && hand_over_runs(cache, older);
      if (cache.hands_over) {
        cache.runs.cut(older, blocks);
        is_put = cache.runs.put(id, units, blocks);
      }
    }
  }
  if (is_put) cache.has_left_over.set(false);
  cache.claim.leave();
  return is_put;
}

// Taking.

internal::RunId Pool::Impl::take_run_quickly(ThreadCache& cache, std::uint32_t units) {
  if (!cache.may_hold_runs) return 0;
  cache.runs.set_limit(run_limit_of(cache));
  // No more than the cache has room for: the rest would have to go to the tiers.
  RunBatch batch = take_batch(cache, units, 1 + cache.runs.room_for(units));
  cache.takes_handed_over = batch.blocks > 0;
  if (batch.blocks == 0) return 0;
  const internal::RunId id = batch.ids[--batch.blocks];
  if (batch.blocks > 0) {
    GPUPOOL_CHECK(cache.runs.put_chain(batch.link(tiers_.directory().runs())));
  }
  return id;
}

internal::RunId Pool::Impl::take_handed_over_run(ThreadCache& cache, std::uint32_t units) {
  RunBatch batch = take_batch(cache, units, RunBatch::kMost);
  if (batch.blocks == 0) return 0;
  set_run_limit(cache);
  const internal::RunId id = batch.ids[--batch.blocks];
  const internal::RunChain rest = batch.link(tiers_.directory().runs());
  cache.takes_handed_over = rest.head == 0 || cache.runs.put_chain(rest);
  if (!cache.takes_handed_over) flush(rest, cache.stream);
  return id;
}

RunBatch Pool::Impl::take_batch(ThreadCache& cache, std::uint32_t units, std::uint32_t most) {
  RunBatch batch;
  {
    const BriefLock lock(*cache.depot);
    if (!lock) return batch;
    batch = cache.depot->take_runs(units, most);
  }
  // All at once: each may have to come from another processor.
  const Run* const blocks = tiers_.directory().runs();
  for (std::uint32_t i = 0; i < batch.blocks; ++i) __builtin_prefetch(&blocks[batch.ids[i]], 1);
  return batch;
}

std::uint32_t Pool::Impl::take_small_quickly(ThreadCache& cache, std::uint32_t bin) {
  if (cache.depot->head(bin) == 0) return 0;
  BlockRecord* const records = tiers_.directory().records();
  const BriefLock lock(*cache.depot);
  if (!lock) return 0;
  const Chain chain = cache.depot->take(bin, records);
  if (chain.head == 0) return 0;
  const Chain rest{records[chain.head].next.get(), chain.blocks - 1};
  cache.small.grow(bin);
  if (rest.head != 0 && !cache.small.put_chain(bin, rest)) {
    // What there is no room for goes to the tiers, which needs the pool's lock.
    cache.depot->put(bin, chain, records);
    return 0;
  }
  const std::uint64_t bytes = std::uint64_t{chain.blocks} * kBinBytes[bin];
  depot_small_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  return chain.head;
}

std::uint32_t Pool::Impl::take_handed_over_small(ThreadCache& cache, std::uint32_t bin) {
  if (cache.depot->head(bin) == 0) return 0;
  BlockRecord* const records = tiers_.directory().records();
  Chain chain;
  {
    const BriefLock lock(*cache.depot);
    if (!lock) return 0;
    chain = cache.depot->take(bin, records);
    const std::uint64_t bytes = std::uint64_t{chain.blocks} * kBinBytes[bin];
    depot_small_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }
  if (chain.head == 0) return 0;
  const Chain rest{records[chain.head].next.get(), chain.blocks - 1};
  cache.small.grow(bin);
  if (rest.head != 0 && !cache.small.put_chain(bin, rest)) flush(rest, cache.stream);
  return chain.head;
}

}  // namespace gpupool
