// The simulated device's streams and events as a program sees them: handles that are given again,
// identities that are not, the default streams, marks in time, and captures.
//
// Handles 0 and 1 are the legacy stream, 2 is a stream of its own for each calling thread. A
// destroyed handle's value is the next one given (LIFO). Work, waits and events on a stream in
// capture become part of the graph: they are checked, and do not run. A graph that is launched
// gives its work in the order in which it was captured, whatever streams it was given to.
//
// Thread safety: none, the owner locks. Cost: finding a stream or an event by its handle is an
// index; an event recorded or queried on an idle stream costs nothing more. A thread that used
// handle 2 leaves about 200 bytes behind until the device goes.
#ifndef GPUPOOL_BACKEND_SIMULATED_STREAMS_H_
#define GPUPOOL_BACKEND_SIMULATED_STREAMS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/simulated_memory.h"
#include "backend/simulated_schedule.h"
#include "backend/simulated_violations.h"
#include "gpupool/backend.h"
#include "gpupool/simulated_backend.h"

namespace gpupool::internal {

class SimulatedStreams {
 public:
  using StreamPointer = std::shared_ptr<SimulatedStream>;

  SimulatedStreams(SimulatedDeviceMemory& memory, SimulatedViolations& violations);

  RawStream create();
  /// Work already given still completes. False where there is no such stream.
  bool destroy(RawStream handle);
  /// nullptr where there is no such stream.
  StreamPointer find(RawStream handle);
  Result<void> launch(RawStream handle, SimulatedWork work);

  CaptureState capture_state(const SimulatedStream& stream) const;
  /// Its id; as on a card, to ask for it in a capture ends that.
  Result<std::uint64_t> identify(const StreamPointer& stream);
  Result<void> begin_capture(const StreamPointer& stream);
  SimulatedGraph end_capture(const SimulatedStream& stream);
  Result<void> launch_graph(SimulatedGraph graph, RawStream handle);
  void destroy_graph(SimulatedGraph graph) { graphs_.erase(graph.value); }
  /// Refuses `what`, and invalidates all captures, where there is one.
  Result<void> check_no_capture(const char* what);

  EventHandle create_event();
  Result<void> destroy_event(EventHandle event);
  Result<void> record_event(EventHandle event, RawStream handle);
  Result<bool> query_event(EventHandle event);
  Result<void> wait_event(RawStream handle, EventHandle event);
  /// What has to be done for `event` to be complete.
  Result<SimulatedMark> find_mark(EventHandle event);
  std::uint64_t event_count() const { return events_.size() - free_events_.size(); }

  SimulatedSchedule& schedule() { return schedule_; }

 private:
  struct Event {
    bool is_live = false;
    std::uint32_t generation = 0;
    SimulatedMark mark;
    std::vector<SimulatedMark> seen;
    std::uint64_t capture = 0;  // in which it was recorded, 0: none
  };
  struct Capture {
    std::vector<StreamPointer> streams;
    std::vector<SimulatedWork> works;
    std::vector<SimulatedBacking*> backings;
    bool is_invalidated = false;
  };

  StreamPointer make_stream();
  StreamPointer& find_slot(RawStream handle);
  Event* find_event(EventHandle event);
  Error refuse_implicit(const char* what);
  Result<void> launch_captured(const StreamPointer& stream, SimulatedWork work);
  /// Where the work lies, in segments_; and whether it may be given to the stream now, which is not
  /// being captured.
  Result<void> resolve(const SimulatedWork& work);
  Result<void> check_work(const SimulatedStream& stream, const SimulatedWork& work);
  Result<void> wait_in_capture(const StreamPointer& stream, const Event& event);

  SimulatedDeviceMemory& memory_;
  SimulatedViolations& violations_;
  SimulatedSchedule schedule_;
  std::uint64_t last_stream_id_ = 0;
  StreamPointer none_;
  StreamPointer legacy_;
  std::vector<StreamPointer> slots_;  // by handle; nullptr: free
  std::vector<std::size_t> free_slots_;
  std::unordered_map<std::uint64_t, StreamPointer> thread_streams_;
  std::vector<Event> events_;
  std::vector<std::uint32_t> free_events_;
  std::uint64_t last_capture_ = 0;
  std::unordered_map<std::uint64_t, Capture> captures_;
  std::unordered_map<std::uint64_t, std::vector<SimulatedWork>> graphs_;  // by their captures
  std::vector<SimulatedSegment> segments_;  // scratch of launch, kept for its memory
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BACKEND_SIMULATED_STREAMS_H_
