// Which run is likely to be asked for next that is not there: the longest for which pages had to be
// moved or created within the last second or two. Maintenance has it ready, so that the next
// request of its kind need not wait for the driver.
//
// Times are the pool's, which never go back.
//
// Thread safety: under the pool's lock. Cost: O(1).
#ifndef GPUPOOL_POOL_GROWTH_FORECAST_H_
#define GPUPOOL_POOL_GROWTH_FORECAST_H_

#include <algorithm>
#include <array>
#include <cstdint>

namespace gpupool::internal {

class GrowthForecast {
 public:
  void note(std::uint64_t now_ns, std::uint32_t units) noexcept {
    turn(now_ns);
    longest_[0] = std::max(longest_[0], units);
    last_ns_ = now_ns;
  }
  /// 0: nothing, or not while such requests come one after the other, which would have to wait for
  /// what is being done for them.
  std::uint32_t wanted_units(std::uint64_t now_ns) noexcept {
    turn(now_ns);
    if (now_ns - last_ns_ < kQuietNs) return 0;
    return std::max(longest_[0], longest_[1]);
  }

 private:
  static constexpr std::uint64_t kTurnNs = 1'000'000'000;
  static constexpr std::uint64_t kQuietNs = 20'000'000;

  void turn(std::uint64_t now_ns) noexcept {
    if (now_ns - since_ns_ < kTurnNs) return;
    longest_[1] = now_ns - since_ns_ < 2 * kTurnNs ? longest_[0] : 0;
    longest_[0] = 0;
    since_ns_ = now_ns;
  }

  std::uint64_t since_ns_ = 0;
  std::uint64_t last_ns_ = 0;
  std::array<std::uint32_t, 2> longest_{};  // of this turn and the one before
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_GROWTH_FORECAST_H_
