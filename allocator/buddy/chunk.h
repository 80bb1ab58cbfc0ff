// Tier T2: a chunk of 128 KiB, owned by one stream until every piece of it is free and done.
//
// Its 32 units are slabs, buddy blocks (32-128 KiB), free, or foreign: freed by another stream, out
// of reach until that stream's work is complete. All that is freed in a chunk puts its ticket into
// the chunk's one TicketSet: finer would cost more than 128 KiB is worth.
//
//   units = slabs + blocks + free + foreign
//   free_bytes = 4 KiB * (free + foreign units) + free and foreign slots of its slabs
//
// Thread safety: under the pool's lock.
#ifndef GPUPOOL_BUDDY_CHUNK_H_
#define GPUPOOL_BUDDY_CHUNK_H_

#include <array>
#include <cstdint>

#include "base/units.h"
#include "buddy/buddy_mask.h"
#include "stream/ticket_set.h"

namespace gpupool::internal {

using ChunkId = std::uint32_t;  // 0: none

struct alignas(64) Chunk {
  std::uint32_t run = 0;  // 0: not in use
  StreamIndex owner = 0;
  UnitMask free = 0;
  UnitMask foreign = 0;
  std::uint64_t start = 0;  // first unit of its run
  std::uint64_t free_bytes = 0;
  bool is_pending = false;       // its tickets are not all known complete
  std::uint8_t listed_room = 0;  // which list of its owner it stands in; 0: none
  /// By half: 1 + the size class of the slab that covers it; 0: none does.
  std::array<std::uint8_t, 2> slab_class{};
  // Neighbours in the owner's list of chunks with the same room, and in the pending list.
  ChunkId previous = 0;
  ChunkId next = 0;
  ChunkId pending_previous = 0;
  ChunkId pending_next = 0;
  TicketSet tickets;
  std::array<std::uint8_t, kUnitsPerChunk> block_units{};  // of the buddy block that starts there

  bool is_empty() const noexcept { return (free | foreign) == ~UnitMask{0}; }
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BUDDY_CHUNK_H_
