// A Backend that passes every call on to another: what decorators begin from, so that each has only
// the calls that it changes, and none forgets one that backends need not have.
//
// Invariant: every virtual function of Backend is here, those with a default as well.
// Thread safety: that of the other. Cost: a call.
#ifndef GPUPOOL_FORWARDING_BACKEND_H_
#define GPUPOOL_FORWARDING_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpupool/backend.h"

namespace gpupool {

class ForwardingBackend : public Backend {
 public:
  /// Requires: `inner` outlives this object.
  explicit ForwardingBackend(Backend& inner) : inner_(inner) {}

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
  Result<PhysicalHandle> create(std::size_t bytes) override { return inner_.create(bytes); }
  Result<PhysicalHandle> create_shareable(std::size_t bytes) override {
    return inner_.create_shareable(bytes);
  }
  Result<void> release(PhysicalHandle handle) override { return inner_.release(handle); }
  Result<void> map(DeviceAddress address, std::size_t bytes, PhysicalHandle handle) override {
    return inner_.map(address, bytes, handle);
  }
  Result<void> set_access(DeviceAddress address, std::size_t bytes) override {
    return inner_.set_access(address, bytes);
  }
  Result<void> set_shared_access(DeviceAddress address, std::size_t bytes,
                                 const std::vector<int>& peers) override {
    return inner_.set_shared_access(address, bytes, peers);
  }
  Result<bool> can_share_with(int peer) override { return inner_.can_share_with(peer); }
  Result<void> unmap(DeviceAddress address, std::size_t bytes) override {
    return inner_.unmap(address, bytes);
  }

  Result<DeviceAddress> allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  Result<void> deallocate(DeviceAddress address) override { return inner_.deallocate(address); }

  Result<void> fill(DeviceAddress address, std::size_t bytes, std::uint8_t value,
                    RawStream stream) override {
    return inner_.fill(address, bytes, value, stream);
  }
  Result<void> read(DeviceAddress address, std::size_t bytes, void* to, RawStream stream) override {
    return inner_.read(address, bytes, to, stream);
  }
  BlockNotes* block_notes() override { return inner_.block_notes(); }

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

 protected:
  Backend& inner() const noexcept { return inner_; }

 private:
  Backend& inner_;
};

}  // namespace gpupool

#endif  // GPUPOOL_FORWARDING_BACKEND_H_
