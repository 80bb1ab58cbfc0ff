// What a pool counts. One snapshot, StatsV1, has every number that later versions of this library
// fill; a field that nothing feeds yet is 0.
//
// Definitions (exact at rest; while threads allocate, each figure is as of some moment during the
// call that made the snapshot, and the equations hold all the same):
//   requests = hits + misses            a request is a call with bytes > 0
//   hit      served, and the asking thread made no driver call and waited for none, nor an event
//   miss     every other request, failures and fallbacks included; the first reason that applies;
//            Pool::allocate_for_any_stream, which waits for an event, is none but misses
//   held     = live_requested + waste + cached + pending + free
//   held     = what the device counts as taken through this pool's backend
//   waste    rounding and slab tails;   cached: in threads' caches in front of the shared tiers, or
//            on its way between them;
//   pending  in the shared tiers, with work that is not known to be complete, or of a private pool,
//            which may be launched again;   free: the rest
//   pinned   what private pools hold, live or pending: their chunks as a whole, their runs, their
//            fallbacks; also while ordinary work is to be waited for as well; and runs of others
//            that a capture has used (record_stream, record_use) and that were freed since
//   released, trimmed   see ReleaseReason and TrimReason
//   driver_calls  every create, map, set-access, unmap, release, cudaMalloc, cudaFree, any thread
//   largest_free_block   the largest request that would be served now without the driver
//   largest_satisfiable  the largest that the policy in force could serve up to the limit
//   fragmentation_ratio  1 - largest_satisfiable / (limit in force - live - waste - pending -
//                        cached), 0 where that is under 1 % of the limit; of the limit in force
//                        what is beyond held in whole pages
// Both "largest" are for a stream that has freed nothing, with pending and cached as occupied, and
// so what is pinned; largest_satisfiable under Recycling::off without what goes back only before a
// request would fail.
// "Known" means as of the last completion seen: Pool::maintain looks.
//
// Units: bytes and nanoseconds. Counters only rise while the pool lives.
// Thread safety: plain values.
#ifndef GPUPOOL_STATS_H_
#define GPUPOOL_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "gpupool/tag.h"

namespace gpupool {

/// Why a request was no hit: the first that applies. Of the last two, invalid comes before all
/// others, and driver is for what failed though memory may have been there.
enum class MissReason : std::uint8_t {
  size,        // overflows, or alone larger than the limit
  budget,      // the limit or the device is full, even if all pending work were done
  pending,     // would have been served if pending work were done; what is pinned never is
  fragmented,  // enough bytes were free, no run of them was long enough
  cold,        // the pool grew
  invalid,     // its alignment, stream or private pool is not valid here: FailureCause says which
  driver,      // a call of the driver failed, but not for want of memory
};
inline constexpr std::size_t kMissReasonCount = 7;
/// Of those, the ones that say something of memory stand first.
inline constexpr std::size_t kMemoryReasonCount = 5;

/// Why a request was served by a driver allocation of its own.
enum class FallbackReason : std::uint8_t {
  contiguous,     // AllocationClass::contiguous asks for one
  arena_failed,   // the driver refused to grow the arena
  address_space,  // the arena has no range of addresses left that is long enough
  alignment,      // the arena cannot give this alignment
};
inline constexpr std::size_t kFallbackReasonCount = 4;

/// Why memory went back to the driver. The bytes of all reasons are what it took back while the
/// pool lives, all of it: held = got - released.
enum class ReleaseReason : std::uint8_t {
  trim,      // it was empty, see TrimReason
  rollback,  // it was got for a growth that failed half way, or that was begun anew
  fallback,  // a fallback block was freed
  retry,     // the driver had refused to take it before, for any of the others
};
inline constexpr std::size_t kReleaseReasonCount = 4;

/// Why a trim was made. The bytes of all reasons are those of ReleaseReason::trim: what the driver
/// took of empty memory at once. What else goes back in the same call, fallbacks and what is tried
/// again, counts as what it is.
enum class TrimReason : std::uint8_t {
  api,            // the program asked
  idle,           // nobody used the memory for a while
  pressure,       // another process needs memory on the device
  out_of_memory,  // for a request that could not have been served otherwise
  recycle,        // segments of cudaMalloc, which do not move: others are held in their place
};
inline constexpr std::size_t kTrimReasonCount = 5;

/// Which tier served a hit.
enum class Tier : std::uint8_t { cache, size_class, buddy, run };
inline constexpr std::size_t kTierCount = 4;

/// Driver operations that count as driver_calls.
enum class DriverOperation : std::uint8_t {
  create,
  map,
  set_access,
  unmap,
  release,
  allocate,    // cudaMalloc
  deallocate,  // cudaFree
};
inline constexpr std::size_t kDriverOperationCount = 7;

/// What a program did wrong. Counted, reported, refused; state unchanged.
enum class Misuse : std::uint8_t {
  double_free,
  foreign_pointer,   // never given out by this pool
  interior_pointer,  // inside a block, not its start
  wrong_device,      // given with another device than the block's (ignored)
  wrong_size,        // given with another size than the block's (ignored)
  unknown_stream,    // a StreamRef of another pool or of a stream already released
  leak,              // blocks still live when the pool ended
  canary,            // something was written behind the block's end (DebugOptions::canary)
};
inline constexpr std::size_t kMisuseCount = 8;

/// How memory that one stream freed came to be used by another. What becomes complete together, and
/// joins, counts as `completed` once, where another stream is the first that takes of it: blocks
/// inside a chunk, and pages that move, are not told apart.
enum class CrossStreamReuse : std::uint8_t {
  completed,   // the work before the free was known to be complete
  waited,      // the pool made the stream wait for it
  dependency,  // the program had (Pool::note_dependency)
};
inline constexpr std::size_t kCrossStreamReuseCount = 3;

/// What is tried for a request that its thread's cache and the shared tiers do not serve, one rung
/// after the other; between any two the request is looked for again.
enum class LadderRung : std::uint8_t {
  caches,         // what threads have cached, the asking one first, goes to the shared tiers
  events,         // it is seen which work is complete
  other_streams,  // memory that other streams freed, as CrossStreamPolicy lets it
  recycle,        // empty pages move to where they are needed
  grow,           // pages, or a block by itself, are got from the driver
  trim,           // empty memory and finished fallbacks go back, so that there is room to grow
  wait,           // for pending work to complete, see OutOfMemoryOptions
  callback,       // PoolOptions::out_of_memory_handler has asked for a retry
};
inline constexpr std::size_t kLadderRungCount = 8;

inline constexpr std::size_t kMaxWatchedSizes = 4;
/// Run and buddy sizes are counted by floor(log2(bytes)), from 4 KiB (12) up.
inline constexpr std::size_t kSizeLog2Count = 48;
/// Durations are counted in buckets with upper bounds 2^i * 64 ns, the last without bound.
inline constexpr std::size_t kDurationBuckets = 28;
/// Request sizes are counted in buckets with upper bounds 512 B * 4^i, the last without bound.
inline constexpr std::size_t kSizeBuckets = 14;

const char* to_string(MissReason value) noexcept;
const char* to_string(FallbackReason value) noexcept;
const char* to_string(ReleaseReason value) noexcept;
const char* to_string(TrimReason value) noexcept;
const char* to_string(Tier value) noexcept;
const char* to_string(DriverOperation value) noexcept;
const char* to_string(Misuse value) noexcept;
const char* to_string(CrossStreamReuse value) noexcept;
const char* to_string(LadderRung value) noexcept;

/// One misuse, as the handler gets it.
struct MisuseReport {
  Misuse kind = Misuse::foreign_pointer;
  const void* pointer = nullptr;  // what the caller gave
  const void* block = nullptr;    // start of the block it concerns, nullptr if none
  std::uint64_t block_bytes = 0;  // that block's requested size
  std::uint64_t given = 0;     // the size, device or count given; canary: offset of the first byte
  bool first_of_kind = false;  // log only these, count all
  Tag tag = kUntagged;         // canary: what the block is for
};

/// Durations in a histogram: count[i] fell at or below its bound and above the one before.
struct DurationHistogram {
  std::array<std::uint64_t, kDurationBuckets> count{};
  std::uint64_t sum_ns = 0;
};

struct WatchedSize {
  std::uint64_t bytes = 0;
  bool fits = false;  // would be served without failing
  /// Of mapped_free_bytes, what is in pieces that could not serve it: runs shorter than that, and
  /// all that is free in chunks; of which, up to 128 KiB, slots of its size class could, and of
  /// each chunk the largest free block, if it has room for the request or, up to 32 KiB, its slab.
  std::uint64_t unusable_free_bytes = 0;
};

struct StatsV1 {
  std::uint32_t size = sizeof(StatsV1);
  std::uint32_t version = 1;
  std::uint64_t time_ns = 0;        // of the pool's clock
  std::uint64_t start_time_ns = 0;  // of the same clock
  std::uint64_t start_unix_ns = 0;  // wall clock at the pool's start

  // Requests.
  std::uint64_t requests = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t failures = 0;   // requests that were not served; part of misses
  std::uint64_t fallbacks = 0;  // requests served outside the arena; part of misses
  std::uint64_t frees = 0;      // blocks given back
  /// Of served requests; and of those that failed only when the device was waited for.
  std::uint64_t requested_bytes_total = 0;
  std::array<std::uint64_t, kMissReasonCount> misses_by_reason{};
  std::array<std::uint64_t, kMissReasonCount> failures_by_reason{};
  std::array<std::uint64_t, kFallbackReasonCount> fallbacks_by_reason{};
  std::array<std::uint64_t, kTierCount> hits_by_tier{};
  std::array<std::uint64_t, kSizeBuckets> requests_by_size{};

  // Driver.
  std::uint64_t driver_calls = 0;
  std::uint64_t driver_failures = 0;
  std::uint64_t driver_ns = 0;       // all driver calls, any thread
  std::uint64_t driver_wait_ns = 0;  // what allocating threads waited, own calls included
  std::array<std::uint64_t, kDriverOperationCount> driver_calls_by_operation{};
  std::array<std::uint64_t, kDriverOperationCount> driver_failures_by_operation{};
  std::array<DurationHistogram, kDriverOperationCount> driver_duration{};

  // Latency of allocations by the tier that served them, sampled; index kTierCount: misses, all.
  std::array<DurationHistogram, kTierCount + 1> allocation_duration{};

  // Bytes. held = live_requested + waste + cached + pending + free.
  std::uint64_t held_bytes = 0;
  std::uint64_t live_requested_bytes = 0;
  std::uint64_t waste_bytes = 0;
  std::uint64_t cached_bytes = 0;
  std::uint64_t pending_bytes = 0;  // freed, not yet for every stream; runs: none with one stream
  std::uint64_t free_bytes = 0;
  std::uint64_t fallback_bytes = 0;     // of held, in blocks outside the arena
  std::uint64_t mapped_free_bytes = 0;  // of free, what is mapped
  std::uint64_t pinned_bytes = 0;       // by private pools, live or pending
  std::uint64_t metadata_bytes = 0;     // host memory of the pool's own tables, resident bound

  // Limits and the device.
  std::uint64_t limit_bytes = 0;           // as set last; what was held then may be more
  std::uint64_t limit_in_force_bytes = 0;  // min(limit, held + device free as last read)
  std::uint64_t reserve_bytes = 0;
  std::uint64_t device_total_bytes = 0;
  std::uint64_t device_free_bytes = 0;  // as last read
  std::uint64_t device_read_time_ns = 0;
  std::uint64_t address_range_bytes = 0;
  std::uint64_t address_range_used_bytes = 0;  // highest address ever mapped

  // Fragmentation.
  std::uint64_t largest_free_block_bytes = 0;
  std::uint64_t largest_satisfiable_bytes = 0;
  double fragmentation_ratio = 0;
  double raw_fragmentation_ratio = 0;  // 1 - largest_free_block / mapped free bytes
  std::array<std::uint64_t, kSizeLog2Count> free_runs_by_log2{};  // count
  std::array<std::uint64_t, kSizeLog2Count> free_run_bytes_by_log2{};
  std::array<std::uint64_t, kSizeLog2Count> free_buddies_by_log2{};  // count, inside chunks
  std::array<WatchedSize, kMaxWatchedSizes> watched{};
  std::uint64_t watched_count = 0;

  // Peaks, since the start or Pool::reset_peaks. Requested bytes: exact while one thread uses the
  // pool. With more it is off by up to 8 MiB for each of them, or 0.8 % in all, the larger: too
  // low, or, where one thread frees what another allocates, by as much and a block too high.
  std::uint64_t peak_requested_bytes = 0;
  std::uint64_t peak_held_bytes = 0;
  std::uint64_t largest_free_block_at_peak_held_bytes = 0;
  std::uint64_t window_peak_requested_bytes = 0;  // of the last 60 s
  std::uint64_t window_peak_held_bytes = 0;

  // Objects.
  std::uint64_t live_blocks = 0;
  std::uint64_t runs = 0;  // free and taken
  std::uint64_t chunks = 0;
  std::uint64_t slabs = 0;
  std::uint64_t segments = 0;  // physical handles or cudaMalloc segments
  std::uint64_t streams = 0;
  std::uint64_t thread_caches = 0;  // one for each thread and each stream that it has used

  // Movement.
  std::uint64_t pages_mapped = 0;    // got from the driver
  std::uint64_t pages_unmapped = 0;  // given back to it
  std::uint64_t pages_recycled = 0;  // moved to where a request needed them
  std::uint64_t recycle_ns = 0;      // in the driver for that, any thread
  std::array<std::uint64_t, kReleaseReasonCount> released_bytes_by_reason{};
  std::array<std::uint64_t, kTrimReasonCount> trims_by_reason{};  // by which anything went back
  std::array<std::uint64_t, kTrimReasonCount> trimmed_bytes_by_reason{};
  std::uint64_t splits = 0;
  std::uint64_t merges = 0;
  std::uint64_t retries = 0;  // rounds of giving back caches and searching again
  std::uint64_t maintain_steps = 0;

  // Streams.
  std::array<std::uint64_t, kCrossStreamReuseCount> cross_stream_reuse{};
  std::uint64_t epochs_closed = 0;
  std::uint64_t events_recorded = 0;
  std::uint64_t stream_waits = 0;
  std::uint64_t stream_mismatches = 0;

  // Misuse.
  std::array<std::uint64_t, kMisuseCount> misuses{};

  // Tags, in the order of PoolOptions::tags; untagged bytes are live minus their sum.
  std::array<std::uint64_t, kMaxTags> tag_live_bytes{};
  std::uint64_t tag_count = 0;

  // Options in force, by the numbers of their enums.
  std::uint8_t recycling = 0;
  std::uint8_t policy = 0;
  std::uint8_t backing = 0;
  /// 1: other threads claim a cache by membarrier(2); 0: the system refuses that, and each request
  /// and each free that a cache serves pays for a locked exchange instead.
  std::uint8_t has_asymmetric_claims = 0;
  double slack = 0;
  double threshold_fragmentation_ratio = 0;
  std::uint64_t threshold_required_block_bytes = 0;
  std::uint64_t reconfigurations = 0;
  std::uint8_t alias_reuse = 0;

  // Addresses.
  std::uint64_t stale_pages = 0;     // that moved pages have left, and that are still mapped
  std::uint64_t address_ranges = 0;  // reserved; each as long as the first, at most 4

  // The out-of-memory ladder. A request counts once for each rung that was tried for it, whether
  // that was needed or not, and once, if it is served, for the last of those that gave it anything.
  std::array<std::uint64_t, kLadderRungCount> ladder_tries{};
  std::array<std::uint64_t, kLadderRungCount> ladder_successes{};
  std::uint64_t out_of_memory_wait_ns = 0;  // on the rung `wait`; part of driver_wait_ns
  std::uint64_t wait_option_ns = 0;         // OutOfMemoryOptions::wait_ns in force

  // Guards.
  std::uint64_t guard_fills = 0;      // blocks filled on the device for scrub or poison
  std::uint64_t guard_postponed = 0;  // frees at which scrub could not be done: DESIGN, "Guards"

  // Growth under `eager` while the wait for pages to move was used up: new ones, if need be.
  std::uint64_t recycling_forgone = 0;
  double recycling_wait = 0;  // RuntimeOptions::recycling_wait in force

  std::uint64_t closed_calls = 0;  // in a forked child, whose statistics have nothing else

  double threshold_critical_fragmentation_ratio = 0;
  double threshold_fallback_ratio = 0;

  std::uint64_t unpinned_pending_bytes = 0;  // of pending, what no private pool keeps
};

}  // namespace gpupool

#endif  // GPUPOOL_STATS_H_
