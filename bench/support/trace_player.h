// Plays a recorded trace through a pool as `gpupool replay` does - the same plan, so `maintain`
// after each millisecond of recorded time - on a device that does nothing.
//
// One pool for all passes; between passes what is left is freed and the caches are emptied, pages
// stay mapped.
// Thread safety: one thread. Cost: 16 bytes a step, an address a slot.
#ifndef GPUPOOL_BENCH_SUPPORT_TRACE_PLAYER_H_
#define GPUPOOL_BENCH_SUPPORT_TRACE_PLAYER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/support/bench_pool.h"
#include "gpupool/clock.h"
#include "tools/replay/plan.h"

namespace gpupool::bench {

class TracePlayer {
 public:
  /// Reads the trace at `path`. With recycling off a warm pass makes no driver call, and so is the
  /// pool alone; else it is the moving of pages as well, but for what the driver takes.
  explicit TracePlayer(const std::string& path, Recycling recycling = Recycling::off);

  /// Allocations and frees of a pass.
  std::uint64_t operation_count() const { return operation_count_; }
  /// One pass.
  void play();
  /// Requires: after a pass, before the next.
  void end_pass();

 private:
  VirtualClock clock_;
  BenchPool pool_;
  std::vector<tools::Step> steps_;
  std::uint64_t operation_count_ = 0;
  std::vector<StreamRef> streams_;
  std::vector<void*> blocks_;                // by slot; nullptr where nothing is live
  std::vector<std::uint16_t> last_streams_;  // by slot: of the block that a pass leaves there
};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_SUPPORT_TRACE_PLAYER_H_
