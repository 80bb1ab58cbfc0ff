// Taking a block back, and telling what an address is when it is none of ours.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "pool/pool_impl.h"

namespace gpupool {

using internal::BlockUse;
using internal::MutexLock;
using internal::SmallCache;

bool Pool::Impl::deallocate(void* pointer, std::size_t bytes, internal::StreamState* stream) {
  if (pointer == nullptr) return true;
  std::optional<MisuseReport> misuse;
  if (!is_still_itself(stream)) stream = nullptr;
  std::optional<StreamIndex> due;
  {
    MutexLock lock(mu_);
    misuse = take_back(pointer, bytes, stream);
    if (!misuse.has_value() && stream->raw() == per_thread_stream() &&
        streams_.is_own_close_due(stream->index())) {
      due = stream->index();
    }
  }
  if (due.has_value()) close_own_epoch(*due);
  if (!misuse.has_value()) return true;
  report_misuse(*misuse);
  return misuse->kind == Misuse::wrong_size;
}

bool Pool::Impl::deallocate_raw(void* pointer, std::size_t bytes, RawStream raw) {
  if (pointer == nullptr) return true;
  return deallocate(pointer, bytes, find_or_adopt(raw, nullptr));
}

std::optional<MisuseReport> Pool::Impl::take_back(void* pointer, std::size_t bytes,
                                                  internal::StreamState* stream) {
  if (!streams_.is_known(stream)) {
    return count_misuse({.kind = Misuse::unknown_stream, .pointer = pointer});
  }
  const Target target = find_target(pointer);
  if (!target.exists() || !target.is_start) return count_misuse(explain(pointer));
  internal::BlockRecord& record =
      target.fallback != nullptr ? target.fallback->block : tiers_.record(target.block);
  // One exchange decides: of two frees that race, one finds the block not live.
  const BlockUse was = record.use.exchange(BlockUse::cached, std::memory_order_acq_rel);
  if (was != BlockUse::live) {
    record.use.store(was, std::memory_order_release);
    return count_misuse(explain(pointer));
  }

  const std::uint64_t block_bytes =
      target.fallback != nullptr ? target.fallback->bytes : tiers_.bytes_of(target.block);
  const std::uint64_t requested = record.requested;
  count_dead(record, block_bytes);
  const bool has_extra_uses = std::exchange(record.has_extra_uses, false);
  const StreamIndex index = stream->index();
  record.stream = index;
  record.tick = tick_;
  if (target.fallback != nullptr) {
    record.use.store(BlockUse::none, std::memory_order_release);
    fallbacks_.retire(*target.fallback, tickets_at_free(pointer, has_extra_uses, index));
  } else if (has_extra_uses) {
    tiers_.put(target.block, tickets_at_free(pointer, true, index));
  } else if (!put_cached(target.block, index)) {
    put_shared(target.block, index);
  }
  if (stream->raw() == per_thread_stream()) streams_.note_own_free(index);
  if (bytes == kNoSize || bytes == requested) return std::nullopt;
  return count_misuse({.kind = Misuse::wrong_size,
                       .pointer = pointer,
                       .block = pointer,
                       .block_bytes = requested,
                       .given = bytes});
}

void Pool::Impl::count_dead(const internal::BlockRecord& record, std::uint64_t block_bytes) {
  ++counted_.frees;
  --counted_.live_blocks;
  counted_.live_requested_bytes -= record.requested;
  waste_bytes_ -= block_bytes - record.requested;
  if (record.tag != kUntagged.index()) counted_.tag_live_bytes[record.tag] -= record.requested;
}

bool Pool::Impl::put_cached(BlockRef block, StreamIndex stream) {
  const std::uint64_t bytes = tiers_.bytes_of(block);
  if (!block.is_run()) {
    const std::uint32_t unit = block.granule / internal::kGranulesPerUnit;
    const internal::SlabId slab = tiers_.slab_at(block.chunk, unit);
    const std::size_t bin =
        slab != 0 ? SmallCache::slot_bin(tiers_.slab(slab).size_class())
                  : SmallCache::buddy_bin(tiers_.chunk(block.chunk).block_units[unit]);
    if (!small_caches_[stream]->put(bin, block.code(), bytes)) return false;
  } else {
    // A small block that was served as a run has no bin where it would be looked for.
    if (bytes <= internal::kChunkBytes) return false;
    const std::uint64_t limit = std::max(options_.cache_large_bytes, held_bytes() / 500);
    if (bytes > limit) return false;
    while (large_cache_.bytes() + bytes > limit) {
      const BlockRef oldest{large_cache_.take_oldest(), 0, 0};
      uncache(oldest);
      put_shared(oldest, tiers_.record(oldest).stream);
    }
    large_cache_.put(block.run);
  }
  cached_bytes_ += bytes;
  return true;
}

void Pool::Impl::uncache(BlockRef block) { cached_bytes_ -= tiers_.bytes_of(block); }

void Pool::Impl::put_shared(BlockRef block, StreamIndex stream) {
  TicketSet tickets;
  tickets.add(streams_.ticket(stream), streams_);
  tiers_.put(block, tickets);
}

Pool::Impl::TicketSet Pool::Impl::tickets_at_free(const void* pointer, bool has_extra_uses,
                                                  StreamIndex stream) {
  TicketSet tickets;
  tickets.add(streams_.ticket(stream), streams_);
  if (!has_extra_uses) return tickets;
  const auto uses = extra_uses_.find(pointer);
  for (const ExtraUse& use : uses->second) {
    tickets.add(use.at_free ? streams_.ticket(use.ticket.stream) : use.ticket, streams_);
  }
  extra_uses_.erase(uses);
  return tickets;
}

bool Pool::Impl::record_use(void* pointer, StreamRef stream, bool at_free) {
  std::optional<MisuseReport> misuse;
  const bool is_itself = is_still_itself(stream.state());
  StreamIndex index = internal::kAnybody;
  {
    MutexLock lock(mu_);
    const Target target = find_target(pointer);
    if (!is_itself || !streams_.is_known(stream.state())) {
      misuse = count_misuse({.kind = Misuse::unknown_stream, .pointer = pointer});
    } else if (!target.exists() || !target.is_start) {
      misuse = count_misuse(explain(pointer));
    } else {
      internal::BlockRecord& record =
          target.fallback != nullptr ? target.fallback->block : tiers_.record(target.block);
      if (record.use.load(std::memory_order_acquire) != BlockUse::live) {
        misuse = count_misuse(explain(pointer));
      } else {
        index = stream.state()->index();
        ExtraUse use{{index, 0}, at_free};
        if (!at_free) use.ticket = streams_.ticket(index);
        record.has_extra_uses = true;
        auto& uses = extra_uses_[pointer];
        // One entry a stream and kind: the later use covers the earlier.
        const auto known = std::find_if(uses.begin(), uses.end(), [&](const ExtraUse& other) {
          return other.at_free == at_free && other.ticket.stream == index;
        });
        if (known == uses.end()) {
          uses.push_back(use);
        } else {
          *known = use;
        }
      }
    }
  }
  if (misuse.has_value()) {
    report_misuse(*misuse);
    return false;
  }
  if (at_free) return true;
  // The event comes after all that the stream was given by now; what else it may come after only
  // makes the block wait longer.
  MutexLock events(events_mu_);
  close_epoch(index);
  return true;
}

Pool::Impl::Target Pool::Impl::find_target(const void* pointer) {
  const auto address = reinterpret_cast<DeviceAddress>(pointer);
  Target target;
  if (const auto unit = arena_->find_unit(address)) {
    const auto found = tiers_.find(*unit, address % internal::kUnitBytes);
    target.block = found.block;
    target.is_start = found.is_start;
  } else if (internal::Fallback* fallback = fallbacks_.find(address)) {
    target.fallback = fallback;
    target.is_start = fallback->address == address;
  }
  return target;
}

MisuseReport Pool::Impl::explain(const void* pointer) {
  const auto address = reinterpret_cast<DeviceAddress>(pointer);
  MisuseReport report;
  report.pointer = pointer;
  if (const internal::Fallback* fallback = fallbacks_.find(address)) {
    const bool is_live = fallback->block.use.load(std::memory_order_acquire) == BlockUse::live;
    report.kind = is_live ? Misuse::interior_pointer : Misuse::double_free;
    report.block = reinterpret_cast<const void*>(fallback->address);
    report.block_bytes = fallback->block.requested;
    return report;
  }
  const auto unit = arena_->find_unit(address);
  if (!unit.has_value()) {
    report.kind = Misuse::foreign_pointer;
    return report;
  }
  const auto found = tiers_.find_slowly(*unit, address % internal::kUnitBytes);
  if (!found.block.exists() ||
      tiers_.record(found.block).use.load(std::memory_order_acquire) != BlockUse::live) {
    // Memory of the pool that nobody holds: it was given back before.
    report.kind = Misuse::double_free;
    return report;
  }
  report.kind = Misuse::interior_pointer;
  report.block = reinterpret_cast<const void*>(arena_->address_of(tiers_.unit_of(found.block)) +
                                               tiers_.byte_in_unit(found.block));
  report.block_bytes = tiers_.record(found.block).requested;
  return report;
}

MisuseReport Pool::Impl::count_misuse(MisuseReport report) {
  std::uint64_t& count = counted_.misuses[static_cast<std::size_t>(report.kind)];
  report.first_of_kind = count == 0;
  ++count;
  emit({.kind = SlowPathEventKind::misuse, .bytes = report.block_bytes, .misuse = report.kind});
  return report;
}

void Pool::Impl::report_misuse(const MisuseReport& report) {
  if (options_.misuse_handler) options_.misuse_handler(report);
  // A wrong hint is ignored by contract, and a leak at the pool's end harms nobody any more;
  // everything else was refused and may end the program.
  const bool was_refused = report.kind != Misuse::wrong_size && report.kind != Misuse::leak;
  if (options_.on_misuse == OnMisuse::abort && was_refused) std::abort();
}

internal::StreamState* Pool::Impl::find_or_adopt(RawStream raw, CaptureState* capture) {
  const auto id = driver_.backend().stream_id(raw);
  if (!id.ok()) return nullptr;
  if (capture != nullptr) {
    const auto state = driver_.backend().capture_state(raw);
    if (state.ok()) *capture = state.value();
  }
  MutexLock lock(mu_);
  if (internal::StreamState* known = streams_.find(id.value())) return known;
  // Nothing is recorded for it: the handle is another stream's.
  if (internal::StreamState* former = streams_.disown(raw, id.value())) let_go(former);
  internal::StreamState* adopted = streams_.adopt(raw, id.value());
  if (adopted == nullptr) return nullptr;
  if (raw == per_thread_stream()) thread_exits_.watch(id.value());
  tiers_.know_stream(adopted->index());
  while (small_caches_.size() <= adopted->index()) {
    small_caches_.push_back(
        std::make_unique<SmallCache>(tiers_.chunks(), options_.cache_small_bytes));
  }
  return adopted;
}

}  // namespace gpupool
