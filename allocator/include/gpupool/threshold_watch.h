// Calls a function of the program where a pool gets to a threshold that an alert is made for, so
// that the program acts before a person is told: trims, changes how pages are recycled, writes a
// checkpoint.
//
//   gpupool::ThresholdWatch watch(*pool, {}, [&](const gpupool::ThresholdEvent& event) {
//     if (event.is_reached) pool->trim(0);
//   });
//   watch.check();   // as often as the program likes: where it calls Pool::maintain
//
// What is watched, and its threshold, which Pool::reconfigure may change meanwhile:
//   fragmentation           fragmentation_ratio above Thresholds::fragmentation_ratio
//   largest_below_required  largest_satisfiable_bytes below Thresholds::required_block_bytes
//
// A condition is told of once it has held for its time without a break, and again when it is over:
// when the value is back by `hysteresis`, so that one that hovers is told of once. Of two times
// that it is reached at least `min_gap_ns` lie between.
//
// Thread safety: check() from any thread; of two at the same time one returns at once. The function
// is called by the thread that checks, under no lock: it may use the pool, and what it throws is
// counted and goes no further. Cost: a look at the clock; once each `period_ns` a Pool::stats().
#ifndef GPUPOOL_THRESHOLD_WATCH_H_
#define GPUPOOL_THRESHOLD_WATCH_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "gpupool/clock.h"
#include "gpupool/pool.h"
#include "gpupool/stats.h"

namespace gpupool {

enum class WatchedCondition : std::uint8_t { fragmentation, largest_below_required };
inline constexpr std::size_t kWatchedConditionCount = 2;
const char* to_string(WatchedCondition value) noexcept;

struct ThresholdEvent {
  WatchedCondition condition = WatchedCondition::fragmentation;
  bool is_reached = true;     // false: it was, and is over
  double value = 0;           // a ratio, or bytes
  double threshold = 0;       // in the same unit; 0 where the program has withdrawn it
  std::uint64_t held_ns = 0;  // how long it has held, or had
  const StatsV1& stats;       // that it was read from; for as long as the call takes
};

struct ThresholdWatchOptions {
  /// How long each has to hold before it is told of. Short beside the `for` of the alerts, which
  /// are for what goes on although the program has acted.
  std::uint64_t fragmentation_hold_ns = 30'000'000'000;
  std::uint64_t required_hold_ns = 2'000'000'000;
  /// By which share of the threshold the value must be back for it to be over; 0 to 1.
  double hysteresis = 0.05;
  std::uint64_t min_gap_ns = 60'000'000'000;
  /// How often the pool is looked at.
  std::uint64_t period_ns = 1'000'000'000;
  /// nullptr: the machine's. Outlives the watch.
  const Clock* clock = nullptr;
};

class ThresholdWatch {
 public:
  using Handler = std::function<void(const ThresholdEvent& event)>;

  /// `pool` outlives the watch.
  ThresholdWatch(const Pool& pool, const ThresholdWatchOptions& options, Handler handler);

  void check();
  /// Calls of the function that ended with an exception.
  std::uint64_t failed_calls() const noexcept {
    return failed_calls_.load(std::memory_order_relaxed);
  }

 private:
  struct Reading {
    double value = 0;
    double threshold = 0;
    bool is_reached = false;
    bool is_over = true;  // neither, between the threshold and the hysteresis
    std::uint64_t hold_ns = 0;
  };
  struct State {
    std::optional<std::uint64_t> since_ns;  // holding without a break
    std::optional<std::uint64_t> told_ns;   // when it was last said to be reached
    bool is_told = false;                   // and not over yet
  };

  Reading read(WatchedCondition condition, const StatsV1& stats) const;
  void step(WatchedCondition condition, const StatsV1& stats, std::uint64_t now_ns);
  void call(const ThresholdEvent& event);

  const Pool& pool_;
  const ThresholdWatchOptions options_;
  const Clock& clock_;
  const Handler handler_;
  std::atomic<bool> is_checking_{false};  // whoever has set it has what follows
  std::optional<std::uint64_t> last_ns_;
  std::array<State, kWatchedConditionCount> states_{};
  std::atomic<std::uint64_t> failed_calls_{0};
};

}  // namespace gpupool

#endif  // GPUPOOL_THRESHOLD_WATCH_H_
