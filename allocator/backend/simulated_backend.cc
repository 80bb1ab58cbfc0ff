#include "gpupool/simulated_backend.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cost_model.h"
#include "backend/simulated_memory.h"
#include "backend/simulated_streams.h"
#include "backend/simulated_violations.h"
#include "base/mutex.h"

namespace gpupool {

using internal::modelled_cost_ns;
using internal::Mutex;
using internal::SimulatedMark;
using internal::SimulatedSchedule;
using internal::SimulatedStreams;
using internal::SimulatedViolations;

namespace {

/// The device's time, or that of the thread beside it whose calls are being made.
class TwoClocks final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override {
    return is_background_.load(std::memory_order_relaxed) ? background_.now_ns()
                                                          : foreground_.now_ns();
  }
  std::uint64_t device_ns() const noexcept { return foreground_.now_ns(); }
  void advance_device_ns(std::uint64_t delta_ns) noexcept { foreground_.advance_ns(delta_ns); }
  /// For whichever thread calls.
  void advance_ns(std::uint64_t delta_ns) noexcept {
    (is_background_.load(std::memory_order_relaxed) ? background_ : foreground_)
        .advance_ns(delta_ns);
  }
  void begin_background() noexcept {
    const std::uint64_t now = foreground_.now_ns();
    const std::uint64_t busy_until = background_.now_ns();
    if (now > busy_until) background_.advance_ns(now - busy_until);
    is_background_.store(true, std::memory_order_relaxed);
  }
  void end_background() noexcept { is_background_.store(false, std::memory_order_relaxed); }

 private:
  VirtualClock foreground_;
  VirtualClock background_;
  std::atomic<bool> is_background_{false};
};

/// Takes the calling thread's time. Short times are spun: a sleep is late by tens of microseconds.
void spend(std::uint64_t duration_ns) {
  constexpr auto kSleepIsLate = std::chrono::microseconds(100);
  const auto duration = std::chrono::nanoseconds(duration_ns);
  const auto end = std::chrono::steady_clock::now() + duration;
  if (duration > 2 * kSleepIsLate) std::this_thread::sleep_for(duration - kSleepIsLate);
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

DeviceInfo make_info(const SimulatedDeviceOptions& options) {
  const std::string digits = std::to_string(options.ordinal);
  DeviceInfo info;
  info.ordinal = options.ordinal;
  info.name = "simulated";
  info.uuid = "SIM-00000000-0000-0000-0000-" +
              std::string(digits.size() < 12 ? 12 - digits.size() : 0, '0') + digits;
  info.driver = "simulated";
  info.simulated = true;
  info.supports_vmm = options.supports_vmm;
  return info;
}

}  // namespace

class SimulatedBackend::Device {
 public:
  explicit Device(SimulatedDeviceOptions given)
      : options(std::move(given)),
        info(make_info(options)),
        memory(options, violations),
        streams(memory, violations) {}

  bool is_virtual() const { return options.time == SimulatedTime::virtual_time; }
  const Clock& clock() const {
    return is_virtual() ? static_cast<const Clock&>(virtual_clock) : steady_clock();
  }
  std::uint64_t device_ns() const {
    return is_virtual() ? virtual_clock.device_ns() : steady_clock().now_ns();
  }
  SimulatedSchedule& schedule() GPUPOOL_REQUIRES(mutex) { return streams.schedule(); }
  void settle() GPUPOOL_REQUIRES(mutex) { schedule().settle(device_ns()); }

  /// Lets the device's time go on, to the end of the next timed work at most. Another thread may
  /// have completed work meanwhile. False, at once, where no timed work runs.
  bool pass_time() GPUPOOL_REQUIRES(mutex) {
    const std::uint64_t due = schedule().next_due_ns();
    if (due == SimulatedSchedule::kNever) return false;
    const std::uint64_t now = device_ns();
    if (due > now && is_virtual()) {
      virtual_clock.advance_device_ns(due - now);
    } else if (due > now) {
      changed.wait_for(mutex, std::chrono::nanoseconds(due - now));
    }
    settle();
    return true;
  }

  void wait_for(const SimulatedMark& mark) GPUPOOL_REQUIRES(mutex) {
    while (!mark.is_done()) {
      if (!pass_time()) changed.wait(mutex);
    }
  }

  const SimulatedDeviceOptions options;
  const DeviceInfo info;
  TwoClocks virtual_clock;
  std::atomic<std::uint64_t> held_bytes{0};  // memory.held_bytes(), readable without the lock
  Mutex mutex;
  std::condition_variable_any changed;  // work was completed or given
  SimulatedViolations violations GPUPOOL_GUARDED_BY(mutex);
  internal::SimulatedDeviceMemory memory GPUPOOL_GUARDED_BY(mutex);
  SimulatedStreams streams GPUPOOL_GUARDED_BY(mutex);
};

namespace {

/// One call into the device. Locks it and brings it up to date; at its end the call's modelled
/// time passes, and whoever listens is told of violations, both without the lock where that can
/// be: a slow call of one thread must not hold up another's.
template <class Device>
class GPUPOOL_THREAD_ANNOTATION(scoped_lockable) DeviceCall {
 public:
  explicit DeviceCall(Device& device) GPUPOOL_THREAD_ANNOTATION(acquire_capability(device.mutex))
      : device_(device) {
    device_.mutex.lock();
    device_.settle();
  }
  ~DeviceCall() GPUPOOL_THREAD_ANNOTATION(release_capability()) {
    device_.held_bytes.store(device_.memory.held_bytes(), std::memory_order_relaxed);
    if (cost_ns_ != 0 && device_.is_virtual()) {
      device_.virtual_clock.advance_ns(cost_ns_);
      device_.settle();
      cost_ns_ = 0;
    }
    std::vector<std::string> untold;
    if (device_.violations.has_untold()) untold = device_.violations.take_untold();
    device_.mutex.unlock();
    if (cost_ns_ != 0) spend(cost_ns_);
    if (!device_.options.on_violation) return;
    for (const std::string& text : untold) device_.options.on_violation(text);
  }
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;

  /// Gives `result`, and charges what the call costs where it reached the device.
  template <class T>
  Result<T> charged(Result<T> result, BackendCall call, std::uint64_t bytes = 0,
                    std::uint64_t mappings = 1) {
    const bool reached_device = result.ok() || result.error() == Error::out_of_memory;
    if (device_.options.charge_costs && reached_device) {
      cost_ns_ = modelled_cost_ns(call, bytes, mappings);
    }
    return result;
  }
  /// What was given or completed may be what another thread waits for.
  void announce() { device_.changed.notify_all(); }

 private:
  Device& device_;
  std::uint64_t cost_ns_ = 0;
};

}  // namespace

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
  return call.charged(device_->memory.create(bytes), BackendCall::create, bytes);
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
  if (!device_->options.supports_vmm) return Error::not_supported;
  DeviceCall call(*device_);
  const std::uint64_t mappings = device_->memory.mapping_count(address, bytes);
  return call.charged(device_->memory.set_access(address, bytes), BackendCall::set_access, bytes,
                      mappings);
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
  return call.charged(Result<std::uint64_t>(found->id), BackendCall::stream_id);
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
