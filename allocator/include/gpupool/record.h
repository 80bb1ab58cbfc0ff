// A recording of what a pool is asked for: Pool::record() begins one, Pool::stop_recording() ends
// it and says what is in the file.
//
// The file is a gpupool trace, version 1 (tools/README.md), as text; `gpupool replay` plays it. At
// any moment it ends after a whole line, and what is in it is a beginning of what happened: where
// something no longer fits, all that comes later is left out, so that every free in the file has
// its allocation there.
//
// Thread safety: plain values.
#ifndef GPUPOOL_RECORD_H_
#define GPUPOOL_RECORD_H_

#include <cstdint>

namespace gpupool {

struct RecordOptions {
  /// The file ends before it would be larger; at least 4 KiB.
  std::uint64_t max_file_bytes = std::uint64_t{1} << 30;
  /// Host memory for what is not written yet, at 32 bytes an operation; at least 4 KiB. What comes
  /// while it is full because the disk is slow ends the recording: nobody waits for the disk.
  std::uint64_t buffer_bytes = std::uint64_t{32} << 20;
};

/// What a recording came to its end by.
enum class RecordEnd : std::uint8_t {
  stopped,      // stop_recording(): all that happened is there
  file_full,    // max_file_bytes
  buffer_full,  // buffer_bytes: the disk was too slow
};
const char* to_string(RecordEnd value) noexcept;

struct RecordReport {
  /// Operations in the file, blocks that were live when the recording began not among them.
  std::uint64_t allocations = 0;
  std::uint64_t frees = 0;
  /// Blocks that were live when it began: allocations at time 0 in the file.
  std::uint64_t live_at_start = 0;
  /// Requests that failed: remarks in the file, since no block came of them.
  std::uint64_t failed_requests = 0;
  /// Allocations, frees and failed requests that are not in the file, because it ended before, and
  /// what can have no place in it: streams beyond the 4 096 of the format, and the frees of blocks
  /// that were just being handed out when the recording began, at most one a thread.
  std::uint64_t left_out = 0;
  std::uint64_t file_bytes = 0;
  /// From the beginning to stop_recording(), on the pool's clock.
  std::uint64_t duration_ns = 0;
  RecordEnd end = RecordEnd::stopped;
};

}  // namespace gpupool

#endif  // GPUPOOL_RECORD_H_
