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

GPUPOOL_INLINE Pool::Impl::Outcome Pool::Impl::hand_out_small(const internal::HotSlot& hot,
                                                              const internal::ThreadCache& cache,
                                                              internal::BlockRecord* records,
                                                              std::uint32_t code, std::uint32_t bin,
                                                              std::size_t bytes, Tag tag,
                                                              void*& out) {
  internal::BlockRecord& record = records[code];
  record.set_requested(bytes);
  record.tick.set(tick_.get());
  // Last, so that a block is live only once its record is whole.
  record.store(
      tagged(internal::BlockWord::live_untagged(bin, cache.stream_bits), tag, bytes, *hot.record));
  out = reinterpret_cast<void*>(tiers_.directory().address_of_code(code));
  return hot.record->counters.count_small(bin, bytes) ? Outcome::noted : Outcome::done;
}

GPUPOOL_INLINE Pool::Impl::Outcome Pool::Impl::hand_out_run(const internal::HotSlot& hot,
                                                            const internal::ThreadCache& cache,
                                                            internal::RunId id, std::uint64_t units,
                                                            std::size_t bytes, Tag tag,
                                                            void*& out) {
  internal::Run& block = tiers_.directory().runs()[id];
  block.record.set_requested(bytes);
  block.record.tick.set(tick_.get());
  block.record.store(
      tagged(internal::BlockWord::live_untagged(internal::BlockWord::kNoBin, cache.stream_bits),
             tag, bytes, *hot.record));
  out = reinterpret_cast<void*>(address_of_unit(block.start));
  return hot.record->counters.count_run(bytes, units * internal::kUnitBytes) ? Outcome::noted
                                                                             : Outcome::done;
}

}  // namespace gpupool

#endif  // GPUPOOL_POOL_HAND_OUT_H_
