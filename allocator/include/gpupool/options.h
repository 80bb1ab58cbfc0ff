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

/// How the arena gets its memory from the driver.
enum class Backing : std::uint8_t {
  vmm,        // one address range, physical handles mapped on demand (default)
  cudamalloc  // segments by cudaMalloc, for machines and buffers that cannot use VMM
};

/// What is done with empty pages when a request needs pages where there are none. A page is empty
/// when all of it is free and the work that used it is known complete. Moving one takes the driver
/// about 40 us, of which a request waits for 28; docs/DESIGN.md has what each choice holds and
/// costs. With cudaMalloc segments, which cannot move, an empty one goes back to the driver
/// instead.
enum class Recycling : std::uint8_t {
  off,       // they stay where they are until trimmed
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
  never,      // only by its own stream; not available yet
  when_done,  // once the work before the free is known to be complete (default)
  wait        // at once, the new stream being made to wait for the old one; not available yet
};

/// What happens on a double free, a foreign pointer, and so on. Always counted and refused.
enum class OnMisuse : std::uint8_t {
  report,  // call the misuse handler (default)
  abort    // call the misuse handler, then end the program; not for wrong sizes and leaks
};

/// An upper bound of what a pool holds: bytes, at least a page, or a fraction (0, 1] of the memory
/// that the device has free when the pool starts, in whole pages.
using CapacityLimit = std::variant<double, std::uint64_t>;
/// A page; a smaller CapacityLimit is refused.
inline constexpr std::uint64_t kMinCapacityBytes = std::uint64_t{2} << 20;

/// Values at which alerts fire; exported, and compared by nobody inside the pool yet.
struct Thresholds {
  double fragmentation_ratio = 0.5;
  /// The largest request that this process will make; 0: not declared.
  std::uint64_t required_block_bytes = 0;
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

/// What Pool::reconfigure may change while the pool is in use.
struct RuntimeOptions {
  Recycling recycling = Recycling::eager;
  /// How many pages more than were ever occupied may be held, as a fraction, under `eager`.
  double slack = 0.005;
  AliasReuse alias_reuse = AliasReuse::wait;
  CrossStreamPolicy policy = CrossStreamPolicy::when_done;
  TrimOptions trim;
  Thresholds thresholds;
};

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
  /// Time for ages, peaks and histories; nullptr: the backend's clock. Outlives the pool.
  const Clock* clock = nullptr;
  /// Told of each slow-path event; outlives the pool.
  SlowPathObserver* observer = nullptr;
};

const char* to_string(Backing value) noexcept;
const char* to_string(Recycling value) noexcept;
const char* to_string(AliasReuse value) noexcept;
const char* to_string(CrossStreamPolicy value) noexcept;
const char* to_string(OnMisuse value) noexcept;

}  // namespace gpupool

#endif  // GPUPOOL_OPTIONS_H_
