// A replay that can be looked at wherever it was asked for: plays up to the place and lets the
// caller look at the pool there.
//
// A pool cannot go back. Up to kKept replays are kept where they were looked at last; a place is
// reached from the nearest one before it, or from the start, and where all are taken, the one that
// was not used for longest is given up.
//
// Thread safety: any thread; one at a time plays and looks. Cost: to go forward, the operations
// between; to go back, up to the whole replay (Recording::replay_seconds). Host memory: kKept
// pools.
#ifndef GPUPOOL_TOOLS_SERVE_POSITIONS_H_
#define GPUPOOL_TOOLS_SERVE_POSITIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "gpupool/exporter/event_log.h"
#include "gpupool/pool.h"
#include "gpupool/status.h"
#include "tools/replay/plan.h"
#include "tools/replay/replay.h"
#include "tools/replay/session.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

class Positions {
 public:
  static constexpr std::size_t kKept = 4;

  /// What there is at a place.
  struct View {
    const Pool& pool;
    const EventLog& events;  // up to there
  };

  /// Requires: `trace`, and `steps` made from it, outlive this. `options.observer` is not looked
  /// at.
  Positions(const Trace& trace, const std::vector<Step>& steps, const ReplayOptions& options)
      : trace_(trace), steps_(steps), options_(options) {}

  /// The view lasts as long as the call. Error: no further pool could be opened.
  Result<void, Status> look(std::uint64_t operation, const std::function<void(const View&)>& use);

 private:
  struct Paused {
    EventLog events;  // longer than the session, whose pool tells it
    std::unique_ptr<Session> session;
  };
  Result<Paused*, Status> nearest(std::uint64_t operation);

  const Trace& trace_;
  const std::vector<Step>& steps_;
  const ReplayOptions options_;
  std::mutex mutex_;
  std::list<std::unique_ptr<Paused>> paused_;  // the one that was used last in front
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SERVE_POSITIONS_H_
