// The end of serving and the beginning of taking back, for the cache at hand: what the path of a
// hit (hit.cc) and that of its usual miss (miss.cc) have in common, inlined into both.
#ifndef GPUPOOL_POOL_HAND_OUT_H_
#define GPUPOOL_POOL_HAND_OUT_H_

#include "pool/pool_impl.h"

#define GPUPOOL_INLINE [[gnu::always_inline]] inline
#define GPUPOOL_COLD [[gnu::noinline]]

namespace gpupool {

GPUPOOL_INLINE internal::BlockWord Pool::Impl::tagged(internal::BlockWord word, Tag tag,
                                                      std::size_t bytes,
                                                      internal::ThreadRecord& record) const {
  if (tag == kUntagged) [[likely]]
    return word;
  const std::uint32_t code = code_of(tag);
  if (code != internal::BlockWord::kUntaggedCode) record.counters.count_tagged(code, bytes);
  return word.with_tag(code);
}

GPUPOOL_INLINE void* Pool::Impl::make_small_live(const internal::HotSlot& hot,
                                                 const internal::ThreadCache& cache,
                                                 internal::BlockRecord* records, std::uint32_t code,
                                                 std::uint32_t bin, std::size_t bytes, Tag tag) {
  internal::BlockRecord& record = records[code];
  record.set_requested(bytes);
  record.tick.set(tick_.get());
  // Last, so that a block is live only once its record is whole.
  record.store(
      tagged(internal::BlockWord::live_untagged(bin, cache.stream_bits), tag, bytes, *hot.record));
  return reinterpret_cast<void*>(tiers_.directory().address_of_code(code));
}

GPUPOOL_INLINE void* Pool::Impl::make_run_live(const internal::HotSlot& hot,
                                               const internal::ThreadCache& cache,
                                               internal::RunId id, std::size_t bytes, Tag tag) {
  internal::Run& block = tiers_.directory().runs()[id];
  block.record.set_requested(bytes);
  block.record.tick.set(tick_.get());
  block.record.store(
      tagged(internal::BlockWord::live_untagged(internal::BlockWord::kNoBin, cache.stream_bits),
             tag, bytes, *hot.record));
  return reinterpret_cast<void*>(address_of_unit(block.start));
}

GPUPOOL_INLINE void Pool::Impl::set_run_limit(internal::ThreadCache& cache) {
  // What the device may have in caches is shared by the caches that hold any runs. One that holds
  // more than its new share keeps it until it is used, aged or claimed.
  if (!cache.may_hold_runs) add_run_cache(cache);
  cache.runs.set_limit(run_limit_of(cache));
}

}  // namespace gpupool

#endif  // GPUPOOL_POOL_HAND_OUT_H_
