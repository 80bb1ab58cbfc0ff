// The path of a hit: a block that the calling thread's cache holds is handed out, and one that goes
// back goes there. No lock, no driver, nothing from the heap; a clock once in kSampleEvery.
//
// Note [Budget of a hit]
// About twenty instructions each for finding the cache, for the bin's list and for the books, and
// one locked instruction, on the free, which decides between two frees that race. All of it is
// inlined into the public functions, and what is rarer leaves by a tail call, so that no register
// has to be saved for it.
#include "pool/hand_out.h"

namespace gpupool {

using internal::BlockDirectory;
using internal::BlockWord;
using internal::HotSlot;
using internal::kBinBytes;
using internal::kUnitBytes;

// Taking.

template <bool kWithFullChain>
GPUPOOL_INLINE Pool::Impl::Outcome Pool::Impl::take_small(const HotSlot& hot, std::size_t bytes,
                                                          Tag tag, void*& out) {
  const std::uint32_t bin = internal::bin_of(bytes);
  internal::ThreadCache& cache = *hot.cache;
  internal::BlockRecord* const records = tiers_.directory().records();
  if (!cache.claim.enter()) [[unlikely]] {
    return Outcome::refused;
  }
  const std::uint32_t code =
      kWithFullChain ? cache.small.take(bin, records) : cache.small.take_quickly(bin, records);
  cache.claim.leave();
  if (code == 0) [[unlikely]]
    return Outcome::refused;

  out = make_small_live(hot, cache, records, code, bin, bytes, tag);
  return hot.record->counters.count_small(bin, bytes) ? Outcome::noted : Outcome::done;
}

GPUPOOL_INLINE Pool::Impl::Outcome Pool::Impl::take_run_at_hand(const HotSlot& hot,
                                                                std::size_t bytes, Tag tag,
                                                                void*& out) {
  internal::ThreadCache& cache = *hot.cache;
  // What overflows here wraps to no units at all, a size that no slot has.
  const std::uint64_t units = (bytes + kUnitBytes - 1) / kUnitBytes;
  internal::Run* const blocks = tiers_.directory().runs();
  if (!cache.claim.enter()) [[unlikely]] {
    return Outcome::refused;
  }
  const internal::RunId id = cache.runs.take(units, blocks);
  cache.claim.leave();
  if (id == 0) return Outcome::refused;

  out = make_run_live(hot, cache, id, bytes, tag);
  return hot.record->counters.count_run(bytes, units * kUnitBytes) ? Outcome::noted : Outcome::done;
}

Result<void*> Pool::allocate(std::size_t bytes, StreamRef stream) {
  Impl& impl = *impl_;
  const HotSlot& hot = internal::hot_slot;
  if (hot.pool != impl.serial_ || hot.stream != stream.state()) [[unlikely]] {
    return impl.allocate_plain_cold(bytes, stream.state());
  }
  // 0 wraps to a size that no bin has.
  if (bytes - 1 >= internal::kChunkBytes) return impl.allocate_large(bytes, stream.state());
  void* block;
  const auto outcome = impl.take_small<false>(hot, bytes, hot.tag, block);
  if (outcome == Impl::Outcome::done) [[likely]]
    return block;
  if (outcome == Impl::Outcome::noted) return impl.allocate_noted(block, bytes);
  return impl.miss_small(bytes, stream.state());
}

GPUPOOL_COLD Result<void*> Pool::Impl::allocate_large(std::size_t bytes,
                                                      internal::StreamState* stream) {
  void* block;
  const Outcome outcome =
      take_run_at_hand(internal::hot_slot, bytes, internal::hot_slot.tag, block);
  if (outcome == Outcome::done) [[likely]]
    return block;
  if (outcome == Outcome::noted) return allocate_noted(block, bytes);
  return miss_run(bytes, stream);
}

GPUPOOL_COLD Result<void*> Pool::Impl::allocate_plain_cold(std::size_t bytes,
                                                           internal::StreamState* stream) {
  AllocationRequest request;
  request.bytes = bytes;
  const HotSlot& hot = internal::hot_slot;
  return allocate_cold(request, stream, hot.pool == serial_ && hot.stream == stream);
}

GPUPOOL_COLD Result<void*> Pool::Impl::allocate_noted(void* block, std::size_t bytes) {
  note_allocation(bytes);
  return block;
}

void Pool::Impl::note_allocation(std::size_t bytes) {
  internal::HotSlot& hot = internal::hot_slot;
  if (hot.record->counters.is_timing_due(bytes)) {
    // The next allocation misses what is at hand, and so is timed.
    hot.pool = 0;
    hot.is_timing_due = true;
  }
  note_step(*hot.record);
}

void* Pool::Impl::take_thoroughly(std::size_t bytes, Tag tag, bool is_timed) {
  const HotSlot& hot = internal::hot_slot;
  const std::uint64_t start = is_timed ? steady_clock().now_ns() : 0;
  void* block = nullptr;
  const Outcome outcome = bytes > internal::kChunkBytes ? take_run_at_hand(hot, bytes, tag, block)
                                                        : take_small<true>(hot, bytes, tag, block);
  if (outcome == Outcome::refused) return nullptr;
  if (is_timed) hot.record->counters.count_hit_duration(steady_clock().now_ns() - start);
  if (outcome == Outcome::noted) note_allocation(bytes);
  return block;
}

// Giving back.

GPUPOOL_INLINE Pool::Impl::Outcome Pool::Impl::put_small_at_hand(const HotSlot& hot,
                                                                 std::uint64_t unit,
                                                                 std::uint32_t entry,
                                                                 std::uint64_t granule,
                                                                 std::size_t bytes) {
  const std::uint32_t code = BlockDirectory::code_of(entry, granule);
  internal::BlockRecord* const records = tiers_.directory().records();
  internal::BlockRecord& record = records[code];
  const BlockWord word = record.load();
  if (!word.is_plainly_live()) [[unlikely]]
    return Outcome::refused;
  const std::uint32_t bin = word.bin();
  if (bytes != kNoSize && bytes != record.low_bytes.get()) [[unlikely]]
    return Outcome::refused;
  // Before the block is taken, since a stream that has ended is refused.
  internal::ThreadCache& cache = *hot.cache;
  if (!cache.claim.enter()) [[unlikely]] {
    return Outcome::refused;
  }
  // Of two frees that race, one finds the block not as it was.
  if (!record.take(word, BlockWord::cached_in(bin, cache.stream_bits))) [[unlikely]] {
    cache.claim.leave();
    return Outcome::refused;
  }
  if (tiers_.directory().entry(unit) != entry) [[unlikely]] {
    // The address was given back before, and its record serves another place by now.
    record.store(word);
    cache.claim.leave();
    return Outcome::refused;
  }

  // Of the block that was taken: one that is freed twice may have been another a moment before.
  const std::uint64_t requested = record.low_bytes.get();
  record.tick.set(tick_.get());
  const bool is_put = cache.small.put(bin, code, records);
  if (!is_put) [[unlikely]]
    cache.has_left_over.set(true);
  cache.claim.leave();
  internal::ThreadCounters& counters = hot.record->counters;
  if (!word.is_untagged()) [[unlikely]]
    counters.count_tagged_free(word.tag(), requested);
  const bool is_noted = counters.count_small_free(bin, requested);
  if (!is_put) [[unlikely]]
    return Outcome::left_over;
  return is_noted ? Outcome::noted : Outcome::done;
}

GPUPOOL_INLINE Pool::Impl::Outcome Pool::Impl::put_run_at_hand(const HotSlot& hot,
                                                               std::uint64_t unit,
                                                               internal::RunId id,
                                                               std::size_t bytes) {
  internal::Run* const runs = tiers_.directory().runs();
  internal::Run& run = runs[id];
  const BlockWord word = run.record.load();
  if (!word.is_plainly_live() || run.start != unit) [[unlikely]]
    return Outcome::refused;
  if (bytes != kNoSize && bytes != run.record.requested(run.units * kUnitBytes)) [[unlikely]]
    return Outcome::refused;
  internal::ThreadCache& cache = *hot.cache;
  if (!cache.claim.enter()) [[unlikely]]
    return Outcome::refused;
  if (!run.record.take(word, BlockWord::cached_in(BlockWord::kNoBin, cache.stream_bits)))
      [[unlikely]] {
    cache.claim.leave();
    return Outcome::refused;
  }
  if (run.start != unit) [[unlikely]] {
    run.record.store(word);
    cache.claim.leave();
    return Outcome::refused;
  }

  // Of the block that was taken, as above.
  const std::uint32_t units = run.units;
  const std::uint64_t requested = run.record.requested(units * kUnitBytes);
  run.record.tick.set(tick_.get());
  // A small block that was served as a run is looked for by nobody here; it leaves by age.
  const bool is_put = cache.runs.put(id, units, runs);
  if (!is_put) [[unlikely]]
    cache.has_left_over.set(true);
  cache.claim.leave();
  internal::ThreadCounters& counters = hot.record->counters;
  if (!word.is_untagged()) [[unlikely]]
    counters.count_tagged_free(word.tag(), requested);
  const bool is_noted = counters.count_run_free(requested, units * kUnitBytes);
  if (!is_put) [[unlikely]]
    return Outcome::left_over;
  return is_noted ? Outcome::noted : Outcome::done;
}

GPUPOOL_INLINE bool Pool::Impl::deallocate(void* pointer, std::size_t bytes,
                                           internal::StreamState* stream) {
  const HotSlot& hot = internal::hot_slot;
  if (hot.pool != serial_ || hot.stream != stream) [[unlikely]] {
    return deallocate_cold(pointer, bytes, stream);
  }
  const auto address = reinterpret_cast<DeviceAddress>(pointer);
  const std::uint64_t granule = granule_in_range(address);
  if (granule >= range_granules_) [[unlikely]]
    return deallocate_cold(pointer, bytes, stream);
  const std::uint64_t unit = granule / internal::kGranulesPerUnit;
  const std::uint32_t entry = tiers_.directory().entry(unit);
  if (!BlockDirectory::is_in_chunk(entry)) {
    // Two forms, since the size that is not given need not be carried along.
    return bytes == kNoSize ? deallocate_large(pointer, stream, granule)
                            : deallocate_large_sized(pointer, bytes, stream, granule);
  }
  const Outcome outcome = put_small_at_hand(hot, unit, entry, granule, bytes);
  if (outcome == Outcome::done) [[likely]]
    return true;
  return finish_free(outcome, pointer, bytes, stream);
}

GPUPOOL_COLD bool Pool::Impl::deallocate_large(void* pointer, internal::StreamState* stream,
                                               std::uint64_t granule) {
  const std::uint64_t unit = granule / internal::kGranulesPerUnit;
  // Read again: a block that is freed twice may have become part of a chunk meanwhile. The record
  // of no run, 0, is never live.
  const internal::RunId id = tiers_.directory().entry(unit);
  if (!BlockDirectory::is_run(id) || granule % internal::kGranulesPerUnit != 0) [[unlikely]] {
    return deallocate_cold(pointer, kNoSize, stream);
  }
  const Outcome outcome = put_run_at_hand(internal::hot_slot, unit, id, kNoSize);
  if (outcome == Outcome::done) [[likely]]
    return true;
  if (outcome == Outcome::left_over) return finish_run_free(id);
  return finish_free(outcome, pointer, kNoSize, stream);
}

GPUPOOL_COLD bool Pool::Impl::deallocate_large_sized(void* pointer, std::size_t bytes,
                                                     internal::StreamState* stream,
                                                     std::uint64_t granule) {
  const std::uint64_t unit = granule / internal::kGranulesPerUnit;
  // Read again: a block that is freed twice may have become part of a chunk meanwhile. The record
  // of no run, 0, is never live.
  const internal::RunId id = tiers_.directory().entry(unit);
  if (!BlockDirectory::is_run(id) || granule % internal::kGranulesPerUnit != 0) [[unlikely]] {
    return deallocate_cold(pointer, bytes, stream);
  }
  const Outcome outcome = put_run_at_hand(internal::hot_slot, unit, id, bytes);
  if (outcome == Outcome::done) [[likely]]
    return true;
  if (outcome == Outcome::left_over) return finish_run_free(id);
  return finish_free(outcome, pointer, bytes, stream);
}

GPUPOOL_COLD bool Pool::Impl::finish_free(Outcome outcome, void* pointer, std::size_t bytes,
                                          internal::StreamState* stream) {
  switch (outcome) {
    case Outcome::refused: return deallocate_cold(pointer, bytes, stream);
    case Outcome::left_over: put_left_over(reinterpret_cast<DeviceAddress>(pointer)); break;
    case Outcome::noted:
    case Outcome::done: break;
  }
  // A block that was left over may have made a step, too; looking once too often is no harm.
  note_step(*internal::hot_slot.record);
  return true;
}

bool Pool::Impl::put_thoroughly(void* pointer, std::size_t bytes) {
  const HotSlot& hot = internal::hot_slot;
  const auto address = reinterpret_cast<DeviceAddress>(pointer);
  const std::uint64_t unit = addresses_->unit_at(address);
  if (unit == internal::kNoUnit || address % internal::kGranuleBytes != 0) return false;
  const std::uint32_t entry = tiers_.directory().entry(unit);
  const std::uint64_t granule = address / internal::kGranuleBytes;
  Outcome outcome = Outcome::refused;
  if (BlockDirectory::is_in_chunk(entry)) {
    outcome = put_small_at_hand(hot, unit, entry, granule, bytes);
  } else if (const internal::RunId id = BlockDirectory::run_of(entry);
             id != 0 && address % kUnitBytes == 0) {
    outcome = put_run_at_hand(hot, unit, id, bytes);
    if (outcome == Outcome::left_over) return finish_run_free(id);
  }
  return outcome == Outcome::done ||
         (outcome != Outcome::refused && finish_free(outcome, pointer, bytes, nullptr));
}

bool Pool::deallocate(void* pointer, StreamRef stream) {
  return impl_->deallocate(pointer, kNoSize, stream.state());
}

bool Pool::deallocate(void* pointer, std::size_t bytes, StreamRef stream) {
  return impl_->deallocate(pointer, bytes, stream.state());
}

}  // namespace gpupool
