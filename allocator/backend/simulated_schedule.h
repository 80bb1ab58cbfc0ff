// When the work of the simulated device's streams runs, and which work is ordered after which.
//
// A stream is a queue of items, work and waits, with a position each: 1, 2, ... An item is done
// once its position is <= `completed`. A mark (stream, position) stands for all items of a stream
// up to a position. What a stream has waited for is a small vector clock, `seen`: an item given
// now to `s` runs after (t, p) if s == t or s.seen holds (t, >= p). Marks that are done order
// nothing any more and are dropped; a stream without items has an empty clock.
//
// All streams are independent: the legacy stream orders nothing by itself (as if every other one
// were made with cudaStreamNonBlocking), which is the stricter reading for memory that is shared.
//
// Thread safety: none, the owner locks. Bodies of work run under the owner's lock and must not
// call the backend, as a host function on a card must not. Cost: nothing while no item is due; a
// completion is linear in the number of busy streams. Nothing grows with what is done.
#ifndef GPUPOOL_BACKEND_SIMULATED_SCHEDULE_H_
#define GPUPOOL_BACKEND_SIMULATED_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "backend/simulated_memory.h"
#include "gpupool/simulated_backend.h"

namespace gpupool::internal {

/// All items of a stream up to a position; without a stream: done.
struct SimulatedMark {
  std::shared_ptr<SimulatedStream> stream;
  std::uint64_t position = 0;

  bool is_done() const;
};

struct SimulatedItem {
  bool is_wait = false;
  SimulatedMark wait_for;  // where is_wait
  SimulatedWork work;      // where not
  std::vector<SimulatedBacking*> backings;
};

class SimulatedStream {
 public:
  explicit SimulatedStream(std::uint64_t stream_id) : id(stream_id) {}

  bool is_idle() const { return items.empty(); }
  /// Whether an item given now runs after `position` of `other`.
  bool is_ordered_after(const SimulatedStream* other, std::uint64_t position) const;
  /// Orders what is given from now on after `mark`.
  void see(const SimulatedMark& mark);
  /// Drops marks that are done.
  void prune_seen();

  const std::uint64_t id;
  std::uint64_t given = 0;      // position of the newest item
  std::uint64_t completed = 0;  // position of the newest item that is done
  std::deque<SimulatedItem> items;
  std::vector<SimulatedMark> seen;
  bool is_head_started = false;
  std::uint64_t head_start_ns = 0;
  std::uint64_t capture = 0;  // of which it is part, 0: none
};

class SimulatedSchedule {
 public:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  SimulatedSchedule() = default;
  ~SimulatedSchedule();
  SimulatedSchedule(const SimulatedSchedule&) = delete;
  SimulatedSchedule& operator=(const SimulatedSchedule&) = delete;

  /// Runs the device up to `now_ns`.
  void settle(std::uint64_t now_ns) {
    if (now_ns >= next_due_ns_) run_until(now_ns);
    if (now_ns > time_ns_) time_ns_ = now_ns;
  }
  /// When the next timed work ends, kNever if none has started.
  std::uint64_t next_due_ns() const { return next_due_ns_; }

  /// Unfinished work that uses bytes of `segments` and is not ordered before what `stream` is
  /// given now; nullptr if there is none.
  static const SimulatedUse* find_conflict(const SimulatedStream& stream,
                                           const std::vector<SimulatedSegment>& segments);
  // Each of these settles the device again, at the time of the last settle.
  void launch(const std::shared_ptr<SimulatedStream>& stream, SimulatedWork work,
              const std::vector<SimulatedSegment>& segments);
  /// What `stream` is given from now on runs after `mark` and after all of `seen`.
  void wait(const std::shared_ptr<SimulatedStream>& stream, const SimulatedMark& mark,
            const std::vector<SimulatedMark>& seen);
  /// Completes the items of `mark`, and first what they wait for.
  void complete(const SimulatedMark& mark);
  /// Completes the oldest until_completed work and what is before it; false if there is none.
  bool complete_next(const std::shared_ptr<SimulatedStream>& stream);
  void complete_all();
  /// Of every stream that is not idle, a mark of what it was given.
  std::vector<SimulatedMark> marks_of_busy() const;

 private:
  void give(const std::shared_ptr<SimulatedStream>& stream, SimulatedItem item);
  void force(const SimulatedMark& mark);
  void complete_head(SimulatedStream& stream);
  void run_until(std::uint64_t now_ns);
  /// Takes off waits that are over, lets idle streams go, starts work that can start.
  void start_heads();

  std::vector<std::shared_ptr<SimulatedStream>> busy_;
  std::uint64_t time_ns_ = 0;
  std::uint64_t next_due_ns_ = kNever;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BACKEND_SIMULATED_SCHEDULE_H_
