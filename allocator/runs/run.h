// A run: consecutive units of the arena that are one thing, free or taken.
//
// Every backed unit belongs to exactly one run, except pages that a failed give-back left behind.
// Two free neighbours that the same streams may use never stay apart. A taken run is a block above
// 128 KiB, a chunk of the buddy, or on its way back to the driver.
//
// Thread safety: under the pool's lock. Cost: a run with less than two tickets is one cache line.
#ifndef GPUPOOL_RUNS_RUN_H_
#define GPUPOOL_RUNS_RUN_H_

#include <cstdint>

#include "base/block_record.h"
#include "base/relaxed.h"
#include "stream/ticket_set.h"

namespace gpupool::internal {

using RunId = std::uint32_t;  // 0: none

enum class RunKind : std::uint8_t { unused, free, block, chunk, leaving };

struct alignas(64) Run {
  // The first cache line is all that a hit and most searches touch. What a hit reads without the
  // pool's lock does not change while the block is live.
  BlockRecord record;         // block: what the caller holds
  Racy<std::uint64_t> start;  // first unit
  Racy<std::uint32_t> units = 0;
  RunKind kind = RunKind::unused;
  bool is_pinned = false;         // free, and nobody's: a private pool is among whose it may be
  std::uint16_t bin = 0;          // free: of the index
  StreamIndex holder = kAnybody;  // free: which index it stands in
  // Free: children in the index.
  RunId left = 0;
  RunId right = 0;
  union {
    RunId next = 0;  // unused: the next of those
    /// Free, and everybody's: one more than the stream whose work it waited for last, kNobody + 1
    /// of several, until a piece of it is taken; 0: of none.
    std::uint32_t freed_by;
  };
  union {
    RunId parent = 0;     // free: in the index
    std::uint32_t chunk;  // chunk: which
  };
  TicketSet tickets;  // free: who may still be using it

  std::uint64_t end() const noexcept { return start + units; }
};
static_assert(sizeof(Run) == 128);

}  // namespace gpupool::internal

#endif  // GPUPOOL_RUNS_RUN_H_
