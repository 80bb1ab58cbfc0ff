// A device of 140 GiB whose calls do nothing and take no time, so that a benchmark measures the
// pool alone. Every event is complete as soon as it is recorded.
//
// It keeps no books but the number of bytes held: a physical handle carries its size in its value,
// addresses only ever rise. Nothing is checked; the rules of a device are SimulatedBackend's job.
// Plain allocations (cudaMalloc) are refused: a benchmark that needs one would measure a fallback.
//
// Thread safety: all methods may be called from any thread. Cost: an atomic operation at most.
#ifndef GPUPOOL_BENCH_SUPPORT_NOOP_BACKEND_H_
#define GPUPOOL_BENCH_SUPPORT_NOOP_BACKEND_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gpupool/backend.h"
#include "gpupool/clock.h"

namespace gpupool::bench {

class NoopBackend final : public Backend {
 public:
  static constexpr std::uint64_t kCapacityBytes = std::uint64_t{140} << 30;

  /// `clock` outlives the device.
  explicit NoopBackend(const Clock& clock = steady_clock());

  const DeviceInfo& info() const noexcept override { return info_; }
  std::size_t granularity_bytes() const noexcept override { return kPageBytes; }
  Result<MemoryInfo> memory_info() override;
  std::uint64_t held_bytes() const noexcept override { return held_bytes_; }
  const Clock& clock() const noexcept override { return clock_; }

  Result<DeviceAddress> reserve_address(std::size_t bytes, std::size_t alignment) override;
  Result<void> free_address(DeviceAddress address, std::size_t bytes) override;
  Result<PhysicalHandle> create(std::size_t bytes) override;
  Result<void> release(PhysicalHandle handle) override;
  Result<void> map(DeviceAddress address, std::size_t bytes, PhysicalHandle handle) override;
  Result<void> set_access(DeviceAddress address, std::size_t bytes) override;
  Result<void> unmap(DeviceAddress address, std::size_t bytes) override;

  Result<DeviceAddress> allocate(std::size_t bytes) override;
  Result<void> deallocate(DeviceAddress address) override;

  Result<std::uint64_t> stream_id(RawStream stream) override;
  Result<CaptureState> capture_state(RawStream stream) override;
  Result<std::uint64_t> capture_id(RawStream stream) override;
  Result<EventHandle> create_event() override;
  Result<void> destroy_event(EventHandle event) override;
  Result<void> record_event(EventHandle event, RawStream stream) override;
  Result<bool> query_event(EventHandle event) override;
  Result<void> wait_event(RawStream stream, EventHandle event) override;
  Result<void> synchronize_event(EventHandle event) override;
  Result<void> synchronize_device() override;

 private:
  static constexpr std::size_t kPageBytes = std::size_t{2} << 20;

  const Clock& clock_;
  DeviceInfo info_;
  std::atomic<std::uint64_t> held_bytes_{0};
  std::atomic<std::uint64_t> next_address_{std::uint64_t{1} << 40};
  std::atomic<std::uint64_t> next_id_{1};
};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_SUPPORT_NOOP_BACKEND_H_
