// The driver as the pool calls it: every operation that counts as a driver call passes here, is
// timed on the backend's clock, counted by kind, and shown to the observer.
//
//   held_bytes() = what create() and allocate() gave - what release() and deallocate() took back
//   what was taken back is counted by why, all of it
//
// Thread safety: all methods may be called from any thread, but release(), deallocate() and
// Releasing by one at a time; no lock of the pool is needed, and none that a hit needs may be held.
// Cost: two clock readings on top of the call.
#ifndef GPUPOOL_BACKEND_DRIVER_H_
#define GPUPOOL_BACKEND_DRIVER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

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

  /// Whoever else is given access to what is mapped, and who is told what is allocated; before any
  /// call.
  void set_peers(std::vector<int> peers) { peers_ = std::move(peers); }
  void set_notes(BlockNotes* notes) noexcept { notes_ = notes; }

  Result<PhysicalHandle> create(std::size_t bytes);
  Result<PhysicalHandle> create_shareable(std::size_t bytes);
  Result<void> release(PhysicalHandle handle, std::size_t bytes);
  Result<void> map(DeviceAddress address, std::size_t bytes, PhysicalHandle handle);
  Result<void> set_access(DeviceAddress address, std::size_t bytes);
  Result<void> unmap(DeviceAddress address, std::size_t bytes);
  Result<DeviceAddress> allocate(std::size_t bytes);
  Result<void> deallocate(DeviceAddress address, std::size_t bytes);

  /// As long as it lives, what is given back is for that reason. Else it is rollback: who takes
  /// memory may have to give it back by himself.
  class Releasing {
   public:
    Releasing(Driver& driver, ReleaseReason reason) noexcept : driver_(driver) {
      driver_.reason_ = reason;
    }
    ~Releasing() { driver_.reason_ = ReleaseReason::rollback; }
    Releasing(const Releasing&) = delete;
    Releasing& operator=(const Releasing&) = delete;

   private:
    Driver& driver_;
  };

  std::uint64_t held_bytes() const noexcept;
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
  template <class Given>
  Given count_taken(Given result, std::size_t bytes);
  Result<void> count_released(Result<void> result, std::size_t bytes);

  Backend& backend_;
  const Clock& event_clock_;
  SlowPathObserver* observer_;
  std::vector<int> peers_;
  BlockNotes* notes_ = nullptr;
  std::array<Counters, kDriverOperationCount> counters_;
  std::atomic<std::uint64_t> taken_bytes_{0};
  std::array<std::atomic<std::uint64_t>, kReleaseReasonCount> released_bytes_{};
  ReleaseReason reason_ = ReleaseReason::rollback;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BACKEND_DRIVER_H_
