// The map of a pool as JSON: every block and free piece, and what follows from them.
//
// Blocks stand by rising offset in columns of equal length, so that 100 000 of them are a few
// megabytes:
//   offset     from arena.base_offset's page on; bytes   of the block
//   requested  0 but of live blocks
//   state, tier  one digit each, which numbers `states` and `tiers`
//   tag        numbers `tags`, whose last is what has none;  stream   numbers `streams`
//   age_ms     since it was allocated (live) or freed, to the nearest step of upkeep
// What is beyond kMaxBlocksShown is counted in every sum and not shown.
// Thread safety: plain functions. Cost: about 150 ns a block, none of it under the pool's lock but
// a copy.
#ifndef GPUPOOL_EXPORTER_HTTP_SNAPSHOT_JSON_H_
#define GPUPOOL_EXPORTER_HTTP_SNAPSHOT_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "gpupool/pool.h"
#include "gpupool/stats.h"

namespace gpupool::internal {

inline constexpr std::size_t kMaxBlocksShown = 250'000;

/// `sequence` numbers the snapshots of a process. Without details there are no addresses and no
/// names of tags.
std::string snapshot_json(const Pool& pool, std::uint64_t sequence, bool with_details);
/// The same with the pool's numbers as somebody has taken them, right now.
std::string snapshot_json(const Pool& pool, const StatsV1& stats, std::uint64_t sequence,
                          bool with_details);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_SNAPSHOT_JSON_H_
