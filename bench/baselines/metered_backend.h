// A decorator that counts what goes to the driver, so that every system is measured by the same
// means and none by its own books.
//
//   calls  every create, map, set-access, unmap, release, cudaMalloc and cudaFree, failed ones too
//   ns     what they took on the backend's clock: modelled time on the simulated device
//   peak   the most that the backend held, since the start or reset_peak()
//
// Events and questions (stream ids, free memory) are passed on uncounted, as in gpupool's own
// driver_calls. Thread safety: one thread. Cost: a few nanoseconds and two readings of the clock.
#ifndef GPUPOOL_BENCH_BASELINES_METERED_BACKEND_H_
#define GPUPOOL_BENCH_BASELINES_METERED_BACKEND_H_

#include <cstdint>
#include <type_traits>

#include "gpupool/backend.h"

namespace gpupool::baselines {

struct DriverUse {
  std::uint64_t calls = 0;
  std::uint64_t ns = 0;

  friend DriverUse operator-(DriverUse later, DriverUse earlier) {
    return {later.calls - earlier.calls, later.ns - earlier.ns};
  }
};

class MeteredBackend final : public Backend {
 public:
  /// Requires: `inner` outlives this object.
  explicit MeteredBackend(Backend& inner) : inner_(inner) {}

  DriverUse use() const { return use_; }
  std::uint64_t peak_held_bytes() const { return peak_held_bytes_; }
  void reset_peak() { peak_held_bytes_ = inner_.held_bytes(); }

  const DeviceInfo& info() const noexcept override { return inner_.info(); }
  std::size_t granularity_bytes() const noexcept override { return inner_.granularity_bytes(); }
  Result<MemoryInfo> memory_info() override { return inner_.memory_info(); }
  std::uint64_t held_bytes() const noexcept override { return inner_.held_bytes(); }
  const Clock& clock() const noexcept override { return inner_.clock(); }
  void wait_until(std::uint64_t time_ns) override { inner_.wait_until(time_ns); }
  bool has_passed(std::uint64_t time_ns) const override { return inner_.has_passed(time_ns); }

  Result<DeviceAddress> reserve_address(std::size_t bytes, std::size_t alignment) override {
    return inner_.reserve_address(bytes, alignment);
  }
  Result<void> free_address(DeviceAddress address, std::size_t bytes) override {
    return inner_.free_address(address, bytes);
  }
  Result<PhysicalHandle> create(std::size_t bytes) override {
    return metered([&] { return inner_.create(bytes); });
  }
  Result<void> release(PhysicalHandle handle) override {
    return metered([&] { return inner_.release(handle); });
  }
  Result<void> map(DeviceAddress address, std::size_t bytes, PhysicalHandle handle) override {
    return metered([&] { return inner_.map(address, bytes, handle); });
  }
  Result<void> set_access(DeviceAddress address, std::size_t bytes) override {
    return metered([&] { return inner_.set_access(address, bytes); });
  }
  Result<void> unmap(DeviceAddress address, std::size_t bytes) override {
    return metered([&] { return inner_.unmap(address, bytes); });
  }
  Result<DeviceAddress> allocate(std::size_t bytes) override {
    return metered([&] { return inner_.allocate(bytes); });
  }
  Result<void> deallocate(DeviceAddress address) override {
    return metered([&] { return inner_.deallocate(address); });
  }

  Result<std::uint64_t> stream_id(RawStream stream) override { return inner_.stream_id(stream); }
  Result<CaptureState> capture_state(RawStream stream) override {
    return inner_.capture_state(stream);
  }
  Result<std::uint64_t> capture_id(RawStream stream) override { return inner_.capture_id(stream); }
  Result<EventHandle> create_event() override { return inner_.create_event(); }
  Result<void> destroy_event(EventHandle event) override { return inner_.destroy_event(event); }
  Result<void> record_event(EventHandle event, RawStream stream) override {
    return inner_.record_event(event, stream);
  }
  Result<bool> query_event(EventHandle event) override { return inner_.query_event(event); }
  Result<void> wait_event(RawStream stream, EventHandle event) override {
    return inner_.wait_event(stream, event);
  }
  Result<void> synchronize_event(EventHandle event) override {
    return inner_.synchronize_event(event);
  }
  Result<void> synchronize_device() override { return inner_.synchronize_device(); }

 private:
  template <class Call>
  std::invoke_result_t<const Call&> metered(const Call& call) {
    const std::uint64_t start_ns = inner_.clock().now_ns();
    auto result = call();
    use_.ns += inner_.clock().now_ns() - start_ns;
    ++use_.calls;
    const std::uint64_t held_bytes = inner_.held_bytes();
    if (held_bytes > peak_held_bytes_) peak_held_bytes_ = held_bytes;
    return result;
  }

  Backend& inner_;
  DriverUse use_;
  std::uint64_t peak_held_bytes_ = 0;
};

}  // namespace gpupool::baselines

#endif  // GPUPOOL_BENCH_BASELINES_METERED_BACKEND_H_
