// A run: consecutive units of the arena that are one thing, free or taken.
//
// Every backed unit belongs to exactly one run, except pages that a failed give-back left behind.
// Two free neighbours that the same streams may use never stay apart. A taken run is a block above
// 128 KiB, a chunk of the buddy, or on its way back to the driver.
//
// Thread safety: under the pool's lock.
#ifndef GPUPOOL_RUNS_RUN_H_
#define GPUPOOL_RUNS_RUN_H_

#include <cstdint>

#include "stream/ticket.h"

namespace gpupool::internal {

using RunId = std::uint32_t;  // 0: none

enum class RunKind : std::uint8_t { unused, free, block, chunk, leaving };

struct Run {
  std::uint64_t start = 0;  // first unit
  std::uint32_t units = 0;
  RunKind kind = RunKind::unused;
  StreamIndex holder = kAnybody;  // free: which index it stands in
  TicketSet tickets;              // free: who may still be using it
  // Free: children in the index.
  RunId left = 0;
  RunId right = 0;
  // Free with tickets: neighbours in the pending list.
  RunId previous = 0;
  RunId next = 0;
  std::uint32_t chunk = 0;  // chunk: which

  std::uint64_t end() const noexcept { return start + units; }
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_RUNS_RUN_H_
