// Turns what a pool was asked for into the lines of a trace, and sees to it that they make one: an
// ID for each block, the time since the line before, no free without its allocation, and at the
// bound of the file an end after which nothing more comes.
//
// Invariant: what is in the file is a valid trace, version 1 (tools/README.md), after each call.
// Thread safety: one thread at a time, but for is_full(). Cost: a hash look-up an event, and some
// 60 bytes of the host's heap for each block that is live.
#ifndef GPUPOOL_RECORD_TRACE_WRITER_H_
#define GPUPOOL_RECORD_TRACE_WRITER_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpupool/record.h"
#include "gpupool/status.h"
#include "record/event_ring.h"
#include "record/line_file.h"

namespace gpupool::internal {

/// What the head of the file says of the pool.
struct RecordSource {
  std::string pool;
  std::string device;
  std::uint64_t limit_bytes = 0;
};

class TraceWriter {
 public:
  /// Makes the file and writes its head. Call once.
  Result<void, Status> create(const std::string& path, std::uint64_t max_file_bytes,
                              const RecordSource& source);
  /// What was live at `time_ns`, when the recording began. Once, before all events.
  void begin(const std::vector<RecordEvent>& live, std::uint64_t time_ns);
  void write(const RecordEvent& event);
  void flush();
  /// Closes the file after a last remark. `missed`: events that did not come to be written.
  Result<RecordReport, Status> finish(std::uint64_t end_ns, std::uint64_t missed);

  /// Nothing more comes into the file, for whatever reason. From any thread.
  bool is_full() const noexcept { return is_full_.load(std::memory_order_relaxed); }

 private:
  struct Block {
    std::uint64_t id = 0;
    std::uint32_t stream = 0;  // that allocated it
  };

  /// False: the file is full, and so it stays.
  bool append(std::string_view line);
  bool write_allocation(const RecordEvent& event);
  bool write_free(const RecordEvent& event);
  bool write_failure(const RecordEvent& event);
  std::uint64_t time_us(const RecordEvent& event) const;

  LineFile file_;
  std::uint64_t max_file_bytes_ = 0;
  std::unordered_map<std::uint64_t, Block> live_;  // by address, what is in the file
  RecordReport report_;
  std::uint64_t next_id_ = 0;
  std::uint64_t start_ns_ = 0;
  std::uint64_t last_us_ = 0;  // when the last line was, since the start
  std::atomic<bool> is_full_{false};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_RECORD_TRACE_WRITER_H_
