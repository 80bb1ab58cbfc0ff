// Many live blocks of mixed sizes, 512 B to 64 KiB: the state of a pool in the middle of its work,
// for benchmarks that ask whether a cost grows with the number of blocks.
//
// The sizes come from a fixed seed, so that every run has the same blocks.
// Thread safety: one thread. Cost: an allocation a block.
#ifndef GPUPOOL_BENCH_SUPPORT_LIVE_BLOCKS_H_
#define GPUPOOL_BENCH_SUPPORT_LIVE_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/support/bench_pool.h"

namespace gpupool::bench {

/// A small generator of random numbers (xorshift64), cheap beside what is measured.
class Random {
 public:
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  std::uint64_t state_ = 0x9e37'79b9'7f4a'7c15;
};

class LiveBlocks {
 public:
  /// Requires: `pool` outlives this; count > 0.
  LiveBlocks(BenchPool& pool, std::uint64_t count);
  ~LiveBlocks();
  LiveBlocks(const LiveBlocks&) = delete;
  LiveBlocks& operator=(const LiveBlocks&) = delete;

  StreamRef stream() const { return stream_; }
  /// Frees a random block and allocates one of a random size in its place.
  void replace_one();

 private:
  std::size_t next_bytes();

  BenchPool& pool_;
  StreamRef stream_;
  Random random_;
  std::vector<void*> blocks_;
};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_SUPPORT_LIVE_BLOCKS_H_
