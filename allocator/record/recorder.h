// A recording under way: takes what the pool was asked for under the pool's lock, and has a thread
// of its own write it down.
//
// The thread is the recording's, and not maintain()'s work: how long a disk takes must not decide
// when epochs are closed, and a program that calls maintain() seldom, or never, has a trace all the
// same. There is none while nothing is recorded. It wakes up every few milliseconds by itself, so
// that no request wakes it.
//
// What is in the file is a beginning of what was noted: from the first event that the ring has no
// room for, all are only counted.
//
// Thread safety: the notes by one thread at a time (the pool's lock), begin() and end() under the
// same; open() before and finish() after all of these. Cost: a note is a clock reading and a few
// stores; see event_ring.h and trace_writer.h.
#ifndef GPUPOOL_RECORD_RECORDER_H_
#define GPUPOOL_RECORD_RECORDER_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpupool/clock.h"
#include "gpupool/record.h"
#include "gpupool/status.h"
#include "record/event_ring.h"
#include "record/trace_writer.h"

namespace gpupool::internal {

class Recorder {
 public:
  /// Makes the file and starts the thread. Errors name the path, or the option, and the reason.
  static Result<std::unique_ptr<Recorder>, Status> open(const std::string& path,
                                                        const RecordOptions& options,
                                                        const RecordSource& source,
                                                        const Clock& clock);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  const std::string& path() const noexcept { return path_; }
  /// Everything from now on is noted, beside the allocations of what is live.
  void begin(std::vector<RecordEvent> live);
  void end() { end_ns_ = clock_.now_ns(); }
  /// Writes all that was noted and closes the file. Call once, after begin() and end().
  Result<RecordReport, Status> finish();

  void note_allocation(const void* block, std::uint64_t bytes, std::uint32_t stream) {
    note({address_of(block), bytes, 0, stream, RecordEventKind::allocate});
  }
  void note_free(const void* block, std::uint32_t stream) {
    note({address_of(block), 0, 0, stream, RecordEventKind::free});
  }
  void note_failure(std::uint64_t bytes) { note({0, bytes, 0, 0, RecordEventKind::fail}); }

 private:
  Recorder(std::string path, const Clock& clock);
  static std::uint64_t address_of(const void* block) {
    return reinterpret_cast<std::uintptr_t>(block);
  }
  void note(RecordEvent event);
  /// False where the host has no thread for it.
  bool start_thread();
  void stop_thread();
  void run();

  const std::string path_;
  const Clock& clock_;
  EventRing ring_;
  // Of whoever notes.
  std::uint64_t missed_ = 0;
  std::uint64_t end_ns_ = 0;
  bool was_ring_full_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_; what begin() leaves is the thread's once it has seen that.
  bool has_begun_ = false;
  std::vector<RecordEvent> live_;
  std::uint64_t start_ns_ = 0;
  bool is_over_ = false;

  TraceWriter writer_;  // the thread's, while there is one
  std::thread thread_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_RECORD_RECORDER_H_
