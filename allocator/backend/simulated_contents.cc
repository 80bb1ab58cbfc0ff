// The simulated device's bytes: filled and read as work of a stream, so that what would race on a
// card is refused here; and how memory is passed on.
#include <cstring>
#include <utility>

#include "backend/simulated_device.h"
#include "gpupool/simulated_backend.h"

namespace gpupool {

using internal::DeviceCall;

namespace {

/// What an H200 writes in a nanosecond.
constexpr std::uint64_t kFilledBytesPerNs = 3000;

}  // namespace

Result<void> SimulatedBackend::fill(DeviceAddress address, std::size_t bytes, std::uint8_t value,
                                    RawStream stream) {
  SimulatedWork work;
  work.address = address;
  work.bytes = bytes;
  work.duration_ns = bytes / kFilledBytesPerNs;
  if (device_->options.memory == SimulatedMemory::real) {
    work.body = [address, bytes, value] {
      std::memset(reinterpret_cast<void*>(address), value, bytes);
    };
  }
  DeviceCall call(*device_);
  const Result<void> result = device_->streams.launch(stream, std::move(work));
  call.announce();
  return call.charged(result, BackendCall::fill, bytes);
}

Result<void> SimulatedBackend::read(DeviceAddress address, std::size_t bytes, void* to,
                                    RawStream stream) {
  // Addresses alone hold nothing.
  if (device_->options.memory != SimulatedMemory::real) return Error::not_supported;
  DeviceCall call(*device_);
  const auto found = device_->streams.find(stream);
  if (!found) return Error::invalid_argument;
  if (device_->streams.capture_state(*found) != CaptureState::none) {
    return device_->violations.refuse("a copy to the host that is waited for, in a capture");
  }
  SimulatedWork work;
  work.address = address;
  work.bytes = bytes;
  work.body = [address, bytes, to] {
    std::memcpy(to, reinterpret_cast<const void*>(address), bytes);
  };
  const Result<void> result = device_->streams.launch(stream, std::move(work));
  if (!result.ok()) return result;
  device_->settle();
  device_->wait_for({found, found->given});
  return call.charged(result, BackendCall::read, bytes);
}

BlockNotes* SimulatedBackend::block_notes() { return &device_->notes; }

std::uint64_t SimulatedBackend::noted_heap_count() const { return device_->notes.heap_count(); }
std::uint64_t SimulatedBackend::noted_block_count() const { return device_->notes.block_count(); }
std::uint64_t SimulatedBackend::noted_block_bytes(DeviceAddress address) const {
  return device_->notes.block_bytes(address);
}

Result<void> SimulatedBackend::access_from(int ordinal, DeviceAddress address,
                                           std::uint64_t bytes) {
  DeviceCall call(*device_);
  if (device_->memory.is_accessible_from(ordinal, address, bytes)) return {};
  return device_->violations.refuse("access by device " + std::to_string(ordinal) + " to " +
                                    internal::as_hex(address) + ", which it was not given");
}

Result<DeviceAddress> SimulatedBackend::export_legacy(DeviceAddress address) const {
  DeviceCall call(*device_);
  const DeviceAddress base = device_->memory.find_plain_base(address);
  if (base == 0) return Error::invalid_argument;
  return base;
}

Result<PhysicalHandle> SimulatedBackend::export_handle(DeviceAddress address) const {
  DeviceCall call(*device_);
  const PhysicalHandle handle = device_->memory.find_shareable(address);
  if (handle == PhysicalHandle()) return Error::invalid_argument;
  return handle;
}

}  // namespace gpupool
