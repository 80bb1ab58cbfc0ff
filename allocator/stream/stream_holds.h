// Which streams one thread is about to capture, or captures, as far as the pool was told: other
// threads leave them alone meanwhile.
//
// Whether a stream is captured can be asked without harm; but what is done next, on the strength of
// that answer, may come after another thread has begun a capture there. To ask for the stream's
// identity then ends the capture, and an event that is recorded goes into the graph. So while a
// private pool is begun, or a capture announced, neither is done by anybody but the thread that did
// that:
//   on any stream       while the pool that was begun has served nobody: what it will take is for
//                       its function to say, which for PyTorch's takes no stream before the capture
//                       is under way
//   on those it served  from then on, until it is ended
//   on the announced    until that is withdrawn
//
// Thread safety: under the pool's lock. Whoever adds a hold has also the lock under which events
// are recorded, so that no thread is between the question and the record. Cost: a step for each
// hold and stream of it; of is_held() a look where there is none.
#ifndef GPUPOOL_STREAM_STREAM_HOLDS_H_
#define GPUPOOL_STREAM_STREAM_HOLDS_H_

#include <cstdint>
#include <vector>

#include "gpupool/pool.h"
#include "stream/ticket.h"

namespace gpupool::internal {

class StreamHolds {
 public:
  /// `thread`: thread_serial() of the one that may. Begun again it is the later one's.
  void begin(CapturePoolId pool, std::uint64_t thread);
  /// The pool, where it is begun, serves the stream.
  void note_served(CapturePoolId pool, StreamIndex stream);
  void end(CapturePoolId pool);
  void announce(StreamIndex stream, std::uint64_t thread);
  void withdraw(StreamIndex stream);
  /// The stream has ended, and its index may be another's.
  void forget(StreamIndex stream);
  void clear() noexcept { holds_.clear(); }
  bool empty() const noexcept { return holds_.empty(); }
  /// Whether a capture may begin, or be under way, on a stream of which that cannot be asked.
  bool is_any_open() const noexcept;

  /// Whether that thread leaves the stream to another.
  bool is_held(StreamIndex stream, std::uint64_t thread) const noexcept {
    return !holds_.empty() && is_held_by_another(stream, thread);
  }

 private:
  struct Hold {
    CapturePoolId pool;  // {0, 0}: an announcement
    std::uint64_t thread = 0;
    std::vector<StreamIndex> streams;  // of a pool that was begun, none: all
    bool is_announced() const noexcept { return pool == CapturePoolId{}; }
  };
  bool is_held_by_another(StreamIndex stream, std::uint64_t thread) const noexcept;

  std::vector<Hold> holds_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_STREAM_STREAM_HOLDS_H_
