#include "bench/support/noop_backend.h"

namespace gpupool::bench {
namespace {

/// Low bits of a handle's value that count its pages; more than the device has.
constexpr unsigned kPageCountBits = 24;

}  // namespace

NoopBackend::NoopBackend(const Clock& clock) : clock_(clock) {
  info_.name = "no-op";
  info_.uuid = "SIM-no-op";
  info_.driver = "simulated";
  info_.simulated = true;
  info_.supports_vmm = true;
}

Result<MemoryInfo> NoopBackend::memory_info() {
  return MemoryInfo{kCapacityBytes - held_bytes_, kCapacityBytes};
}

Result<DeviceAddress> NoopBackend::reserve_address(std::size_t bytes, std::size_t alignment) {
  // Room for the range at any alignment; addresses are plentiful.
  const std::uint64_t start = next_address_.fetch_add(bytes + alignment);
  return (start + alignment - 1) / alignment * alignment;
}

Result<void> NoopBackend::free_address(DeviceAddress, std::size_t) { return {}; }

Result<PhysicalHandle> NoopBackend::create(std::size_t bytes) {
  if (held_bytes_.fetch_add(bytes) + bytes > kCapacityBytes) {
    held_bytes_ -= bytes;
    return Error::out_of_memory;
  }
  return PhysicalHandle{next_id_.fetch_add(1) << kPageCountBits | bytes / kPageBytes};
}

Result<void> NoopBackend::release(PhysicalHandle handle) {
  const std::uint64_t pages = handle.value & ((std::uint64_t{1} << kPageCountBits) - 1);
  held_bytes_ -= pages * kPageBytes;
  return {};
}

Result<void> NoopBackend::map(DeviceAddress, std::size_t, PhysicalHandle) { return {}; }
Result<void> NoopBackend::set_access(DeviceAddress, std::size_t) { return {}; }
Result<void> NoopBackend::unmap(DeviceAddress, std::size_t) { return {}; }

Result<DeviceAddress> NoopBackend::allocate(std::size_t) { return Error::not_supported; }
Result<void> NoopBackend::deallocate(DeviceAddress) { return Error::not_supported; }

Result<std::uint64_t> NoopBackend::stream_id(RawStream stream) {
  return std::uint64_t{reinterpret_cast<std::uintptr_t>(stream)};
}
Result<CaptureState> NoopBackend::capture_state(RawStream) { return CaptureState::none; }
Result<EventHandle> NoopBackend::create_event() { return EventHandle{next_id_.fetch_add(1)}; }
Result<void> NoopBackend::destroy_event(EventHandle) { return {}; }
Result<void> NoopBackend::record_event(EventHandle, RawStream) { return {}; }
Result<std::uint64_t> NoopBackend::capture_id(RawStream) { return Error::invalid_argument; }
Result<bool> NoopBackend::query_event(EventHandle) { return true; }
Result<void> NoopBackend::wait_event(RawStream, EventHandle) { return {}; }
Result<void> NoopBackend::synchronize_event(EventHandle) { return {}; }
Result<void> NoopBackend::synchronize_device() { return {}; }

}  // namespace gpupool::bench
