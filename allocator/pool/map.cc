// The map: every block and free piece of a pool.

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "pool/pool_impl.h"

namespace gpupool {

using internal::BlockRef;
using internal::kUnitBytes;
using internal::kUnitsPerPage;
using internal::MutexLock;

namespace {

constexpr std::uint64_t kArenaEnd = ~std::uint64_t{0};
// About 30 us: runs, pages without memory, or chunks of up to 256 slots each.
constexpr int kStepsAPart = 512;
constexpr int kStepsAChunk = 63;

void show_stream(const internal::StreamTable& streams, internal::StreamIndex stream,
                 BlockInfo& info) {
  info.stream_id = streams.id_of(stream);
  info.stream_handle = streams.find_handle(stream);
}

}  // namespace

Tag Pool::Impl::tag_of(internal::BlockWord word) noexcept {
  return word.tag() == internal::BlockWord::kUntaggedCode
             ? kUntagged
             : Tag(static_cast<std::uint8_t>(word.tag()));
}

BlockInfo Pool::Impl::info_of(BlockRef block) const {
  const internal::BlockRecord& record = tiers_.record(block);
  const internal::BlockWord word = record.load();
  BlockInfo info;
  info.address = arena_->address_of(tiers_.unit_of(block)) + tiers_.byte_in_unit(block);
  info.bytes = tiers_.bytes_of(block);
  info.tier = tiers_.tier_of(block);
  show_stream(streams_, word.stream(), info);
  info.tick = record.tick.get() * internal::kTickNs;
  info.state = word.is_live() ? BlockState::live : BlockState::cached;
  if (word.is_live()) {
    info.tag = tag_of(word);
    info.requested_bytes = record.requested(info.bytes);
  }
  return info;
}

void Pool::Impl::visit_chunk(internal::ChunkId id, const BlockVisitor& visitor) const {
  const internal::Chunk& chunk = tiers_.chunk(id);
  BlockInfo gap;
  gap.state = chunk.is_pending ? BlockState::pending : BlockState::free;
  show_stream(streams_, chunk.owner, gap);
  const auto show_gap = [&](Tier tier, std::uint64_t byte, std::uint64_t bytes) {
    gap.tier = tier;
    gap.address = arena_->address_of(chunk.start) + byte;
    gap.bytes = bytes;
    visitor(gap);
  };
  for (std::uint32_t unit = 0; unit < internal::kUnitsPerChunk;) {
    if (const internal::SlabId slab_id = tiers_.slab_at(id, unit); slab_id != 0) {
      const internal::Slab& slab = tiers_.slab(slab_id);
      const std::uint64_t slot_bytes = slab.info().slot_bytes;
      for (std::uint32_t slot = 0; slot < slab.info().slot_count; ++slot) {
        const std::uint64_t byte = unit * kUnitBytes + slot * slot_bytes;
        if (slab.is_taken(slot)) {
          const auto granule = static_cast<std::uint32_t>(byte / internal::kGranuleBytes);
          visitor(info_of({0, id, granule}));
        } else {
          show_gap(Tier::size_class, byte, slot_bytes);
        }
      }
      unit += slab.info().slab_units;
    } else if (chunk.block_units[unit] != 0) {
      visitor(info_of({0, id, unit * internal::kGranulesPerUnit}));
      unit += chunk.block_units[unit];
    } else {
      const std::uint32_t first = unit;
      do {
        ++unit;
      } while (unit < internal::kUnitsPerChunk && tiers_.slab_at(id, unit) == 0 &&
               chunk.block_units[unit] == 0);
      show_gap(Tier::buddy, first * kUnitBytes, (unit - first) * kUnitBytes);
    }
  }
}

void Pool::Impl::visit_blocks(const BlockVisitor& visitor) const {
  MutexLock lock(mu_);
  visit_all(visitor);
}

void Pool::Impl::visit_blocks_in_parts(const BlockVisitor& visitor) const {
  std::vector<BlockInfo> part;
  const auto keep = [&part](const BlockInfo& info) { part.push_back(info); };
  const auto show = [&part, &visitor] {
    for (const BlockInfo& info : part) visitor(info);
    part.clear();
  };
  std::uint64_t unit = 0;
  do {
    {
      MutexLock lock(mu_);
      unit = visit_arena(unit, kStepsAPart, keep);
    }
    show();
  } while (unit != kArenaEnd);
  {
    MutexLock lock(mu_);
    visit_fallbacks(keep);
  }
  show();
}

void Pool::Impl::visit_all(const BlockVisitor& visitor) const {
  visit_arena(0, std::numeric_limits<int>::max(), visitor);
  visit_fallbacks(visitor);
}

/// Visits from `unit` on until `steps` are used up, or all of the arena; returns where to go on, or
/// kArenaEnd.
std::uint64_t Pool::Impl::visit_arena(std::uint64_t unit, int steps,
                                      const BlockVisitor& visitor) const {
  const internal::RunTable& runs = tiers_.runs();
  const std::uint64_t end = arena_->high_water() * kUnitsPerPage;
  for (; unit < end && steps > 0; --steps) {
    const internal::RunId id = arena_->is_backed(unit / kUnitsPerPage) ? tiers_.run_at(unit) : 0;
    if (id == 0 || runs[id].kind == internal::RunKind::unused || runs[id].start != unit) {
      // Without memory, stuck, or, between two parts, joined with what was already shown.
      const bool is_inside = id != 0 && runs[id].start < unit && unit < runs[id].end();
      unit = is_inside ? runs[id].end() : (unit / kUnitsPerPage + 1) * kUnitsPerPage;
      continue;
    }
    const internal::Run& run = runs[id];
    if (run.kind == internal::RunKind::block) {
      visitor(info_of({id, 0, 0}));
    } else if (run.kind == internal::RunKind::chunk) {
      visit_chunk(run.chunk, visitor);
      steps -= kStepsAChunk;
    } else if (run.kind == internal::RunKind::free) {
      BlockInfo info;
      info.address = arena_->address_of(unit);
      info.bytes = run.units * kUnitBytes;
      info.state = run.holder == internal::kAnybody ? BlockState::free : BlockState::pending;
      if (run.tickets.count() > 0) show_stream(streams_, run.tickets[0].stream, info);
      visitor(info);
    }
    unit = run.end();
  }
  return unit < end ? unit : kArenaEnd;
}

void Pool::Impl::visit_fallbacks(const BlockVisitor& visitor) const {
  for (const auto& [address, fallback] : fallbacks_.all()) {
    BlockInfo info;
    info.address = address;
    info.bytes = fallback.bytes;
    info.is_fallback = true;
    info.state = fallback.is_pending ? BlockState::pending : BlockState::live;
    if (!fallback.is_pending) {
      const internal::BlockWord word = fallback.block.load();
      info.requested_bytes = fallback.block.requested(fallback.bytes);
      info.tag = tag_of(word);
      show_stream(streams_, word.stream(), info);
    } else if (fallback.tickets.count() > 0) {
      show_stream(streams_, fallback.tickets[0].stream, info);
    }
    info.tick = fallback.block.tick.get() * internal::kTickNs;
    visitor(info);
  }
}

}  // namespace gpupool
