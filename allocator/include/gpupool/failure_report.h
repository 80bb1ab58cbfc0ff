// Why a request failed, with the numbers that explain it: what was asked, which limit it met, what
// is held and in which state, what stands in the way, and what was tried before it was given up.
//
//   held = live_requested + waste + cached + pending + free, as of the failure
//   pending = sum of pending_streams + pending_elsewhere
//
// In bytes and nanoseconds, times of the pool's clock. Thread safety: plain values. Cost: made only
// where a request fails; a step for each stream, tag, and pending chunk or fallback.
#ifndef GPUPOOL_FAILURE_REPORT_H_
#define GPUPOOL_FAILURE_REPORT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpupool/stats.h"
#include "gpupool/status.h"

namespace gpupool {

/// What the limit in force comes from.
enum class LimitKind : std::uint8_t {
  capacity_bytes,     // PoolOptions::capacity, given in bytes
  capacity_fraction,  // the same, given as a fraction
  device,             // the device has no more, whatever the capacity is
};
const char* to_string(LimitKind value) noexcept;

/// What is wrong with the request, or went wrong, in more detail than MissReason has.
enum class FailureCause : std::uint8_t {
  memory,        // there is none, see the reason
  size,          // overflows, or alone larger than the limit
  alignment,     // no power of two, or larger than kMaxAlignment
  stream,        // of another pool, released, or its handle names another stream by now
  private_pool,  // one that captures make for themselves, which cannot be named
  capture,       // what it waits for cannot be waited for while a capture is under way
  handle,        // the driver does not know the stream, or the pool has no place for another one
  guard,         // a block was there, and the driver would not fill it (DebugOptions)
  event,         // a block was there, and the driver would not tell when it is out of use
  driver,        // another call of the driver
};
const char* to_string(FailureCause value) noexcept;

/// What one stream's unfinished work keeps from being used.
struct PendingOfStream {
  std::uint64_t stream_id = 0;
  /// The cudaStream_t that names it, as a number; none: it has ended.
  std::optional<std::uint64_t> stream_handle;
  std::uint64_t bytes = 0;
  /// Whether an event will tell when it is complete: not where its stream is in a graph capture, is
  /// another thread's default stream, or was destroyed unannounced.
  bool is_awaited = false;
};

struct TagBytes {
  std::string tag;  // "untagged" for the rest
  std::uint64_t bytes = 0;
};

/// A request that was no hit; `failed`: nor served.
struct MissRecord {
  std::uint64_t time_ns = 0;
  std::uint64_t bytes = 0;
  std::uint64_t stream_id = 0;
  std::optional<std::uint64_t> stream_handle;  // that it had then; none: of no stream that is known
  MissReason reason = MissReason::cold;
  bool failed = false;
};

/// What a rung of the ladder was for the request.
struct RungReport {
  bool was_tried = false;
  /// caches: moved to the shared tiers; events, wait: pending no more, its asking stream's
  /// excepted; recycle: moved; grow: got; trim: given back; callback: freed by the handler.
  std::uint64_t gave_bytes = 0;
};

struct FailureReport {
  static constexpr std::size_t kMaxStreams = 8;
  static constexpr std::size_t kMaxMisses = 16;

  bool happened = false;
  Error error = Error::out_of_memory;
  MissReason reason = MissReason::budget;
  FailureCause cause = FailureCause::memory;
  std::uint64_t time_ns = 0;
  std::uint64_t requested_bytes = 0;
  std::uint64_t limit_bytes = 0;
  std::uint64_t held_bytes = 0;
  std::uint64_t live_requested_bytes = 0;
  std::uint64_t waste_bytes = 0;
  std::uint64_t cached_bytes = 0;
  std::uint64_t pending_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t largest_free_block_bytes = 0;
  /// The largest request that would have worked: also under Recycling::off with all that could have
  /// been given back.
  std::uint64_t largest_satisfiable_bytes = 0;
  std::uint64_t device_free_bytes = 0;
  std::uint64_t device_total_bytes = 0;
  /// No stretch of addresses that is long enough is left, wherever pages are: reason `fragmented`.
  bool is_address_space_used_up = false;

  // What was asked, in full.
  std::string pool;
  std::uint64_t requested_alignment = 0;
  bool is_contiguous = false;   // of AllocationClass::contiguous
  std::uint64_t stream_id = 0;  // 0: of no stream that is known
  std::optional<std::uint64_t> stream_handle;
  std::string tag;  // empty: none

  // Which limit.
  LimitKind limit_kind = LimitKind::capacity_bytes;
  double capacity_fraction = 0;            // where it was given so
  std::uint64_t limit_in_force_bytes = 0;  // min(limit, held + device free)

  // What is in the way.
  std::uint64_t fallback_bytes = 0;              // of held, outside the arena
  std::vector<PendingOfStream> pending_streams;  // most bytes first, at most kMaxStreams
  std::uint64_t further_pending_streams = 0;     // with fewer each
  std::uint64_t pending_elsewhere_bytes = 0;     // of those, and of several streams at once
  std::vector<TagBytes> live_by_tag;             // most bytes first, those with any
  std::vector<MissRecord> last_misses;           // the newest first, this one not among them

  // What was tried.
  std::array<RungReport, kLadderRungCount> rungs{};
  std::uint64_t waited_ns = 0;  // on the rung `wait`
  int retries = 0;              // that the handler asked for

  /// The calling process was forked from the one that made the pool, which is closed to it.
  bool is_process_gone = false;

  /// One line for a log: what was asked, what there was, which limit, why not.
  std::string headline() const;
  /// For a person: a first line that says what is wrong, then a table, at most 25 lines; ends
  /// without a line break.
  std::string text() const;
  /// One object, valid JSON (RFC 8259); names of fields are those above.
  std::string json() const;
};

}  // namespace gpupool

#endif  // GPUPOOL_FAILURE_REPORT_H_
