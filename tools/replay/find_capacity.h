// The smallest capacity at which a trace completes: what a job really needs of a card under this
// pool, where peak held says what it takes when there is more.
//
// By bisection between what is requested at the peak, below which no pool can succeed, and what is
// held at the most when the limit is far. Placement is chaotic, so that a smaller capacity than the
// one found may happen to work, too; the one found does, and the one a page below was seen to fail
// or is less than what is requested.
//
// Thread safety: one thread. Cost: all passes about log2((held - requested) / 2 MiB) + 2 times.
#ifndef GPUPOOL_TOOLS_REPLAY_FIND_CAPACITY_H_
#define GPUPOOL_TOOLS_REPLAY_FIND_CAPACITY_H_

#include <vector>

#include "tools/replay/replay.h"

namespace gpupool::tools {

/// What capacities are multiples of.
inline constexpr std::uint64_t kCapacityStep = std::uint64_t{2} << 20;

struct FoundCapacity {
  /// Of a run at that capacity, which each of them names; where no capacity will do, of the run
  /// with all there is, and then some `failed` is not 0 and no capacity is named.
  std::vector<PassResult> passes;
  ReplaySetting setting;
};

/// `options.capacity_bytes`, or else the device, is the most that is tried. `hook` is called before
/// each pass of each run. Requires: no faults are asked for.
Result<FoundCapacity, ReplayFailure> find_capacity(const Trace& trace, const ReplayOptions& options,
                                                   const Replayer::PassHook& hook);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_REPLAY_FIND_CAPACITY_H_
