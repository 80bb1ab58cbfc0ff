// Plays a trace through a pool whose blocks are really used: as `gpupool replay` does where no work
// is given to the streams, and where it is, as a program would that never waits for its device
// within a pass.
//
// Busy: each block is filled after its allocation and checked before its free, on its stream, so
// that memory that two blocks share at the same time, or that is moved while it is in use, shows as
// wrong words. A request that fails is asked again once the device has nothing left to do. Played
// as fast as the host can, or at the recorded times; the pool is maintained each millisecond by a
// thread beside, or by the allocating one.
// Idle and modelled: the pool is maintained each recorded millisecond, in virtual time.
//
// Thread safety: one thread. Cost: a device, a pool and the steps of the trace.
#ifndef GPUPOOL_TESTS_GPU_REPLAY_TRACE_RUN_H_
#define GPUPOOL_TESTS_GPU_REPLAY_TRACE_RUN_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpupool/clock.h"
#include "gpupool/pool.h"
#include "tests/gpu/replay/block_work.h"
#include "tests/gpu/replay/figures.h"
#include "tests/gpu/replay/setting.h"
#include "tools/device/device.h"
#include "tools/replay/plan.h"
#include "tools/trace/trace.h"

namespace gpupool::gpu_tests {

/// Which device `idle` and `busy` mean.
struct Place {
  tools::DeviceChoice device = tools::DeviceChoice::cuda;  // or simulated
  /// Of a simulated one that is busy. Real memory takes what the trace holds from the host.
  SimulatedMemory memory = SimulatedMemory::real;
  std::uint64_t passes = 2;
};

/// The most bytes that are requested at once.
std::uint64_t peak_requested_bytes(const std::vector<tools::Step>& steps);

class TraceRun {
 public:
  /// Requires: `trace` and `setting` outlive the run.
  static Result<std::unique_ptr<TraceRun>, Status> open(const tools::Trace& trace,
                                                        const Setting& setting, Mode mode,
                                                        const Place& place);
  ~TraceRun();
  TraceRun(const TraceRun&) = delete;
  TraceRun& operator=(const TraceRun&) = delete;

  /// Plays the trace once and frees what it leaves.
  Result<PassFigures, Status> play();
  Result<Mismatches, Status> mismatches();
  /// What the device or the pool refused, which is a fault of ours; empty where nothing.
  std::string find_fault() const;

 private:
  struct Slot {
    void* pointer = nullptr;
    Pattern pattern;
    std::uint16_t stream = 0;
  };

  TraceRun(const Setting& setting, Mode mode) : setting_(setting), mode_(mode) {}
  Result<void, Status> open_device(const Place& place);
  Result<void, Status> open_pool();
  Result<void, Status> open_work(const Place& place);
  Result<void, Status> play_steps(PassFigures& figures);
  Result<void, Status> allocate(const tools::Step& step, PassFigures& figures);
  Result<void, Status> free(Slot& slot);
  Result<void, Status> end_pass();
  /// Recorded time passes, and the pool is maintained.
  void pass_time(std::uint64_t ns);
  /// Lets so much more of recorded time pass, of which the host's own is part.
  void keep_pace(std::uint64_t ns);
  void maintain_if_due();
  void maintain();

  const Setting& setting_;
  const Mode mode_;
  std::vector<tools::Step> steps_;
  std::vector<Slot> slots_;
  std::uint64_t blocks_ = 0;  // so far; their patterns are made of it
  std::uint64_t refused_frees_ = 0;
  std::uint64_t due_ns_ = 0;   // the next maintenance of the allocating thread
  std::uint64_t pace_ns_ = 0;  // what recorded time is now, on the device's clock
  std::optional<std::uint64_t> capacity_bytes_;
  tools::Device device_;
  VirtualClock clock_;  // of the pool, idle on a GPU, whose own clock is real time
  std::unique_ptr<tools::DeviceStreams> raw_streams_;
  std::unique_ptr<BlockWork> work_;  // none but where it is busy
  std::unique_ptr<Pool> pool_;
  std::vector<StreamRef> streams_;
  std::atomic<bool> is_ending_{false};
  std::thread maintainer_;
};

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_REPLAY_TRACE_RUN_H_
