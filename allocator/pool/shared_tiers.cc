#include "pool/shared_tiers.h"

#include <bit>

#include "base/check.h"

namespace gpupool::internal {

bool SharedTiers::reserve(const AddressMap& addresses, std::uint64_t unit_capacity,
                          std::uint64_t max_backed_units, const Arena& arena) {
  addresses_ = &addresses;
  const std::uint64_t chunks = max_backed_units / kUnitsPerChunk + 2;
  return runs_.reserve(unit_capacity, max_backed_units, &arena) && chunks_.reserve(chunks) &&
         slabs_.reserve(chunks * 2) && directory_.reserve(runs_, chunks);
}

void SharedTiers::know_stream(StreamIndex stream) {
  runs_.know_stream(stream);
  while (lists_.size() <= stream) lists_.push_back(std::make_unique<StreamLists>());
}

// Taking.

BlockRef SharedTiers::take_slot(SizeClass size_class, StreamIndex stream, Reach reach) {
  SlabId id = 0;
  auto& by_fullness = lists_[stream]->slabs[size_class];
  for (std::size_t i = by_fullness.size(); i-- > 0 && id == 0;) id = by_fullness[i];
  if (id == 0) id = make_slab(size_class, stream, reach);
  if (id == 0) return {};
  Slab& slab = slabs_[id];
  const std::uint32_t slot = slab.take();
  change_free_bytes(chunks_[id / 2], 0 - std::uint64_t{slab.info().slot_bytes});
  change_slot_bytes(chunks_[id / 2], size_class, 0 - std::uint64_t{slab.info().slot_bytes});
  relist_slab(id);
  return hand_out(
      {0, id / 2, slab.first_unit() * kGranulesPerUnit + slot * slab.info().slot_granules},
      slot_bin(size_class), stream);
}

BlockRef SharedTiers::take_buddy(std::uint32_t units, StreamIndex stream, Reach reach) {
  const ChunkId id = chunk_with_room(units, stream, reach);
  if (id == 0) return {};
  Chunk& chunk = chunks_[id];
  const std::uint32_t unit = find_buddy(chunk.free, units);
  chunk.free &= ~unit_mask(unit, units);
  chunk.block_units[unit] = static_cast<std::uint8_t>(units);
  change_free_bytes(chunk, 0 - units * kUnitBytes);
  relist_chunk(id);
  return hand_out({0, id, unit * kGranulesPerUnit}, buddy_bin(units), stream);
}

BlockRef SharedTiers::hand_out(BlockRef block, std::uint32_t bin, StreamIndex stream) {
  record(block).store(BlockWord::cached(bin, stream));
  out_bytes_ += directory_.bytes_of(block);
  return block;
}

bool SharedTiers::has_open_slab(SizeClass size_class, StreamIndex stream) const {
  if (stream >= lists_.size()) return false;
  for (const SlabId id : lists_[stream]->slabs[size_class]) {
    if (id != 0) return true;
  }
  return false;
}

bool SharedTiers::has_slot(SizeClass size_class, StreamIndex stream) const {
  if (has_open_slab(size_class, stream)) return true;
  return has_buddy(kSizeClasses[size_class].slab_units, stream);
}

bool SharedTiers::has_buddy(std::uint32_t units, StreamIndex stream) const {
  if (stream < lists_.size() && lists_[stream]->rooms >> units != 0) return true;
  return runs_.can_take(kUnitsPerChunk, kWithinPage, stream, Reach::everywhere);
}

// Putting back.

void SharedTiers::put(BlockRef block, const TicketSet& tickets) {
  if (block.is_run()) return put_run(block.run, tickets);
  out_bytes_ -= directory_.bytes_of(block);
  record(block).clear();
  put_in_chunk(block, tickets);
}

void SharedTiers::put_in_chunk(BlockRef block, const TicketSet& tickets) {
  Chunk& chunk = chunks_[block.chunk];
  const bool foreign = is_foreign(tickets, chunk.owner);
  chunk.tickets.add(tickets, streams_);
  chunk.tickets.forget_shared(streams_);
  set_pending(block.chunk, !chunk.tickets.empty());

  const std::uint32_t unit = block.granule / kGranulesPerUnit;
  if (const SlabId id = slab_at(block.chunk, unit); id != 0) {
    Slab& slab = slabs_[id];
    const SizeClassInfo& info = slab.info();
    slab.put(info.slot_at(block.granule - slab.first_unit() * kGranulesPerUnit), foreign);
    change_free_bytes(chunk, info.slot_bytes);
    change_slot_bytes(chunk, slab.size_class(), info.slot_bytes);
    // As long as the slab stays, the chunk's units are what they were.
    if (slab.taken() != 0) return relist_slab(id);
    end_slab(id);
  } else {
    const std::uint32_t units = chunk.block_units[unit];
    chunk.block_units[unit] = 0;
    (foreign ? chunk.foreign : chunk.free) |= unit_mask(unit, units);
    change_free_bytes(chunk, units * kUnitBytes);
  }
  if (chunk.is_empty()) {
    end_chunk(block.chunk);
  } else {
    relist_chunk(block.chunk);
  }
}

bool SharedTiers::is_of_others(const TicketSet& tickets, StreamIndex owner) const {
  if (tickets.has_fence()) return true;
  for (std::size_t i = 0; i < tickets.count(); ++i) {
    if (tickets[i].stream != owner && !streams_.is_complete(tickets[i])) return true;
  }
  return false;
}

void SharedTiers::refresh() {
  runs_.refresh();
  for (ChunkId id = pending_; id != 0;) {
    Chunk& chunk = chunks_[id];
    const ChunkId next = chunk.pending_next;
    chunk.tickets.forget_shared(streams_);
    const StreamIndex holder =
        streams_.keeps_apart() ? unfinished_holder(chunk) : chunk.tickets.holder();
    if (holder == kAnybody || holder == chunk.owner) free_foreign(id);
    if (chunk.tickets.empty()) set_pending(id, false);
    id = next;
  }
}

StreamIndex SharedTiers::unfinished_holder(const Chunk& chunk) const {
  TicketSet unfinished = chunk.tickets;
  unfinished.prune(streams_);
  return unfinished.holder();
}

void SharedTiers::note_order(StreamIndex stream) {
  for (ChunkId id = pending_; id != 0; id = chunks_[id].pending_next) {
    const Chunk& chunk = chunks_[id];
    if (chunk.owner != stream || chunk.tickets.has_fence()) continue;
    bool is_after_all = true;
    for (std::size_t i = 0; i < chunk.tickets.count(); ++i) {
      is_after_all = is_after_all && streams_.is_after(stream, chunk.tickets[i]);
    }
    if (is_after_all) free_foreign(id);
  }
}

void SharedTiers::free_foreign(ChunkId id) {
  Chunk& chunk = chunks_[id];
  chunk.free |= chunk.foreign;
  chunk.foreign = 0;
  relist_chunk(id);
  for (SlabId slab = id * 2; slab < id * 2 + 2; ++slab) {
    if (!slabs_[slab].is_active() || !slabs_[slab].has_foreign()) continue;
    slabs_[slab].free_foreign();
    relist_slab(slab);
  }
}

// Chunks.

ChunkId SharedTiers::chunk_with_room(std::uint32_t units, StreamIndex stream, Reach reach) {
  const StreamLists& lists = *lists_[stream];
  // The smallest room that is enough: chunks that are nearly full are filled first.
  const std::uint64_t enough = lists.rooms >> units << units;
  if (enough != 0) return lists.chunks[static_cast<std::size_t>(std::countr_zero(enough))];
  return make_chunk(stream, reach);
}

ChunkId SharedTiers::make_chunk(StreamIndex stream, Reach reach) {
  const RunId run = runs_.take(kUnitsPerChunk, kWithinPage, stream, reach, RunKind::chunk);
  return run == 0 ? 0 : begin_chunk(run, stream);
}

ChunkId SharedTiers::begin_chunk(RunId run, StreamIndex stream) {
  ChunkId id = unused_;
  if (id != 0) {
    unused_ = chunks_[id].next;
  } else {
    id = chunk_end_++;
    GPUPOOL_CHECK(id < chunks_.size());
  }
  Chunk& chunk = chunks_[id];
  chunk.run = run;
  chunk.owner = stream;
  chunk.free = ~UnitMask{0};
  chunk.foreign = 0;
  chunk.start = runs_[run].start;
  chunk.free_bytes = 0;
  chunk.tickets = runs_[run].tickets;
  chunk.tickets.forget_shared(streams_);
  chunk.slab_class = {};
  chunk.block_units = {};
  chunk.previous = chunk.next = 0;
  directory_.add_chunk(id, chunk.start, addresses_->address_of(chunk.start));
  runs_[run].chunk = id;
  ++chunk_count_;
  ++lists_[stream]->chunk_count;
  change_free_bytes(chunk, kChunkBytes);
  set_pending(id, !chunk.tickets.empty());
  relist_chunk(id);
  return id;
}

void SharedTiers::keep_for_owner(Chunk& chunk) {
  // Whoever freed parts of it: once that is complete all of it is the owner's, whose ticket so is
  // the first. Of an owner that was released it is everybody's.
  if (!streams_.is_there(chunk.owner)) return;
  TicketSet tickets(streams_.ticket(chunk.owner));
  tickets.add(chunk.tickets, streams_);
  chunk.tickets = tickets;
}

void SharedTiers::end_chunk(ChunkId id) {
  Chunk& chunk = chunks_[id];
  set_pending(id, false);
  unlist_chunk(id);
  change_free_bytes(chunk, 0 - kChunkBytes);
  directory_.remove_chunk(chunk.start);
  if (streams_.keeps_apart()) keep_for_owner(chunk);
  runs_.put(chunk.run, chunk.tickets);
  chunk.run = 0;
  chunk.next = unused_;
  unused_ = id;
  --chunk_count_;
  --lists_[chunk.owner]->chunk_count;
}

// Slabs.

SlabId SharedTiers::make_slab(SizeClass size_class, StreamIndex stream, Reach reach) {
  const std::uint32_t units = kSizeClasses[size_class].slab_units;
  const ChunkId id = chunk_with_room(units, stream, reach);
  if (id == 0) return 0;
  Chunk& chunk = chunks_[id];
  const std::uint32_t unit = find_buddy(chunk.free, units);
  chunk.free &= ~unit_mask(unit, units);
  const SlabId slab = id * 2 + (unit == 0 ? 0 : 1);
  slabs_[slab].start(size_class, unit);
  for (std::uint32_t half = unit / kUnitsPerHalf; half * kUnitsPerHalf < unit + units; ++half) {
    chunk.slab_class[half] = static_cast<std::uint8_t>(size_class + 1);
  }
  ++slab_count_;
  const std::uint64_t tail = slabs_[slab].tail_bytes();
  slab_tail_bytes_ += tail;
  change_free_bytes(chunk, 0 - tail);
  change_slot_bytes(chunk, size_class, slabs_[slab].free_bytes());
  relist_chunk(id);
  relist_slab(slab);
  return slab;
}

void SharedTiers::end_slab(SlabId id) {
  Slab& slab = slabs_[id];
  Chunk& chunk = chunks_[id / 2];
  const UnitMask units = unit_mask(slab.first_unit(), slab.info().slab_units);
  (slab.has_foreign() ? chunk.foreign : chunk.free) |= units;
  unlist_slab(id);
  slab_tail_bytes_ -= slab.tail_bytes();
  change_free_bytes(chunk, slab.tail_bytes());
  change_slot_bytes(chunk, slab.size_class(), 0 - slab.free_bytes());
  const std::uint32_t end = slab.first_unit() + slab.info().slab_units;
  for (std::uint32_t half = id % 2; half * kUnitsPerHalf < end; ++half) chunk.slab_class[half] = 0;
  slab.end();
  --slab_count_;
}

}  // namespace gpupool::internal
