// Chains of blocks of one stream that one thread has freed and another may take whole: how memory
// that is allocated here and freed there goes back without a step for each block.
//
//   bytes() = sum of the chains' bytes; run_bytes() <= run_quota()
//
// All blocks were freed on the stream, and whoever takes them allocates on it, so that stream order
// alone makes reuse safe. Small ones stay linked, the chains of a bin through
// BlockRecord::low_bytes of their first blocks, which also say how many blocks they have. Runs are
// named in an array, so that whoever takes them has all their records fetched at once from the
// processor that freed them, and not one after the other.
//
// Thread safety: under lock(), a leaf: nothing is waited for while it is held. What says so may be
// asked without, as of a moment ago. Who puts or takes is inside the claim of a cache of the
// stream, or holds the pool's lock, so that a stream's end finds all that was handed over.
// Cost: O(1) a chain.
#ifndef GPUPOOL_CACHE_DEPOT_H_
#define GPUPOOL_CACHE_DEPOT_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/relaxed.h"
#include "base/spin_lock.h"
#include "cache/bin.h"
#include "cache/magazines.h"
#include "cache/run_bins.h"
#include "cache/run_demand.h"

namespace gpupool::internal {

class alignas(64) Depot {
 public:
  static constexpr std::size_t kMaxBatches = 16;

  SpinLock& lock() noexcept { return lock_; }

  void put(std::uint32_t bin, Chain chain, BlockRecord* records);
  Chain take(std::uint32_t bin, BlockRecord* records);
  /// False: there is no place for another batch.
  bool put_runs(const RunBatch& batch);
  /// The newest of a batch of that size, at most `most`; none where there is no batch.
  RunBatch take_runs(std::uint32_t units, std::uint32_t most);
  /// Takes out any batch.
  RunBatch take_any_runs();

  /// One that has a chain. Requires: small_bytes() > 0.
  std::uint32_t any_bin() const noexcept {
    const std::size_t word = bins_[0] != 0 ? 0 : 1;
    return static_cast<std::uint32_t>(word * 64 +
                                      static_cast<std::size_t>(std::countr_zero(bins_[word])));
  }
  /// Bytes of runs that the depot may have: kept, so that it need not be asked for each time.
  std::uint64_t run_quota() const noexcept { return run_quota_; }
  void add_run_quota(std::uint64_t bytes) noexcept { run_quota_ += bytes; }
  /// Takes away what is not used of it.
  std::uint64_t take_idle_quota() noexcept {
    return std::exchange(run_quota_, run_bytes()) - run_bytes();
  }
  /// Whether anything was put or taken since the last call.
  bool was_touched() noexcept {
    const bool touched = is_touched_;
    is_touched_ = false;
    return touched;
  }

  /// Not under lock() but the pool's: what the stream's caches may keep of its runs.
  RunDemand& demand() noexcept { return demand_; }
  const RunDemand& demand() const noexcept { return demand_; }

  // Without the lock, too.
  std::uint32_t head(std::uint32_t bin) const noexcept { return heads_[bin].get(); }
  /// False: take_runs() would find none.
  bool may_have_runs(std::uint32_t units) const noexcept {
    return (sizes_.get() & size_bit(units)) != 0;
  }
  std::uint64_t small_bytes() const noexcept { return small_bytes_.get(); }
  std::uint64_t run_bytes() const noexcept { return run_bytes_.get(); }
  std::uint64_t bytes() const noexcept { return small_bytes() + run_bytes(); }

 private:
  RunBatch take_from(std::uint32_t place, std::uint32_t most);
  static std::uint64_t size_bit(std::uint32_t units) noexcept {
    return std::uint64_t{1} << units * std::uint32_t{0x9e3779b9} / (std::uint32_t{1} << 26);
  }

  // What a batch of up to six runs needs lies in the first line, which is all that has to come from
  // the other processor then.
  SpinLock lock_;
  bool is_touched_ = false;
  std::uint16_t used_ = 0;        // a bit for each batch that there is
  Relaxed<std::uint64_t> sizes_;  // of the runs: a bit for each, by a hash
  Relaxed<std::uint64_t> run_bytes_;
  std::uint64_t run_quota_ = 0;
  std::array<RunBatch, kMaxBatches> batches_{};
  static_assert(kMaxBatches == 16);
  Relaxed<std::uint64_t> small_bytes_;
  std::array<std::uint64_t, 2> bins_{};  // that have a chain
  static_assert(kBinCount <= 128);
  std::array<Relaxed<std::uint32_t>, kBinCount> heads_{};
  RunDemand demand_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_CACHE_DEPOT_H_
