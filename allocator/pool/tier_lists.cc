// The lists of the shared tiers: of each stream, its slabs by class and fullness, and its chunks by
// their room; and all chunks with unfinished tickets.
#include "pool/shared_tiers.h"

namespace gpupool::internal {

void SharedTiers::relist_chunk(ChunkId id) {
  Chunk& chunk = chunks_[id];
  const auto room = static_cast<std::uint8_t>(largest_buddy(chunk.free));
  if (room == chunk.listed_room) return;
  unlist_chunk(id);
  if (room == 0) return;
  StreamLists& lists = *lists_[chunk.owner];
  ++chunks_by_room_[room];
  if (!chunk.is_pending) ++ready_by_room_[room];
  chunk.listed_room = room;
  chunk.previous = 0;
  chunk.next = lists.chunks[room];
  if (chunk.next != 0) chunks_[chunk.next].previous = id;
  lists.chunks[room] = id;
  lists.rooms |= std::uint64_t{1} << room;
}

void SharedTiers::unlist_chunk(ChunkId id) {
  Chunk& chunk = chunks_[id];
  if (chunk.listed_room == 0) return;
  StreamLists& lists = *lists_[chunk.owner];
  --chunks_by_room_[chunk.listed_room];
  if (!chunk.is_pending) --ready_by_room_[chunk.listed_room];
  if (chunk.previous != 0) {
    chunks_[chunk.previous].next = chunk.next;
  } else {
    lists.chunks[chunk.listed_room] = chunk.next;
    if (chunk.next == 0) lists.rooms &= ~(std::uint64_t{1} << chunk.listed_room);
  }
  if (chunk.next != 0) chunks_[chunk.next].previous = chunk.previous;
  chunk.listed_room = 0;
}

void SharedTiers::move_slab(SlabId id) {
  Slab& slab = slabs_[id];
  const auto fullness = static_cast<std::uint8_t>(slab.fullness());
  unlist_slab(id);
  if (!slab.has_free()) return;
  SlabId& head = lists_[chunks_[id / 2].owner]->slabs[slab.size_class()][fullness];
  slab.is_listed = true;
  slab.listed_fullness = fullness;
  slab.previous = 0;
  slab.next = head;
  if (head != 0) slabs_[head].previous = id;
  head = id;
}

void SharedTiers::unlist_slab(SlabId id) {
  Slab& slab = slabs_[id];
  if (!slab.is_listed) return;
  if (slab.previous != 0) {
    slabs_[slab.previous].next = slab.next;
  } else {
    lists_[chunks_[id / 2].owner]->slabs[slab.size_class()][slab.listed_fullness] = slab.next;
  }
  if (slab.next != 0) slabs_[slab.next].previous = slab.previous;
  slab.is_listed = false;
}

void SharedTiers::change_pending(ChunkId id, bool is_pending) {
  Chunk& chunk = chunks_[id];
  chunk.is_pending = is_pending;
  // Unsigned arithmetic wraps both ways.
  const std::uint64_t sign = is_pending ? ~std::uint64_t{0} : 1;
  if (chunk.listed_room != 0) ready_by_room_[chunk.listed_room] += sign;
  for (SlabId slab = id * 2; slab < id * 2 + 2; ++slab) {
    if (!slabs_[slab].is_active()) continue;
    ready_slot_bytes_[slabs_[slab].size_class()] += sign * slabs_[slab].free_bytes();
  }
  if (is_pending) {
    chunk_pending_bytes_ += chunk.free_bytes;
    chunk.pending_previous = 0;
    chunk.pending_next = pending_;
    if (pending_ != 0) chunks_[pending_].pending_previous = id;
    pending_ = id;
    return;
  }
  chunk_pending_bytes_ -= chunk.free_bytes;
  if (chunk.pending_previous != 0) {
    chunks_[chunk.pending_previous].pending_next = chunk.pending_next;
  } else {
    pending_ = chunk.pending_next;
  }
  if (chunk.pending_next != 0) {
    chunks_[chunk.pending_next].pending_previous = chunk.pending_previous;
  }
}

}  // namespace gpupool::internal
