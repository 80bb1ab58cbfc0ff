// What one thread counts for a pool: a shard of StatsV1 with one writer, summed when it is read.
//
// The number of blocks handed out and taken back in each bin stands for requests, hits and their
// sizes, so that a hit counts twice only: its bin, and its bytes.
//
//   live requested bytes = allocated_bytes - freed_bytes, summed over all shards
//   blocks in T0         = blocks out of the shared tiers - blocks handed out + blocks taken back
//
// Peaks: with one shard, `high` is the highest that the shard's live bytes were since it was last
// looked at, and nothing else is needed. With more, a shard that has moved by a step since the last
// sum (`low`, `high`) takes the slow path and has the sum taken: the error is below the number of
// shards times the step.
//
// Thread safety: written by the owning thread, read by any. Cost: a load and a store a field.
#ifndef GPUPOOL_CACHE_THREAD_COUNTERS_H_
#define GPUPOOL_CACHE_THREAD_COUNTERS_H_

#include <array>
#include <bit>
#include <cstdint>

#include "base/duration_bucket.h"
#include "base/relaxed.h"
#include "cache/bin.h"
#include "gpupool/stats.h"
#include "gpupool/tag.h"

namespace gpupool::internal {

/// False in the build that measures what statistics cost; its numbers are of no use.
#ifdef GPUPOOL_NO_STATISTICS
inline constexpr bool kHasStatistics = false;
#else
inline constexpr bool kHasStatistics = true;
#endif

inline constexpr std::size_t kSizeLog2 = 64;

/// The sum of several shards.
struct CounterTotals {
  std::array<std::uint64_t, kBinCount> allocations{};
  std::array<std::uint64_t, kBinCount> frees{};
  std::uint64_t allocated_bytes = 0;
  std::uint64_t freed_bytes = 0;
  std::array<std::uint64_t, kSizeLog2> large_allocations{};
  std::uint64_t large_frees = 0;
  std::uint64_t run_bytes_out = 0;
  std::uint64_t run_bytes_back = 0;
  std::array<std::uint64_t, kMaxTags> tag_bytes{};
  std::array<std::uint64_t, kTierCount> shared_hits{};
  std::array<std::uint64_t, kSizeBuckets> moved{};
  DurationHistogram hit_duration;

  // What is live may seem less than nothing, where a block went from one shard to another while
  // both were summed.
  std::uint64_t live_bytes() const noexcept { return at_least_none(net_bytes()); }
  std::int64_t net_bytes() const noexcept {
    return static_cast<std::int64_t>(allocated_bytes - freed_bytes);
  }
  std::uint64_t live_blocks() const noexcept {
    return at_least_none(static_cast<std::int64_t>(served() - freed()));
  }
  std::uint64_t live_bytes_of(std::size_t tag) const noexcept {
    return at_least_none(static_cast<std::int64_t>(tag_bytes[tag]));
  }
  /// Bytes of the blocks that programs hold, fallbacks excepted.
  std::uint64_t live_block_bytes() const noexcept;
  std::uint64_t served() const noexcept;
  std::uint64_t freed() const noexcept;

 private:
  static std::uint64_t at_least_none(std::int64_t value) noexcept {
    return value > 0 ? static_cast<std::uint64_t>(value) : 0;
  }
};

struct alignas(64) ThreadCounters {
  struct Bin {
    Relaxed<std::uint64_t> allocations;
    Relaxed<std::uint64_t> frees;
  };

  Relaxed<std::uint64_t> allocated_bytes;  // requested, of blocks handed out
  Relaxed<std::uint64_t> freed_bytes;      // requested, of blocks taken back
  Relaxed<std::int64_t> high;
  Relaxed<std::int64_t> low;
  Relaxed<std::uint64_t> large_frees;
  Relaxed<std::uint64_t> run_bytes_out;  // block bytes of runs handed out
  Relaxed<std::uint64_t> run_bytes_back;
  Relaxed<bool> is_alone;  // the only shard of the pool
  /// Runs and fallbacks, by the power of two that holds the request.
  std::array<Relaxed<std::uint64_t>, kSizeLog2> large_allocations;
  std::array<Relaxed<std::uint64_t>, kMaxTags> tag_bytes;  // live; wraps below zero
  std::array<Bin, kBinCount> bins;
  // Not on the path of a hit.
  std::array<Relaxed<std::uint64_t>, kTierCount> shared_hits;  // served by the shared tiers
  std::array<Relaxed<std::uint64_t>, kSizeBuckets> moved;  // requests that their bin says wrong of
  std::array<Relaxed<std::uint64_t>, kDurationBuckets> hit_count;  // of timed hits
  Relaxed<std::uint64_t> hit_ns;

  void start();

  // Each returns whether the pool has something to look at: the live bytes have made a step, or, of
  // an allocation, the next hit is to be timed.
  bool count_small(std::uint32_t bin, std::uint64_t bytes) noexcept {
    if constexpr (!kHasStatistics) return false;
    const std::uint64_t count = bins[bin].allocations.get() + 1;
    bins[bin].allocations.set(count);
    return count_allocated(bytes) || count % kSampleEvery == 0;
  }
  bool count_run(std::uint64_t bytes, std::uint64_t block_bytes) noexcept {
    if constexpr (!kHasStatistics) return false;
    Relaxed<std::uint64_t>& allocations = large_allocations[log2_up(bytes)];
    const std::uint64_t count = allocations.get() + 1;
    allocations.set(count);
    run_bytes_out.add(block_bytes);
    return count_allocated(bytes) || count % kSampleEvery == 0;
  }
  bool count_small_free(std::uint32_t bin, std::uint64_t bytes) noexcept {
    if constexpr (!kHasStatistics) return false;
    bins[bin].frees.add(1);
    return count_freed(bytes);
  }
  bool count_run_free(std::uint64_t bytes, std::uint64_t block_bytes) noexcept {
    if constexpr (!kHasStatistics) return false;
    large_frees.add(1);
    run_bytes_back.add(block_bytes);
    return count_freed(bytes);
  }
  void count_tagged(std::uint32_t tag, std::uint64_t bytes) noexcept {
    if constexpr (kHasStatistics) tag_bytes[tag].add(bytes);
  }
  void count_tagged_free(std::uint32_t tag, std::uint64_t bytes) noexcept {
    if constexpr (kHasStatistics) tag_bytes[tag].add(0 - bytes);
  }

  /// One hit in so many is timed.
  static constexpr std::uint64_t kSampleEvery = 1024;

  std::int64_t live() const noexcept {
    const Pair bytes = read(allocated_bytes, freed_bytes);
    return static_cast<std::int64_t>(bytes.up - bytes.down);
  }
  /// Of an allocation that was counted just now: whether the next hit is to be timed.
  bool is_timing_due(std::uint64_t bytes) const noexcept {
    const std::uint64_t count = bytes > kChunkBytes ? large_allocations[log2_up(bytes)].get()
                                                    : bins[bin_of(bytes)].allocations.get();
    return count % kSampleEvery == 0;
  }
  /// Whether the live bytes have left [low, high]. By the owner.
  bool has_stepped() const noexcept {
    const auto now = static_cast<std::int64_t>(allocated_bytes.get() - freed_bytes.get());
    return now < low.get() || now > high.get();
  }
  /// Where the live bytes have fallen below the marks, sets those one step around them. False: they
  /// have not, or somebody else is just setting them. By the owner.
  bool sink() noexcept {
    const auto live = static_cast<std::int64_t>(allocated_bytes.get() - freed_bytes.get());
    const std::int64_t before = low.get();
    const std::int64_t top = high.get();
    if (live >= before) return false;
    const std::int64_t step = (top - before) / 2;
    // Others set marks under the pool's lock, for good reason: theirs stay.
    return low.exchange_if(before, live - step) && high.exchange_if(top, live + step);
  }
  void count_hit_duration(std::uint64_t ns) noexcept {
    hit_count[duration_bucket(ns)].add(1);
    hit_ns.add(ns);
  }
  void add_to(CounterTotals& totals) const;

 private:
  /// Two counters whose difference is what is live.
  struct Pair {
    std::uint64_t up = 0;
    std::uint64_t down = 0;
  };
  /// Both as they were at one moment: one read after the other, the difference would be of no
  /// moment at all while the owner allocates and frees in turn. Where the owner never stands still
  /// that long, what is live seems too little, not too much.
  static Pair read(const Relaxed<std::uint64_t>& up, const Relaxed<std::uint64_t>& down) noexcept {
    constexpr int kMostTries = 64;
    Pair pair;
    for (int i = 0; i < kMostTries; ++i) {
      pair = {up.get_first(), down.get_first()};
      if (up.get() == pair.up) break;
    }
    return pair;
  }
  static std::size_t log2_up(std::uint64_t bytes) noexcept {
    // The bit that is set spares the question whether there is any.
    return std::size_t{63} - static_cast<unsigned>(std::countl_zero((bytes - 1) | 1)) + 1;
  }
  bool count_allocated(std::uint64_t bytes) noexcept {
    const std::uint64_t allocated = allocated_bytes.get() + bytes;
    allocated_bytes.set(allocated);
    const auto now = static_cast<std::int64_t>(allocated - freed_bytes.get());
    if (now <= high.get()) [[likely]]
      return false;
    if (!is_alone.get()) return true;
    high.set(now);
    return false;
  }
  bool count_freed(std::uint64_t bytes) noexcept {
    const std::uint64_t freed = freed_bytes.get() + bytes;
    freed_bytes.set(freed);
    return static_cast<std::int64_t>(allocated_bytes.get() - freed) < low.get();
  }
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_CACHE_THREAD_COUNTERS_H_
