#include "gpupool/threshold_watch.h"

#include <utility>

namespace gpupool {

ThresholdWatch::ThresholdWatch(const Pool& pool, const ThresholdWatchOptions& options,
                               Handler handler)
    : pool_(pool),
      options_(options),
      clock_(options.clock != nullptr ? *options.clock : steady_clock()),
      handler_(std::move(handler)) {}

void ThresholdWatch::check() {
  // No lock that the program's function would be called under: who comes meanwhile, the function
  // itself among them, has nothing to do.
  if (is_checking_.exchange(true, std::memory_order_acquire)) return;
  const std::uint64_t now_ns = clock_.now_ns();
  if (!last_ns_ || now_ns - *last_ns_ >= options_.period_ns) {
    last_ns_ = now_ns;
    const StatsV1 stats = pool_.stats();
    for (std::size_t i = 0; i < kWatchedConditionCount; ++i) {
      step(static_cast<WatchedCondition>(i), stats, now_ns);
    }
  }
  is_checking_.store(false, std::memory_order_release);
}

ThresholdWatch::Reading ThresholdWatch::read(WatchedCondition condition,
                                             const StatsV1& stats) const {
  Reading reading;
  if (condition == WatchedCondition::fragmentation) {
    reading.value = stats.fragmentation_ratio;
    reading.threshold = stats.threshold_fragmentation_ratio;
    reading.is_reached = reading.value > reading.threshold;
    reading.is_over = reading.value <= reading.threshold * (1 - options_.hysteresis);
    reading.hold_ns = options_.fragmentation_hold_ns;
    return reading;
  }
  reading.value = static_cast<double>(stats.largest_satisfiable_bytes);
  reading.threshold = static_cast<double>(stats.threshold_required_block_bytes);
  reading.is_reached = reading.value < reading.threshold;
  reading.is_over = reading.value >= reading.threshold * (1 + options_.hysteresis);
  reading.hold_ns = options_.required_hold_ns;
  return reading;
}

void ThresholdWatch::step(WatchedCondition condition, const StatsV1& stats, std::uint64_t now_ns) {
  const Reading reading = read(condition, stats);
  State& state = states_[static_cast<std::size_t>(condition)];
  const auto event = [&](bool is_reached) {
    return ThresholdEvent{.condition = condition,
                          .is_reached = is_reached,
                          .value = reading.value,
                          .threshold = reading.threshold,
                          .held_ns = now_ns - state.since_ns.value_or(now_ns),
                          .stats = stats};
  };
  if (state.is_told) {
    if (!reading.is_over) return;
    state.is_told = false;
    call(event(false));
    state.since_ns.reset();
    return;
  }
  if (!reading.is_reached) {
    state.since_ns.reset();
    return;
  }
  if (!state.since_ns) state.since_ns = now_ns;
  if (now_ns - *state.since_ns < reading.hold_ns) return;
  if (state.told_ns && now_ns - *state.told_ns < options_.min_gap_ns) return;
  state.is_told = true;
  state.told_ns = now_ns;
  call(event(true));
}

void ThresholdWatch::call(const ThresholdEvent& event) {
  if (!handler_) return;
  try {
    handler_(event);
  } catch (...) {
    // The program's own; it must not end the thread that keeps its pool in shape.
    failed_calls_.fetch_add(1, std::memory_order_relaxed);
  }
}

const char* to_string(WatchedCondition value) noexcept {
  switch (value) {
    case WatchedCondition::fragmentation: return "fragmentation";
    case WatchedCondition::largest_below_required: return "largest_below_required";
  }
  return "unknown";
}

}  // namespace gpupool
