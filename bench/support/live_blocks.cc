#include "bench/support/live_blocks.h"

namespace gpupool::bench {

LiveBlocks::LiveBlocks(BenchPool& pool, std::uint64_t count)
    : pool_(pool), stream_(pool.open_stream()) {
  blocks_.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    blocks_.push_back(pool_.allocate(next_bytes(), stream_));
  }
}

LiveBlocks::~LiveBlocks() {
  for (void* const block : blocks_) pool_.deallocate(block, stream_);
}

void LiveBlocks::replace_one() {
  void*& block = blocks_[random_.next() % blocks_.size()];
  pool_.deallocate(block, stream_);
  block = pool_.allocate(next_bytes(), stream_);
}

std::size_t LiveBlocks::next_bytes() {
  constexpr std::uint64_t kSmallestBytes = 512;
  constexpr std::uint64_t kLargestBytes = 64 << 10;
  return kSmallestBytes + random_.next() % (kLargestBytes - kSmallestBytes + 1);
}

}  // namespace gpupool::bench
