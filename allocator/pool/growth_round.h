// How a request is being served by growing the arena, and how that ended.
#ifndef GPUPOOL_POOL_GROWTH_ROUND_H_
#define GPUPOOL_POOL_GROWTH_ROUND_H_

#include <algorithm>
#include <cstdint>

#include "gpupool/stats.h"
#include "gpupool/status.h"
#include "pool/ladder.h"

namespace gpupool::internal {

/// How old the device's free memory, as reported, may get.
constexpr std::uint64_t kDeviceReadNs = 100'000'000;

/// What was done last for a request that pages are missing for, though as many may be empty: from
/// what costs little to what costs much.
enum class Rung : std::uint8_t {
  look,
  /// Caches are emptied, work that is complete is seen, and stale addresses are unmapped.
  drain,
  /// As much goes back as has to be new: a handle of several pages moves as a whole, and so may be
  /// of no use where single ones are missing. Of segments, as much as is asked for, so that no more
  /// are held than before.
  break_up,
  /// All that the request needs goes back, and is got anew.
  exchange,
};

struct GrowthRound {
  static constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

  explicit GrowthRound(LadderLog& ladder_log) noexcept : log(ladder_log) {}

  LadderLog& log;
  int number = 0;
  Rung rung = Rung::look;
  bool may_extend = true;
  bool is_exact = false;  // no larger segment than is needed
  bool has_read_device = false;
  bool was_refused = false;  // by the driver
  bool has_tried_again = false;
  std::uint64_t most_pages = kNoLimit;  // that the device lets the arena have, as far as is known

  /// What went back so far was for a bound that does not hold: more may have to.
  void keep_to(std::uint64_t pages) noexcept {
    most_pages = pages;
    rung = std::min(rung, Rung::drain);
  }
  /// It was for a moment only.
  void forget_bound() noexcept {
    most_pages = kNoLimit;
    rung = Rung::look;
  }
};

struct GrowthOutcome {
  void* pointer = nullptr;  // nullptr: not served
  Error error = Error::out_of_memory;
  bool is_line_used_up = false;  // there is no stretch of addresses that is long enough
  bool is_unfit = false;         // there was a block, which the guards could not fill
  MissReason reason = MissReason::cold;

  /// What came of handing a block out.
  void note(const Result<void*>& served) {
    pointer = served.value();
    is_unfit = !served.ok();
    if (is_unfit) error = served.error();
  }
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_GROWTH_ROUND_H_
