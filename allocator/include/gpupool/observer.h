// Told of each event of the slow path: growth, driver calls, misses, failures, trims. What the
// exporter's event list, a log or a trace is made from. Hits are never seen here.
//
// Thread safety: called from any thread that allocates, frees or maintains, at the same time, and
// while the pool holds a lock: an observer returns quickly, does not throw and does not call the
// pool. Cost: nothing where none is set.
#ifndef GPUPOOL_OBSERVER_H_
#define GPUPOOL_OBSERVER_H_

#include <cstdint>

#include "gpupool/stats.h"
#include "gpupool/status.h"

namespace gpupool {

struct FailureReport;

enum class SlowPathEventKind : std::uint8_t {
  driver_call,   // operation, bytes, duration; failed says how it ended
  growth,        // bytes that the arena gained
  miss,          // a request that was served by growth or a fallback; reason
  failure,       // a request that was not served; reason, bytes, error
  fallback,      // fallback_reason, bytes
  trim,          // trim_reason, bytes given back
  cache_drain,   // bytes that went from caches to the shared tiers
  epoch_closed,  // an event was recorded
  reconfigured,
  misuse,  // misuse
};

struct SlowPathEvent {
  SlowPathEventKind kind = SlowPathEventKind::driver_call;
  std::uint64_t time_ns = 0;      // of the pool's clock, at the end
  std::uint64_t duration_ns = 0;  // 0 where nothing was timed
  std::uint64_t bytes = 0;
  std::uint64_t stream_id = 0;
  bool failed = false;
  Error error = Error::out_of_memory;  // where failed
  MissReason miss_reason = MissReason::cold;
  FallbackReason fallback_reason = FallbackReason::contiguous;
  TrimReason trim_reason = TrimReason::api;
  DriverOperation operation = DriverOperation::create;
  Misuse misuse = Misuse::foreign_pointer;
  const FailureReport* report = nullptr;  // failure: all about it; gone once the observer returns
};

const char* to_string(SlowPathEventKind value) noexcept;

class SlowPathObserver {
 public:
  virtual ~SlowPathObserver() = default;
  virtual void on_event(const SlowPathEvent& event) noexcept = 0;
};

}  // namespace gpupool

#endif  // GPUPOOL_OBSERVER_H_
