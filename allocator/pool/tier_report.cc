// What the shared tiers say of themselves: where a byte lies, sizes, statistics, invariants.
#include <array>
#include <bit>

#include "base/check.h"
#include "pool/shared_tiers.h"

namespace gpupool::internal {

Tier SharedTiers::tier_of(BlockRef block) const noexcept {
  if (block.is_run()) return Tier::run;
  return is_slot_bin(record(block).load().bin()) ? Tier::size_class : Tier::buddy;
}

std::uint64_t SharedTiers::unit_of(BlockRef block) const noexcept {
  if (block.is_run()) return runs_[block.run].start;
  return chunks_[block.chunk].start + block.granule / kGranulesPerUnit;
}

SharedTiers::Found SharedTiers::find(std::uint64_t unit, std::uint64_t byte_in_unit) const {
  const BlockRef exact = directory_.find(unit, byte_in_unit);
  if (!exact.exists()) return {};
  if (record(exact).load().use() != BlockUse::none) {
    return {exact, byte_in_unit % kGranuleBytes == 0};
  }
  if (exact.is_run()) return {};
  // Inside a block, perhaps: one that starts before and reaches to here.
  for (std::uint32_t granule = exact.granule + 1; granule-- > 0;) {
    const BlockRef block{0, exact.chunk, granule};
    if (record(block).load().use() == BlockUse::none) continue;
    const bool covers = granule + bytes_of(block) / kGranuleBytes > exact.granule;
    return covers ? Found{block, false} : Found{};
  }
  return {};
}

SharedTiers::Found SharedTiers::find_slowly(std::uint64_t unit, std::uint64_t byte_in_unit) const {
  for (RunId id = 1; id < runs_.id_end(); ++id) {
    const Run& run = runs_[id];
    if (run.kind == RunKind::block && unit >= run.start && unit < run.end()) {
      return {{id, 0, 0}, unit == run.start && byte_in_unit == 0};
    }
  }
  return find(unit, byte_in_unit);
}

std::uint64_t SharedTiers::metadata_bytes() const noexcept {
  return runs_.metadata_bytes() +
         chunk_end_ * (sizeof(Chunk) + 2 * sizeof(Slab) + kGranulesPerChunk * sizeof(BlockRecord)) +
         lists_.size() * sizeof(StreamLists);
}

void SharedTiers::add_to(StatsV1& stats) const {
  runs_.add_to(stats);
  for (std::size_t i = 0; i < stats.watched_count; ++i) {
    stats.watched[i].unusable_free_bytes +=
        chunk_free_bytes_ - chunk_pending_bytes_ - usable_chunk_bytes(stats.watched[i].bytes);
  }
  stats.chunks = chunk_count_;
  stats.slabs = slab_count_;
  for (std::uint32_t room = 1; room < chunks_by_room_.size(); ++room) {
    stats.free_buddies_by_log2[log2_floor(room * kUnitBytes)] += chunks_by_room_[room];
  }
}

std::uint64_t SharedTiers::usable_chunk_bytes(std::uint64_t bytes) const noexcept {
  if (bytes == 0 || bytes > kChunkBytes) return 0;
  std::uint64_t room = divide_up(bytes, kUnitBytes);
  std::uint64_t usable = 0;
  if (bytes <= kMaxSlotBytes) {
    const SizeClass size_class = size_class_of(bytes);
    room = kSizeClasses[size_class].slab_units;
    usable = ready_slot_bytes_[size_class];
  }
  for (; room < ready_by_room_.size(); ++room) usable += ready_by_room_[room] * room * kUnitBytes;
  return usable;
}

void SharedTiers::check_invariants() const {
  runs_.check_invariants();
  std::uint64_t chunks = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t pending_bytes = 0;
  std::uint64_t slabs = 0;
  std::uint64_t tails = 0;
  auto ready_by_room = std::array<std::uint64_t, kUnitsPerChunk + 1>();
  auto ready_slot_bytes = std::array<std::uint64_t, kSizeClassCount>();
  for (ChunkId id = 1; id < chunk_end_; ++id) {
    const Chunk& chunk = chunks_[id];
    if (chunk.run == 0) continue;
    check_chunk(id);
    ++chunks;
    free_bytes += chunk.free_bytes;
    if (chunk.is_pending) pending_bytes += chunk.free_bytes;
    if (!chunk.is_pending && chunk.listed_room != 0) ++ready_by_room[chunk.listed_room];
    for (SlabId slab = id * 2; slab < id * 2 + 2; ++slab) {
      if (!slabs_[slab].is_active()) continue;
      ++slabs;
      tails += slabs_[slab].tail_bytes();
      if (chunk.is_pending) continue;
      ready_slot_bytes[slabs_[slab].size_class()] += slabs_[slab].free_bytes();
    }
  }
  GPUPOOL_CHECK(chunks == chunk_count_ && slabs == slab_count_ && tails == slab_tail_bytes_);
  GPUPOOL_CHECK(free_bytes == chunk_free_bytes_ && pending_bytes == chunk_pending_bytes_);
  GPUPOOL_CHECK(ready_by_room == ready_by_room_ && ready_slot_bytes == ready_slot_bytes_);
}

void SharedTiers::check_chunk(ChunkId id) const {
  const Chunk& chunk = chunks_[id];
  const Run& run = runs_[chunk.run];
  GPUPOOL_CHECK(run.kind == RunKind::chunk && run.chunk == id && run.start == chunk.start);
  GPUPOOL_CHECK(run.units == kUnitsPerChunk && !chunk.is_empty());
  GPUPOOL_CHECK((chunk.free & chunk.foreign) == 0);
  GPUPOOL_CHECK(chunk.listed_room == largest_buddy(chunk.free));
  GPUPOOL_CHECK(chunk.is_pending == !chunk.tickets.empty());
  UnitMask used = chunk.free | chunk.foreign;
  std::uint64_t bytes = static_cast<std::uint64_t>(std::popcount(used)) * kUnitBytes;
  for (SlabId slab_id = id * 2; slab_id < id * 2 + 2; ++slab_id) {
    const Slab& slab = slabs_[slab_id];
    if (!slab.is_active()) continue;
    slab.check_invariants();
    const UnitMask units = unit_mask(slab.first_unit(), slab.info().slab_units);
    GPUPOOL_CHECK((used & units) == 0 && slab.taken() > 0);
    GPUPOOL_CHECK(slab.is_listed == slab.has_free());
    GPUPOOL_CHECK(slab_at(id, slab.first_unit()) == slab_id);
    GPUPOOL_CHECK(slab_at(id, slab.first_unit() + slab.info().slab_units - 1) == slab_id);
    used |= units;
    bytes += slab.free_bytes();
  }
  for (std::uint32_t unit = 0; unit < kUnitsPerChunk; ++unit) {
    if (chunk.block_units[unit] == 0) continue;
    GPUPOOL_CHECK(slab_at(id, unit) == 0);
    const UnitMask units = unit_mask(unit, chunk.block_units[unit]);
    GPUPOOL_CHECK((used & units) == 0);
    used |= units;
  }
  GPUPOOL_CHECK(used == ~UnitMask{0} && bytes == chunk.free_bytes);
  for (std::uint32_t unit = 0; unit < kUnitsPerChunk; ++unit) {
    const BlockRef block = directory_.find(chunk.start + unit, 0);
    GPUPOOL_CHECK(block.chunk == id && block.granule == unit * kGranulesPerUnit);
  }
}

}  // namespace gpupool::internal
