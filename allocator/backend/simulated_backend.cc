#include "gpupool/simulated_backend.h"

#include <algorithm>
#include <utility>

#include "backend/simulated_device.h"

namespace gpupool {

using internal::DeviceCall;
using internal::SimulatedMark;

SimulatedBackend::SimulatedBackend(SimulatedDeviceOptions options)
    : device_(std::make_unique<Device>(std::move(options))) {}

SimulatedBackend::~SimulatedBackend() = default;

// The device's other side.

RawStream SimulatedBackend::create_stream() {
  DeviceCall call(*device_);
  return device_->streams.create();
}

void SimulatedBackend::destroy_stream(RawStream stream) {
  DeviceCall call(*device_);
  if (!device_->streams.destroy(stream)) {
    (void)device_->violations.refuse("destroy of a stream that there is not");
  }
}

Result<void> SimulatedBackend::launch(RawStream stream, SimulatedWork work) {
  DeviceCall call(*device_);
  const Result<void> result = device_->streams.launch(stream, std::move(work));
  call.announce();
  return result;
}

void SimulatedBackend::complete(RawStream stream) {
  DeviceCall call(*device_);
  if (const auto found = device_->streams.find(stream)) {
    device_->schedule().complete({found, found->given});
    call.announce();
  }
}

void SimulatedBackend::complete_all() {
  DeviceCall call(*device_);
  device_->schedule().complete_all();
  call.announce();
}

bool SimulatedBackend::complete_next(RawStream stream) {
  DeviceCall call(*device_);
  const auto found = device_->streams.find(stream);
  if (!found || !device_->schedule().complete_next(found)) return false;
  call.announce();
  return true;
}

bool SimulatedBackend::is_idle(RawStream stream) const {
  DeviceCall call(*device_);
  const auto found = device_->streams.find(stream);
  return !found || found->is_idle();
}

void SimulatedBackend::begin_capture(RawStream stream) {
  DeviceCall call(*device_);
  const auto found = device_->streams.find(stream);
  if (found) (void)device_->streams.begin_capture(found);  // a refusal is a counted violation
}

SimulatedGraph SimulatedBackend::end_capture(RawStream stream) {
  DeviceCall call(*device_);
  const auto found = device_->streams.find(stream);
  return found ? device_->streams.end_capture(*found) : SimulatedGraph();
}

Result<void> SimulatedBackend::launch_graph(SimulatedGraph graph, RawStream stream) {
  DeviceCall call(*device_);
  const Result<void> result = device_->streams.launch_graph(graph, stream);
  call.announce();
  return result;
}

void SimulatedBackend::destroy_graph(SimulatedGraph graph) {
  DeviceCall call(*device_);
  device_->streams.destroy_graph(graph);
}

void SimulatedBackend::advance_ns(std::uint64_t delta_ns) {
  DeviceCall call(*device_);
  if (!device_->is_virtual()) return;
  device_->virtual_clock.advance_device_ns(delta_ns);
  device_->settle();
  call.announce();
}

void SimulatedBackend::begin_background() {
  const DeviceCall call(*device_);
  if (device_->is_virtual()) device_->virtual_clock.begin_background();
}

void SimulatedBackend::end_background() {
  const DeviceCall call(*device_);
  device_->virtual_clock.end_background();
}

bool SimulatedBackend::has_passed(std::uint64_t time_ns) const {
  return device_->device_ns() >= time_ns;
}

void SimulatedBackend::wait_until(std::uint64_t time_ns) {
  DeviceCall call(*device_);
  const std::uint64_t now = device_->device_ns();
  if (!device_->is_virtual() || now >= time_ns) return;
  device_->virtual_clock.advance_device_ns(time_ns - now);
  device_->settle();
  call.announce();
}

Result<void> SimulatedBackend::set_taken_by_others(std::uint64_t bytes) {
  DeviceCall call(*device_);
  return device_->memory.set_taken_by_others(bytes);
}

std::uint64_t SimulatedBackend::violation_count() const {
  DeviceCall call(*device_);
  return device_->violations.count();
}

std::string SimulatedBackend::last_violation() const {
  DeviceCall call(*device_);
  return device_->violations.last();
}

std::uint64_t SimulatedBackend::object_count() const {
  DeviceCall call(*device_);
  return device_->memory.object_count() + device_->streams.event_count();
}

// Backend: memory.

const DeviceInfo& SimulatedBackend::info() const noexcept { return device_->info; }

std::size_t SimulatedBackend::granularity_bytes() const noexcept {
  return device_->options.granularity_bytes;
}

const Clock& SimulatedBackend::clock() const noexcept { return device_->clock(); }

std::uint64_t SimulatedBackend::held_bytes() const noexcept {
  return device_->held_bytes.load(std::memory_order_relaxed);
}

Result<MemoryInfo> SimulatedBackend::memory_info() {
  DeviceCall call(*device_);
  const MemoryInfo info{.free_bytes = device_->memory.free_bytes(),
                        .total_bytes = device_->options.capacity_bytes};
  return call.charged(Result<MemoryInfo>(info), BackendCall::memory_info);
}

Result<DeviceAddress> SimulatedBackend::reserve_address(std::size_t bytes, std::size_t alignment) {
  if (!device_->options.supports_vmm) return Error::not_supported;
  DeviceCall call(*device_);
  return call.charged(device_->memory.reserve(bytes, alignment), BackendCall::reserve_address,
                      bytes);
}

Result<void> SimulatedBackend::free_address(DeviceAddress address, std::size_t bytes) {
  if (!device_->options.supports_vmm) return Error::not_supported;
  DeviceCall call(*device_);
  return call.charged(device_->memory.free_reservation(address, bytes), BackendCall::free_address,
                      bytes);
}

Result<PhysicalHandle> SimulatedBackend::create(std::size_t bytes) {
  if (!device_->options.supports_vmm) return Error::not_supported;
  DeviceCall call(*device_);
  return call.charged(device_->memory.create(bytes, false), BackendCall::create, bytes);
}

Result<PhysicalHandle> SimulatedBackend::create_shareable(std::size_t bytes) {
  if (!device_->options.supports_vmm) return Error::not_supported;
  DeviceCall call(*device_);
  return call.charged(device_->memory.create(bytes, true), BackendCall::create, bytes);
}

Result<void> SimulatedBackend::release(PhysicalHandle handle) {
  if (!device_->options.supports_vmm) return Error::not_supported;
  DeviceCall call(*device_);
  const std::uint64_t bytes = device_->memory.handle_bytes(handle);
  return call.charged(device_->memory.release(handle), BackendCall::release, bytes);
}

Result<void> SimulatedBackend::map(DeviceAddress address, std::size_t bytes,
                                   PhysicalHandle handle) {
  if (!device_->options.supports_vmm) return Error::not_supported;
  DeviceCall call(*device_);
  return call.charged(device_->memory.map(address, bytes, handle), BackendCall::map, bytes);
}

Result<void> SimulatedBackend::set_access(DeviceAddress address, std::size_t bytes) {
  return set_shared_access(address, bytes, {});
}

Result<void> SimulatedBackend::set_shared_access(DeviceAddress address, std::size_t bytes,
                                                 const std::vector<int>& peers) {
  if (!device_->options.supports_vmm) return Error::not_supported;
  for (const int peer : peers) {
    if (!can_share_with(peer).value()) return Error::invalid_argument;
  }
  DeviceCall call(*device_);
  const std::uint64_t mappings = device_->memory.mapping_count(address, bytes);
  return call.charged(device_->memory.set_access(address, bytes, peers), BackendCall::set_access,
                      bytes, mappings);
}

Result<bool> SimulatedBackend::can_share_with(int peer) {
  const std::vector<int>& peers = device_->options.peers;
  return std::find(peers.begin(), peers.end(), peer) != peers.end();
}

Result<void> SimulatedBackend::unmap(DeviceAddress address, std::size_t bytes) {
  if (!device_->options.supports_vmm) return Error::not_supported;
  DeviceCall call(*device_);
  const std::uint64_t mappings = device_->memory.mapping_count(address, bytes);
  return call.charged(device_->memory.unmap(address, bytes), BackendCall::unmap, bytes, mappings);
}

Result<DeviceAddress> SimulatedBackend::allocate(std::size_t bytes) {
  DeviceCall call(*device_);
  return call.charged(device_->memory.allocate(bytes), BackendCall::allocate, bytes);
}

Result<void> SimulatedBackend::deallocate(DeviceAddress address) {
  DeviceCall call(*device_);
  if (device_->memory.find_plain(address) == nullptr) return Error::invalid_argument;
  // As cudaFree does, waits for all work of the device that ends by itself.
  for (const SimulatedMark& mark : device_->schedule().marks_of_busy()) {
    while (!mark.is_done() && device_->pass_time()) {
    }
  }
  const internal::SimulatedBacking* plain = device_->memory.find_plain(address);
  if (plain == nullptr) return Error::invalid_argument;  // another thread was faster
  if (!plain->uses.empty()) {
    return device_->violations.refuse(
        "deallocate of " + internal::as_hex(address) +
        ", which a running capture or work that does not end by itself uses: it would wait for "
        "ever");
  }
  const std::uint64_t bytes = plain->bytes;
  device_->memory.deallocate(address);
  return call.charged(Result<void>(), BackendCall::deallocate, bytes);
}

// Backend: streams and events.

Result<std::uint64_t> SimulatedBackend::stream_id(RawStream stream) {
  DeviceCall call(*device_);
  const auto found = device_->streams.find(stream);
  if (!found) return Error::invalid_argument;
  return call.charged(device_->streams.identify(found), BackendCall::stream_id);
}

Result<CaptureState> SimulatedBackend::capture_state(RawStream stream) {
  DeviceCall call(*device_);
  const auto found = device_->streams.find(stream);
  if (!found) return Error::invalid_argument;
  return call.charged(Result<CaptureState>(device_->streams.capture_state(*found)),
                      BackendCall::capture_state);
}

Result<std::uint64_t> SimulatedBackend::capture_id(RawStream stream) {
  DeviceCall call(*device_);
  const auto found = device_->streams.find(stream);
  if (!found || device_->streams.capture_state(*found) != CaptureState::active) {
    return Error::invalid_argument;
  }
  return call.charged(Result<std::uint64_t>(found->capture), BackendCall::capture_id);
}

Result<EventHandle> SimulatedBackend::create_event() {
  DeviceCall call(*device_);
  return call.charged(Result<EventHandle>(device_->streams.create_event()),
                      BackendCall::create_event);
}

Result<void> SimulatedBackend::destroy_event(EventHandle event) {
  DeviceCall call(*device_);
  return call.charged(device_->streams.destroy_event(event), BackendCall::destroy_event);
}

Result<void> SimulatedBackend::record_event(EventHandle event, RawStream stream) {
  DeviceCall call(*device_);
  return call.charged(device_->streams.record_event(event, stream), BackendCall::record_event);
}

Result<bool> SimulatedBackend::query_event(EventHandle event) {
  DeviceCall call(*device_);
  return call.charged(device_->streams.query_event(event), BackendCall::query_event);
}

Result<void> SimulatedBackend::wait_event(RawStream stream, EventHandle event) {
  DeviceCall call(*device_);
  return call.charged(device_->streams.wait_event(stream, event), BackendCall::wait_event);
}

Result<void> SimulatedBackend::synchronize_event(EventHandle event) {
  DeviceCall call(*device_);
  const Result<SimulatedMark> mark = device_->streams.find_mark(event);
  if (!mark.ok()) return mark.error();
  device_->wait_for(mark.value());
  return call.charged(Result<void>(), BackendCall::synchronize_event);
}

Result<void> SimulatedBackend::synchronize_device() {
  DeviceCall call(*device_);
  if (const auto refused = device_->streams.check_no_capture("a wait for the device");
      !refused.ok())
    return refused;
  bool is_idle = true;
  for (const SimulatedMark& mark : device_->schedule().marks_of_busy()) {
    while (!mark.is_done() && device_->pass_time()) {
    }
    is_idle = is_idle && mark.is_done();
  }
  if (!is_idle) return Error::backend_failure;
  return call.charged(Result<void>(), BackendCall::synchronize_device);
}

}  // namespace gpupool
