// The simulated device's inside, and one call into it: what the files of SimulatedBackend share.
//
// Thread safety: Device::mutex guards what is said to be guarded by it; a DeviceCall holds it.
#ifndef GPUPOOL_BACKEND_SIMULATED_DEVICE_H_
#define GPUPOOL_BACKEND_SIMULATED_DEVICE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cost_model.h"
#include "backend/simulated_memory.h"
#include "backend/simulated_notes.h"
#include "backend/simulated_streams.h"
#include "backend/simulated_violations.h"
#include "base/mutex.h"
#include "gpupool/simulated_backend.h"

namespace gpupool::internal {

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
inline void spend(std::uint64_t duration_ns) {
  constexpr auto kSleepIsLate = std::chrono::microseconds(100);
  const auto duration = std::chrono::nanoseconds(duration_ns);
  const auto end = std::chrono::steady_clock::now() + duration;
  if (duration > 2 * kSleepIsLate) std::this_thread::sleep_for(duration - kSleepIsLate);
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

inline DeviceInfo make_info(const SimulatedDeviceOptions& options) {
  const std::string digits = std::to_string(options.ordinal);
  DeviceInfo info;
  info.ordinal = options.ordinal;
  info.name = "simulated";
  info.uuid = "SIM-00000000-0000-0000-0000-" +
              std::string(digits.size() < 12 ? 12 - digits.size() : 0, '0') + digits;
  info.driver = "simulated";
  info.simulated = true;
  info.supports_vmm = options.supports_vmm;
  info.supports_shareable_handles = options.supports_vmm;
  return info;
}

}  // namespace gpupool::internal

namespace gpupool {

class SimulatedBackend::Device {
 public:
  explicit Device(SimulatedDeviceOptions given)
      : options(std::move(given)),
        info(internal::make_info(options)),
        memory(options, violations),
        streams(memory, violations) {}

  bool is_virtual() const { return options.time == SimulatedTime::virtual_time; }
  const Clock& clock() const {
    return is_virtual() ? static_cast<const Clock&>(virtual_clock) : steady_clock();
  }
  std::uint64_t device_ns() const {
    return is_virtual() ? virtual_clock.device_ns() : steady_clock().now_ns();
  }
  internal::SimulatedSchedule& schedule() GPUPOOL_REQUIRES(mutex) { return streams.schedule(); }
  void settle() GPUPOOL_REQUIRES(mutex) { schedule().settle(device_ns()); }

  /// Lets the device's time go on, to the end of the next timed work at most. Another thread may
  /// have completed work meanwhile. False, at once, where no timed work runs.
  bool pass_time() GPUPOOL_REQUIRES(mutex) {
    const std::uint64_t due = schedule().next_due_ns();
    if (due == internal::SimulatedSchedule::kNever) return false;
    const std::uint64_t now = device_ns();
    if (due > now && is_virtual()) {
      virtual_clock.advance_device_ns(due - now);
    } else if (due > now) {
      changed.wait_for(mutex, std::chrono::nanoseconds(due - now));
    }
    settle();
    return true;
  }

  void wait_for(const internal::SimulatedMark& mark) GPUPOOL_REQUIRES(mutex) {
    while (!mark.is_done()) {
      if (!pass_time()) changed.wait(mutex);
    }
  }

  const SimulatedDeviceOptions options;
  const DeviceInfo info;
  internal::TwoClocks virtual_clock;
  std::atomic<std::uint64_t> held_bytes{0};  // memory.held_bytes(), readable without the lock
  internal::Mutex mutex;
  std::condition_variable_any changed;  // work was completed or given
  internal::SimulatedViolations violations GPUPOOL_GUARDED_BY(mutex);
  internal::SimulatedDeviceMemory memory GPUPOOL_GUARDED_BY(mutex);
  internal::SimulatedStreams streams GPUPOOL_GUARDED_BY(mutex);
  internal::SimulatedNotes notes{[this](const std::string& text) { refuse(text); }};

 private:
  void refuse(const std::string& text) GPUPOOL_EXCLUDES(mutex);
};

namespace internal {

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

}  // namespace internal

inline void SimulatedBackend::Device::refuse(const std::string& text) {
  internal::DeviceCall call(*this);
  (void)violations.refuse(text);
}

}  // namespace gpupool

#endif  // GPUPOOL_BACKEND_SIMULATED_DEVICE_H_
