// Whether it is of use to keep the runs that a stream frees: how many bytes of them came back for
// as the same size, before they would have been pushed out.
//
// What a cache keeps serves one size only, and keeps its neighbours from joining: on a serving
// trace of which no size comes back, 32 MiB of it cost 12 points of memory. So a cache may have
// what it was worth:
//
//   balance = start + what came back - 3 x what did not, in bytes
//   worth_bytes() = the balance, or 0 where it is below
//
// A run that is let go, pushed out by another or not taken in, counts as one that does not come
// back, until its size is asked for while it is still remembered: in one place, by a hash, until
// another size meets it there.
//
// Thread safety: under the pool's lock; worth_bytes() by anybody. Cost: O(1).
#ifndef GPUPOOL_CACHE_RUN_DEMAND_H_
#define GPUPOOL_CACHE_RUN_DEMAND_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/relaxed.h"
#include "base/units.h"

namespace gpupool::internal {

class RunDemand {
 public:
  static constexpr std::size_t kPlaces = 128;

  /// All there is to be had, from the start or after a change.
  void start(std::uint64_t most_bytes) noexcept {
    most_bytes_ = static_cast<std::int64_t>(std::min(most_bytes, kMostBytes));
    let_go_ = {};
    set(std::min(most_bytes_, kStartBytes));
  }
  /// Runs of a size that were freed, so many bytes of them, are not kept, or not any longer.
  void note_let_go(std::uint32_t units, std::uint64_t bytes) noexcept {
    let_go_[place_of(units)] = units;
    set(balance_bytes_ - kLoss * static_cast<std::int64_t>(std::min(bytes, kMostBytes)));
  }
  /// A run was asked for that was not kept.
  void note_asked(std::uint32_t units) noexcept {
    std::uint32_t& place = let_go_[place_of(units)];
    if (place != units) return;
    place = 0;
    set(balance_bytes_ + (kLoss + 1) * static_cast<std::int64_t>(units * kUnitBytes));
  }
  std::uint64_t worth_bytes() const noexcept { return worth_bytes_.get(); }

 private:
  static std::size_t place_of(std::uint32_t units) noexcept {
    // Fibonacci hashing (Knuth, TAOCP vol. 3, 6.4).
    return units * std::uint32_t{0x9e3779b9} >> 25;
  }
  static_assert(kPlaces == 1 << (32 - 25));

  // Three of four have to come back. A serving job's do half of the time, by turns all and none
  // for hundreds of requests: so there is a memory of a gigabyte for what is of no use.
  static constexpr std::int64_t kLoss = 3;
  static constexpr std::int64_t kMemoryBytes = std::int64_t{1} << 30;
  static constexpr std::int64_t kStartBytes = std::int64_t{8} << 20;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 50;

  void set(std::int64_t balance) noexcept {
    balance_bytes_ = std::clamp(balance, -kMemoryBytes, most_bytes_);
    worth_bytes_.set(static_cast<std::uint64_t>(std::max<std::int64_t>(balance_bytes_, 0)));
  }

  std::int64_t most_bytes_ = 0;
  std::int64_t balance_bytes_ = 0;
  Relaxed<std::uint64_t> worth_bytes_;
  std::array<std::uint32_t, kPlaces> let_go_{};  // units; 0: none
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_CACHE_RUN_DEMAND_H_
