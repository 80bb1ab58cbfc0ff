// A trace on a device and in a pool of its own, which can be played in whole or up to an operation:
// what `gpupool replay` measures, and what a recording is made of.
//
// On the simulated device the same input leads to the same pool, bit for bit, wherever the way was
// interrupted, but for wall time (Pool::stats().start_unix_ns, sampled latencies).
//
// Thread safety: one thread. Cost: the trace's steps at 16 bytes each, which are the caller's, and
// an address a slot; opening a pool takes about a millisecond.
#ifndef GPUPOOL_TOOLS_REPLAY_SESSION_H_
#define GPUPOOL_TOOLS_REPLAY_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpupool/clock.h"
#include "gpupool/faulty_backend.h"
#include "gpupool/pool.h"
#include "tools/device/device.h"
#include "tools/replay/loop.h"
#include "tools/replay/plan.h"
#include "tools/replay/replay.h"

namespace gpupool::tools {

/// The device, the pool and what goes with them, for one trace. Ends in the reverse order.
class Session {
 public:
  /// Requires: `steps`, made from `trace`, outlive the session, as does `options.observer`.
  static Result<std::unique_ptr<Session>, Status> open(const Trace& trace,
                                                       const std::vector<Step>& steps,
                                                       const ReplayOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Pool& pool() { return *pool_; }
  /// Plays the steps once; only the loop itself is timed.
  PassResult play(std::uint64_t operations);
  /// Frees what the pass left and empties the caches into the tiers below.
  void end_pass();
  /// Frees that the pool refused, and operations that the simulated device did: both 0, unless
  /// something of ours is wrong.
  std::string find_fault() const;

  /// Plays on until the next `operation`s, counted from the trace's start, are done. Requires: not
  /// fewer than are done already. Beyond the last there is nothing.
  void advance_to(std::uint64_t operation);
  /// Allocations and frees that advance_to() has begun; in an observer's call the number of the
  /// one that it belongs to.
  std::uint64_t operation() const noexcept { return operation_; }

 private:
  /// What the loop plays through: the pool, no call in between.
  struct Played {
    Pool& pool;
    const StreamRef* streams;
    Session& session;

    Result<void*> allocate(std::uint64_t bytes, std::uint16_t stream) {
      return pool.allocate(bytes, streams[stream]);
    }
    bool deallocate(void* pointer, std::uint16_t stream) {
      return pool.deallocate(pointer, streams[stream]);
    }
    void pass_time(std::uint64_t ns) {
      session.advance(ns);
      session.maintain();
    }
  };

  /// The same, and counts.
  struct Counted {
    Played played;

    Result<void*> allocate(std::uint64_t bytes, std::uint16_t stream) {
      ++played.session.operation_;
      return played.allocate(bytes, stream);
    }
    bool deallocate(void* pointer, std::uint16_t stream) {
      ++played.session.operation_;
      return played.deallocate(pointer, stream);
    }
    void pass_time(std::uint64_t ns) { played.pass_time(ns); }
  };

  Session(const Trace& trace, const std::vector<Step>& steps);
  Result<void, Status> open_pool(const ReplayOptions& options);
  void advance(std::uint64_t ns);
  /// As by a thread beside the one that allocates.
  void maintain();
  void inject_faults(double probability);

  Played played() { return {*pool_, streams_.data(), *this}; }

  const std::vector<Step>& steps_;
  Loop loop_;
  // Else there is no time of which waiting could be a share.
  const bool has_recorded_time_;
  Device device_;
  // Of the pool: recorded time alone, so that what the driver takes ages no cache, and each pass
  // finds them as the first did.
  VirtualClock clock_;
  std::unique_ptr<FaultyBackend> faulty_;
  std::unique_ptr<DeviceStreams> raw_streams_;
  std::unique_ptr<Pool> pool_;
  std::vector<StreamRef> streams_;
  std::uint64_t refused_frees_ = 0;
  std::size_t next_step_ = 0;  // of advance_to()
  std::uint64_t operation_ = 0;
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_REPLAY_SESSION_H_
