// What a pool is given when it starts, and the part of it that may change while it runs.
//
// All sizes are bytes. Defaults are the ones in the comments; docs/DESIGN.md explains the choices.
// Thread safety: plain values.
#ifndef GPUPOOL_OPTIONS_H_
#define GPUPOOL_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "gpupool/clock.h"
#include "gpupool/stats.h"

namespace gpupool {

class SlowPathObserver;
struct FailureReport;

/// How the arena gets its memory from the driver.
enum class Backing : std::uint8_t {
  vmm,        // one address range, physical handles mapped on demand (default)
  cudamalloc  // segments by cudaMalloc, for machines and buffers that cannot use VMM
};

/// What AllocationClass::contiguous is made of; docs/DESIGN.md has who takes what.
enum class ContiguousBacking : std::uint8_t {
  cudamalloc,  // a cudaMalloc each, which legacy IPC (cudaIpcGetMemHandle) takes (default)
  handle       // one physical handle each, with handle types and RDMA flag, for what is passed as
               // file descriptors and for NCCL; in whole pages. Legacy IPC refuses it
};

/// What is done with empty pages when a request needs pages where there are none. A page is empty
/// when all of it is free and the work that used it is known complete. Moving one takes the driver
/// about 40 us, of which a request waits for 28; docs/DESIGN.md has what each choice holds and
/// costs. With cudaMalloc segments, which cannot move, an empty one goes back to the driver
/// instead.
enum class Recycling : std::uint8_t {
  off,       // they stay where they are until trimmed, or a request would fail without them
  pressure,  // they are moved once the limit is reached, or the device has no more
  eager      // they are moved before more is held than was ever occupied, and slack (default)
};

/// How a page that is moved comes to its new address, where Recycling moves pages.
enum class AliasReuse : std::uint8_t {
  wait,        // once the work that used it is known to be complete (default)
  same_stream  // at once, where the asking stream alone has used it; CUDA's programming guide calls
               // kernels that were already resident when it was written incoherent through the new
               // address, dependent launches among them: docs/DESIGN.md
};

/// When memory freed on one stream may be reused by another.
enum class CrossStreamPolicy : std::uint8_t {
  never,  // only by its own stream, until that is released; but whole pages that are complete by
          // all, where the pool would grow otherwise (Recycling), or was trimmed
  when_done,  // once the work before the free is known to be complete (default)
  wait  // where nothing else fits but growing, also at once: the pool makes the new stream wait
        // for the old one (an event, 0.9 us), which the device then does
};

/// What happens on a double free, a foreign pointer, and so on. Always counted and refused.
enum class OnMisuse : std::uint8_t {
  report,  // call the misuse handler (default)
  abort    // call the misuse handler, then end the program; not for wrong sizes and leaks
};

/// An upper bound of what a pool holds: bytes, at least a page, or a fraction (0, 1] of the memory
/// that the device has free when the pool starts, in whole pages. Pool::set_capacity changes it.
using CapacityLimit = std::variant<double, std::uint64_t>;
/// A page; a smaller CapacityLimit is refused.
inline constexpr std::uint64_t kMinCapacityBytes = std::uint64_t{2} << 20;

/// Values at which alerts fire; exported, and what a ThresholdWatch compares with.
struct Thresholds {
  double fragmentation_ratio = 0.5;
  /// The largest request that this process will make; 0: not declared.
  std::uint64_t required_block_bytes = 0;
  /// Of the same ratio, for the alert that does not wait.
  double critical_fragmentation_ratio = 0.8;
  /// Of all requests, those that are served outside the arena.
  double fallback_ratio = 0.01;
};

/// More than any device has; a larger number in TrimOptions is refused.
inline constexpr std::uint64_t kMaxTrimBytes = std::uint64_t{1} << 60;

/// When Pool::maintain gives empty memory back by itself; never below the reserve.
struct TrimOptions {
  /// Memory that was empty for this long goes back; 0: never.
  std::uint64_t idle_after_ns = 0;
  /// At most so much of it a second; above 0 where that is. Up to one second's worth is saved up,
  /// so that the first second may give back twice as much.
  std::uint64_t idle_bytes_per_second = std::uint64_t{1} << 30;
  /// While the device has less than this free, empty memory goes back for whoever else is on it, at
  /// once; 0: never.
  std::uint64_t keep_device_free_bytes = 0;
};

/// The longest time in OutOfMemoryOptions.
inline constexpr std::uint64_t kMaxOutOfMemoryWaitNs = std::uint64_t{3600} * 1'000'000'000;

/// What a request may do before it fails.
struct OutOfMemoryOptions {
  /// How long it waits for pending work, if that could serve it, until enough is complete; 0:
  /// never. Nobody else is held up. The default is long beside what a device has queued up, which
  /// is tens of milliseconds and may be a few steps of a training job: a job that ends costs more
  /// than one that waits. It bounds the wait for a device that hangs.
  std::uint64_t wait_ns = 10'000'000'000;
};

/// What Pool::reconfigure may change while the pool is in use.
struct RuntimeOptions {
  Recycling recycling = Recycling::eager;
  /// How many pages more than were ever occupied may be held, as a fraction, under `eager`.
  double slack = 0.005;
  /// The largest share of the time that requests may wait for pages to move under `eager`, 0 to 1;
  /// what is not used of it is saved up, half a second at the most. Where it is used up more is
  /// held instead, as under `pressure`: once the pool has that, nothing moves. 1: no bound.
  double recycling_wait = 0.05;
  AliasReuse alias_reuse = AliasReuse::wait;
  CrossStreamPolicy policy = CrossStreamPolicy::when_done;
  TrimOptions trim;
  Thresholds thresholds;
  OutOfMemoryOptions out_of_memory;
};

/// How often PoolOptions::out_of_memory_handler may ask for another try of one request.
inline constexpr int kMaxOutOfMemoryRetries = 4;

/// Aids against wrong accesses. While any is on every call takes the pool's lock, and what it does
/// on the device is ordered in the stream of the call; off, they cost nothing. docs/DESIGN.md,
/// "Guards".
struct DebugOptions {
  /// A block is zeroed before anybody else gets it, for tenants that must not read each other.
  bool scrub = false;
  /// A block is filled with 0xCB when it is handed out and when it is freed; not with `scrub`.
  bool poison = false;
  /// kCanaryBytes behind each block are checked when it is freed, which waits for its stream, and
  /// by Pool::check_canaries: Misuse::canary.
  bool canary = false;
  /// Blocks are registered by NVTX, so that Compute Sanitizer finds accesses to memory that nobody
  /// holds; with Backing::cudamalloc alone, as only whole cudaMallocs can be told it.
  bool nvtx = false;

  bool is_any() const noexcept { return scrub || poison || canary || nvtx; }
};
inline constexpr std::uint64_t kCanaryBytes = 128;
inline constexpr std::uint8_t kPoisonByte = 0xcb;

inline constexpr std::size_t kMaxPeers = 16;

struct PoolOptions {
  /// Label of this pool in metrics; [A-Za-z0-9_.-]{1,64}.
  std::string name = "default";
  /// With VMM eight times as many addresses are reserved, rounded up to a power of two: of the
  /// simulated device for up to 1 TiB. More than the driver has is refused at the start.
  CapacityLimit capacity = 1.0;
  /// Held from the start and never given back by trimming; rounded up to pages,
  /// as far as the capacity has them.
  std::uint64_t reserve_bytes = 0;
  Backing backing = Backing::vmm;
  RuntimeOptions runtime;
  OnMisuse on_misuse = OnMisuse::report;
  /// Called for each misuse, under no lock, on the thread that did it. Must not throw.
  std::function<void(const MisuseReport&)> misuse_handler;
  /// Names of purposes, at most kMaxTags, each [A-Za-z0-9_.-]{1,64}, none twice.
  std::vector<std::string> tags = {"weights", "gradients", "activations", "optimizer",
                                   "communication"};
  /// Sizes whose "would it fit?" is watched, at most kMaxWatchedSizes.
  std::vector<std::uint64_t> watched_sizes = {std::uint64_t{1} << 30};
  /// Freed blocks up to 128 KiB that each thread keeps for each stream, in front of the shared
  /// tiers: its next request of the same size takes no lock. As much again, for each stream, may be
  /// on its way from threads that free to threads that allocate. What nobody takes for two seconds
  /// goes back, see Pool::maintain.
  std::uint64_t cache_small_bytes = std::uint64_t{4} << 20;
  /// Larger freed blocks kept so, in sum for the device, shared evenly by the caches that hold any;
  /// half as much again may be on its way between threads. With more of it more requests are quick,
  /// and more memory serves one size only.
  std::uint64_t cache_large_bytes = std::uint64_t{32} << 20;
  /// Asks the driver for the stream's identity at each call with a StreamRef, too. Every call then
  /// takes the pool's lock.
  bool verify_streams = false;
  ContiguousBacking contiguous = ContiguousBacking::cudamalloc;
  DebugOptions debug;
  /// Ordinals of the devices that may access this pool's memory, too, at most kMaxPeers;
  /// Backing::vmm alone. Memory that the driver allocates (AllocationClass::contiguous, other
  /// fallbacks) follows cudaDeviceEnablePeerAccess. Not with AliasReuse::same_stream.
  std::vector<int> peers;
  /// Time for ages, peaks and histories; nullptr: the backend's clock. Outlives the pool.
  const Clock* clock = nullptr;
  /// Told of each slow-path event; outlives the pool.
  SlowPathObserver* observer = nullptr;
  /// Called for a request that is about to fail for want of memory, under no lock, on the thread
  /// that asks. It may use the pool: free blocks, trim. True: the request is tried again, waiting
  /// included, up to kMaxOutOfMemoryRetries times. It is not called for a request that it makes
  /// itself. Must not throw, which would end the program.
  std::function<bool(const FailureReport&)> out_of_memory_handler;
};

const char* to_string(Backing value) noexcept;
const char* to_string(ContiguousBacking value) noexcept;
const char* to_string(Recycling value) noexcept;
const char* to_string(AliasReuse value) noexcept;
const char* to_string(CrossStreamPolicy value) noexcept;
const char* to_string(OnMisuse value) noexcept;

}  // namespace gpupool

#endif  // GPUPOOL_OPTIONS_H_
