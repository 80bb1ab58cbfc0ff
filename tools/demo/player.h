// Plays recorded traces through a pool at their own pace, over and over: the training service of
// `gpupool demo`.
//
// A block ends at its `f`; what is left at the end of a trace is freed before the next one. An
// allocation that fails is data: the block is just not there. On the simulated device each
// allocation is followed by a little work on its stream that writes the block, so that memory is
// really pending after a free, and giving it away too early would be seen.
//
// Thread safety: one thread, the one that made the StopSignal. Cost: sleeps in steps of about 1 ms.
#ifndef GPUPOOL_TOOLS_DEMO_PLAYER_H_
#define GPUPOOL_TOOLS_DEMO_PLAYER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gpupool/pool.h"
#include "gpupool/status.h"
#include "tools/device/device.h"
#include "tools/terminal/stop_signal.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

struct PlayerCounts {
  std::uint64_t operations = 0;  // allocations and frees, of what a trace leaves at its end, too
  std::uint64_t failed = 0;
  std::uint64_t rounds = 0;  // times that every trace was played to its end
};

struct PlayerOptions {
  double speed = 1;                                          // recorded time is divided by it
  std::optional<std::chrono::steady_clock::time_point> end;  // none: until stopped
  std::chrono::nanoseconds tick_period = std::chrono::seconds(1);
  /// Called once a period, between two operations.
  std::function<void(const PlayerCounts&)> on_tick;
  /// Called after the first allocation that failed.
  std::function<void()> on_first_failure;
};

class Player {
 public:
  /// Makes the streams of all traces known to the pool. All arguments outlive the player.
  static Result<std::unique_ptr<Player>, Status> create(Device& device, Pool& pool,
                                                        const std::vector<Trace>& traces,
                                                        PlayerOptions options);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  /// Plays until `stop` or PlayerOptions::end.
  PlayerCounts play(StopSignal& stop);

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Track {
    const Trace* trace = nullptr;
    std::unique_ptr<DeviceStreams> raw_streams;
    std::vector<StreamRef> streams;
  };
  struct Live {
    void* pointer = nullptr;
    std::uint16_t stream = 0;
  };

  Player(Device& device, Pool& pool, PlayerOptions options)
      : device_(device), pool_(pool), options_(std::move(options)) {}
  bool play_track(const Track& track, StopSignal& stop);
  void allocate(const Track& track, const Operation& operation);
  void release(const Track& track, std::uint32_t slot);
  bool wait(Time due, StopSignal& stop);

  Device& device_;
  Pool& pool_;
  PlayerOptions options_;
  std::vector<Track> tracks_;
  std::vector<Live> live_;  // by slot, of the track that is played
  PlayerCounts counts_;
  Time next_tick_;
  Time due_;
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_DEMO_PLAYER_H_
