// The driver as the pool calls it: every operation that counts as a driver call passes here, is
// timed on the backend's clock, counted by kind, and shown to the observer.
//
// Thread safety: all methods may be called from any thread; no lock of the pool is needed, and
// none that a hit needs may be held. Cost: two clock readings on top of the call.
#ifndef GPUPOOL_BACKEND_DRIVER_H_
#define GPUPOOL_BACKEND_DRIVER_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "gpupool/backend.h"
#include "gpupool/observer.h"
#include "gpupool/stats.h"

namespace gpupool::internal {

class Driver {
 public:
  Driver(Backend& backend, const Clock& event_clock, SlowPathObserver* observer)
      : backend_(backend), event_clock_(event_clock), observer_(observer) {}

  Backend& backend() const noexcept { return backend_; }
  std::uint64_t now_ns() const noexcept { return backend_.clock().now_ns(); }

  Result<PhysicalHandle> create(std::size_t bytes);
  Result<void> release(PhysicalHandle handle, std::size_t bytes);
  Result<void> map(DeviceAddress address, std::size_t bytes, PhysicalHandle handle);
  Result<void> set_access(DeviceAddress address, std::size_t bytes);
  Result<void> unmap(DeviceAddress address, std::size_t bytes);
  Result<DeviceAddress> allocate(std::size_t bytes);
  Result<void> deallocate(DeviceAddress address, std::size_t bytes);

  /// Adds what was counted to the driver fields of `stats`.
  void add_to(StatsV1& stats) const;

 private:
  struct Counters {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> failures{0};
    std::atomic<std::uint64_t> sum_ns{0};
    std::array<std::atomic<std::uint64_t>, kDurationBuckets> duration{};
  };
  template <class Call>
  auto timed(DriverOperation operation, std::size_t bytes, Call call) -> decltype(call());

  Backend& backend_;
  const Clock& event_clock_;
  SlowPathObserver* observer_;
  std::array<Counters, kDriverOperationCount> counters_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BACKEND_DRIVER_H_
