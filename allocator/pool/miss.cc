// The usual miss: what the calling thread's cache does not have, the shared tiers do, in one lock
// and one search. Everything else goes the long way (allocate.cc).
//
// A request is counted under the same lock as the tier that served it, so that no snapshot has one
// without the other.
#include "pool/hand_out.h"

namespace gpupool {

using internal::MutexLock;
using internal::Reach;

namespace {

/// A run so long is placed with what is complete by now known, which takes an event or two: with
/// several streams, where it lies decides how much is held (five points on a job that gathers 64 MB
/// at a time), and what only waits for a look counts as taken.
constexpr std::uint32_t kLookUnits = (std::uint64_t{16} << 20) / internal::kUnitBytes;

}  // namespace

void Pool::Impl::note_run_miss(internal::ThreadCache& cache, std::uint32_t units) {
  cache.depot->demand().note_asked(units);
  if (units >= kLookUnits && tiers_.runs().pending_bytes() >= units * internal::kUnitBytes) {
    pause_to_complete_work(Patience::none);
  }
}

GPUPOOL_INLINE internal::RunId Pool::Impl::take_run_shared(internal::ThreadCache& cache,
                                                           std::uint32_t units) {
  if (cache.depot->may_have_runs(units)) {
    if (const internal::RunId id = take_handed_over_run(cache, units); id != 0) return id;
  }
  note_run_miss(cache, units);
  BlockRef block = tiers_.take_run(units, 1, cache.stream, Reach::before_end);
  // The arena's end is for when nothing can be reclaimed: see take_after_reclaim().
  if (block.run == 0 && has_nothing_to_reclaim(*internal::hot_slot.record, cache.stream)) {
    block = tiers_.take_run(units, 1, cache.stream, Reach::everywhere);
  }
  if (block.run != 0) {
    internal::hot_slot.record->counters.shared_hits[static_cast<std::size_t>(Tier::run)].add(1);
  }
  return block.run;
}

GPUPOOL_COLD Result<void*> Pool::Impl::miss_run(std::size_t bytes, internal::StreamState* stream) {
  const internal::HotSlot& hot = internal::hot_slot;
  internal::ThreadCache& cache = *hot.cache;
  if (bytes == 0 || bytes > limit_bytes_.get() || cache.claim.is_shut()) {
    return allocate_plain_cold(bytes, stream);
  }
  const auto units =
      static_cast<std::uint32_t>((bytes + internal::kUnitBytes - 1) / internal::kUnitBytes);
  internal::RunId id = 0;
  bool is_noted = false;
  // What another thread has handed over.
  if (cache.takes_handed_over && cache.claim.enter()) {
    id = take_run_quickly(cache, units);
    cache.claim.leave();
    if (id != 0) is_noted = hot.record->counters.count_run(bytes, units * internal::kUnitBytes);
  }
  if (id == 0) {
    MutexLock lock(mu_);
    // A stream that has ended has no cache that is open, and what is recorded goes another way.
    if (!cache.claim.is_shut()) id = take_run_shared(cache, units);
    if (id != 0) is_noted = hot.record->counters.count_run(bytes, units * internal::kUnitBytes);
  }
  if (id == 0) return allocate_plain_cold(bytes, stream);
  void* const block = make_run_live(hot, cache, id, bytes, hot.tag);
  if (is_noted) return allocate_noted(block, bytes);
  return block;
}

GPUPOOL_COLD Result<void*> Pool::Impl::miss_small(std::size_t bytes,
                                                  internal::StreamState* stream) {
  const internal::HotSlot& hot = internal::hot_slot;
  internal::ThreadCache& cache = *hot.cache;
  const std::uint32_t bin = internal::bin_of(bytes);
  std::uint32_t code = 0;
  bool is_noted = false;
  // The chain behind the one in use, or what another thread has handed over.
  if (cache.claim.enter()) {
    code = cache.small.take(bin, tiers_.directory().records());
    if (code == 0) code = take_small_quickly(cache, bin);
    cache.claim.leave();
    if (code != 0) is_noted = hot.record->counters.count_small(bin, bytes);
  } else if (cache.claim.is_shut()) {
    return allocate_plain_cold(bytes, stream);
  }
  if (code == 0) {
    MutexLock lock(mu_);
    if (!cache.claim.is_shut()) code = take_small_shared(cache, bin);
    if (code != 0) is_noted = hot.record->counters.count_small(bin, bytes);
  }
  if (code == 0) return allocate_plain_cold(bytes, stream);
  void* const block =
      make_small_live(hot, cache, tiers_.directory().records(), code, bin, bytes, hot.tag);
  if (is_noted) return allocate_noted(block, bytes);
  return block;
}

std::uint32_t Pool::Impl::take_small_shared(internal::ThreadCache& cache, std::uint32_t bin) {
  if (const std::uint32_t code = take_handed_over_small(cache, bin); code != 0) return code;
  const BlockRef block = tiers_.take_bin(bin, cache.stream, Reach::before_end);
  if (!block.exists()) return 0;
  const Tier tier = internal::is_slot_bin(bin) ? Tier::size_class : Tier::buddy;
  internal::hot_slot.record->counters.shared_hits[static_cast<std::size_t>(tier)].add(1);
  refill(cache, bin);
  return block.code();
}

}  // namespace gpupool
