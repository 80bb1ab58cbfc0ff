// A device whose clock nothing moves, neither waiting nor the driver; else it does what another
// does.
#ifndef GPUPOOL_TESTS_SUPPORT_STANDING_DEVICE_H_
#define GPUPOOL_TESTS_SUPPORT_STANDING_DEVICE_H_

#include <cstddef>
#include <cstdint>

#include "gpupool/backend.h"

namespace gpupool {

class StandingClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override { return 1; }
};

class StandingDevice final : public Backend {
 public:
  explicit StandingDevice(Backend& inner) : inner_(inner) {}
  const DeviceInfo& info() const noexcept override { return inner_.info(); }
  std::size_t granularity_bytes() const noexcept override { return inner_.granularity_bytes(); }
  Result<MemoryInfo> memory_info() override { return inner_.memory_info(); }
  std::uint64_t held_bytes() const noexcept override { return inner_.held_bytes(); }
  const Clock& clock() const noexcept override { return clock_; }
  Result<DeviceAddress> reserve_address(std::size_t bytes, std::size_t alignment) override {
    return inner_.reserve_address(bytes, alignment);
  }
  Result<void> free_address(DeviceAddress address, std::size_t bytes) override {
    return inner_.free_address(address, bytes);
  }
  Result<PhysicalHandle> create(std::size_t bytes) override { return inner_.create(bytes); }
  Result<void> release(PhysicalHandle handle) override { return inner_.release(handle); }
  Result<void> map(DeviceAddress address, std::size_t bytes, PhysicalHandle handle) override {
    return inner_.map(address, bytes, handle);
  }
  Result<void> set_access(DeviceAddress address, std::size_t bytes) override {
    return inner_.set_access(address, bytes);
  }
  Result<void> unmap(DeviceAddress address, std::size_t bytes) override {
    return inner_.unmap(address, bytes);
  }
  Result<DeviceAddress> allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  Result<void> deallocate(DeviceAddress address) override { return inner_.deallocate(address); }
  Result<std::uint64_t> stream_id(RawStream stream) override { return inner_.stream_id(stream); }
  Result<CaptureState> capture_state(RawStream stream) override {
    return inner_.capture_state(stream);
  }
  Result<std::uint64_t> capture_id(RawStream stream) override { return inner_.capture_id(stream); }
  Result<void> synchronize_device() override { return inner_.synchronize_device(); }
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

 private:
  Backend& inner_;
  StandingClock clock_;
};

}  // namespace gpupool

#endif  // GPUPOOL_TESTS_SUPPORT_STANDING_DEVICE_H_
