// Chains of blocks of one stream that one thread has freed and another may take whole: how memory
// that is allocated here and freed there goes back without a step for each block.
//
//   bytes() = sum of the chains' bytes
//
// All blocks were freed on the stream, and whoever takes them allocates on it, so that stream order
// alone makes reuse safe. Chains of a bin are linked through BlockRecord::low_bytes of their first
// blocks, which also say how many blocks they have.
//
// Thread safety: under the pool's lock. Cost: O(1) a chain.
#ifndef GPUPOOL_CACHE_DEPOT_H_
#define GPUPOOL_CACHE_DEPOT_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "cache/bin.h"
#include "cache/magazines.h"
#include "cache/run_bins.h"

namespace gpupool::internal {

class Depot {
 public:
  void put(std::uint32_t bin, Chain chain, BlockRecord* records);
  Chain take(std::uint32_t bin, BlockRecord* records);
  /// False: there is no place for another size.
  bool put_runs(const RunChain& chain, Run* blocks);
  /// False: take_runs() would find none.
  bool may_have_runs(std::uint32_t units) const noexcept { return (sizes_ & size_bit(units)) != 0; }
  /// Empty if there is none of that size.
  RunChain take_runs(std::uint32_t units, Run* blocks);
  /// Takes out any chain.
  RunChain take_any_runs(Run* blocks);

  std::uint32_t head(std::uint32_t bin) const noexcept { return heads_[bin]; }
  /// One that has a chain. Requires: small_bytes() > 0.
  std::uint32_t any_bin() const noexcept {
    const std::size_t word = bins_[0] != 0 ? 0 : 1;
    return static_cast<std::uint32_t>(word * 64 +
                                      static_cast<std::size_t>(std::countr_zero(bins_[word])));
  }
  std::uint64_t small_bytes() const noexcept { return small_bytes_; }
  std::uint64_t run_bytes() const noexcept { return run_bytes_; }
  std::uint64_t bytes() const noexcept { return small_bytes_ + run_bytes_; }
  /// Whether anything was put or taken since the last call.
  bool was_touched() noexcept {
    const bool touched = is_touched_;
    is_touched_ = false;
    return touched;
  }

 private:
  struct Slot {
    std::uint32_t head = 0;
    std::uint32_t units = 0;
  };
  RunChain take_from(Slot& slot, Run* blocks);
  static std::uint64_t size_bit(std::uint32_t units) noexcept {
    return std::uint64_t{1} << units * std::uint32_t{0x9e3779b9} / (std::uint32_t{1} << 26);
  }

  std::array<std::uint32_t, kBinCount> heads_{};
  std::array<std::uint64_t, 2> bins_{};  // that have a chain
  static_assert(kBinCount <= 128);
  std::array<Slot, 16> slots_{};
  std::uint64_t sizes_ = 0;  // of the runs: a bit for each, by a hash
  std::uint64_t small_bytes_ = 0;
  std::uint64_t run_bytes_ = 0;
  bool is_touched_ = false;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_CACHE_DEPOT_H_
