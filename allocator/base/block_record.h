// What the pool knows of one block: the same record for a slot of a slab, a buddy block and a run.
//
// The state changes by one atomic exchange, so that of two frees that race one is refused. All
// other fields belong to whoever took the block out of `live` or is about to put it there.
#ifndef GPUPOOL_BASE_BLOCK_RECORD_H_
#define GPUPOOL_BASE_BLOCK_RECORD_H_

#include <atomic>
#include <cstdint>

namespace gpupool::internal {

enum class BlockUse : std::uint8_t { none, live, cached };

struct BlockRecord {
  std::atomic<BlockUse> use{BlockUse::none};
  std::uint8_t tag = 0xff;
  bool has_extra_uses = false;  // record_stream or record_use was called for it
  std::uint32_t stream = 0;     // index of the stream that allocated it, or freed it
  std::uint64_t requested = 0;  // bytes the caller asked for
  std::uint32_t next = 0;       // cached: the next in its bin
  std::uint32_t tick = 0;       // when it got this use, in Ticks
};

/// Coarse time of a block's last change: 10 ms steps since the pool's start (497 days).
inline constexpr std::uint64_t kTickNs = 10'000'000;

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_BLOCK_RECORD_H_
