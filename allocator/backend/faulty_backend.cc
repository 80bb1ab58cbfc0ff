#include "gpupool/faulty_backend.h"

#include <array>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "base/mutex.h"

namespace gpupool {

const char* to_string(BackendCall call) noexcept {
  switch (call) {
    case BackendCall::memory_info: return "memory_info";
    case BackendCall::reserve_address: return "reserve_address";
    case BackendCall::free_address: return "free_address";
    case BackendCall::create: return "create";
    case BackendCall::release: return "release";
    case BackendCall::map: return "map";
    case BackendCall::set_access: return "set_access";
    case BackendCall::unmap: return "unmap";
    case BackendCall::allocate: return "allocate";
    case BackendCall::deallocate: return "deallocate";
    case BackendCall::stream_id: return "stream_id";
    case BackendCall::capture_state: return "capture_state";
    case BackendCall::create_event: return "create_event";
    case BackendCall::destroy_event: return "destroy_event";
    case BackendCall::record_event: return "record_event";
    case BackendCall::query_event: return "query_event";
    case BackendCall::wait_event: return "wait_event";
    case BackendCall::synchronize_event: return "synchronize_event";
    case BackendCall::capture_id: return "capture_id";
    case BackendCall::synchronize_device: return "synchronize_device";
    case BackendCall::fill: return "fill";
    case BackendCall::read: return "read";
  }
  return "unknown";
}

/// What was asked to go wrong, and what was called so far.
class FaultyBackend::Plan {
 public:
  explicit Plan(std::uint64_t seed) : random_(seed) {}

  void fail_nth(BackendCall call, std::uint64_t n, Error error) GPUPOOL_EXCLUDES(mutex_) {
    const internal::MutexLock lock(mutex_);
    PerCall& plan = of(call);
    plan.nth[plan.calls + n] = error;
  }
  void fail_nth_of_all(std::uint64_t n, Error error) GPUPOOL_EXCLUDES(mutex_) {
    const internal::MutexLock lock(mutex_);
    nth_of_all_[calls_ + n] = error;
  }
  void fail_at_random(BackendCall call, double probability, Error error) GPUPOOL_EXCLUDES(mutex_) {
    const internal::MutexLock lock(mutex_);
    of(call).probability = probability;
    of(call).random_error = error;
  }
  void before(BackendCall call, std::function<void()> hook) GPUPOOL_EXCLUDES(mutex_) {
    const internal::MutexLock lock(mutex_);
    of(call).hook = std::move(hook);
  }
  void clear() GPUPOOL_EXCLUDES(mutex_) {
    const internal::MutexLock lock(mutex_);
    nth_of_all_.clear();
    for (PerCall& plan : per_call_) {
      plan.nth.clear();
      plan.probability = 0;
      plan.hook = nullptr;
    }
  }

  /// Counts a call. The error it is to fail with, or nothing once its hook has run.
  std::optional<Error> enter(BackendCall call) GPUPOOL_EXCLUDES(mutex_) {
    std::function<void()> hook;
    {
      const internal::MutexLock lock(mutex_);
      if (const auto error = count(of(call))) {
        ++failed_;
        return error;
      }
      hook = of(call).hook;
    }
    // Without the lock: a hook may block until another thread has made its call.
    if (hook) hook();
    return std::nullopt;
  }

  std::uint64_t call_count(BackendCall call) const GPUPOOL_EXCLUDES(mutex_) {
    const internal::MutexLock lock(mutex_);
    return per_call_[static_cast<std::size_t>(call)].calls;
  }
  std::uint64_t call_count() const GPUPOOL_EXCLUDES(mutex_) {
    const internal::MutexLock lock(mutex_);
    return calls_;
  }
  std::uint64_t failed_count() const GPUPOOL_EXCLUDES(mutex_) {
    const internal::MutexLock lock(mutex_);
    return failed_;
  }

 private:
  using ErrorByNumber = std::map<std::uint64_t, Error>;  // number of the call -> error
  struct PerCall {
    std::uint64_t calls = 0;
    ErrorByNumber nth;
    double probability = 0;
    Error random_error = Error::backend_failure;
    std::function<void()> hook;
  };

  PerCall& of(BackendCall call) GPUPOOL_REQUIRES(mutex_) {
    return per_call_[static_cast<std::size_t>(call)];
  }

  static std::optional<Error> take(ErrorByNumber& errors, std::uint64_t number) {
    const auto it = errors.find(number);
    if (it == errors.end()) return std::nullopt;
    const Error error = it->second;
    errors.erase(it);
    return error;
  }

  std::optional<Error> count(PerCall& plan) GPUPOOL_REQUIRES(mutex_) {
    // Both plans are asked, so that neither is left behind when both name this call.
    const auto by_total = take(nth_of_all_, ++calls_);
    const auto by_kind = take(plan.nth, ++plan.calls);
    if (by_kind) return by_kind;
    if (by_total) return by_total;
    if (plan.probability > 0 && std::bernoulli_distribution(plan.probability)(random_)) {
      return plan.random_error;
    }
    return std::nullopt;
  }

  mutable internal::Mutex mutex_;
  std::mt19937_64 random_ GPUPOOL_GUARDED_BY(mutex_);
  std::uint64_t calls_ GPUPOOL_GUARDED_BY(mutex_) = 0;
  std::uint64_t failed_ GPUPOOL_GUARDED_BY(mutex_) = 0;
  ErrorByNumber nth_of_all_ GPUPOOL_GUARDED_BY(mutex_);
  std::array<PerCall, kBackendCallCount> per_call_ GPUPOOL_GUARDED_BY(mutex_);
};

FaultyBackend::FaultyBackend(Backend& inner, std::uint64_t seed)
    : ForwardingBackend(inner), plan_(std::make_unique<Plan>(seed)) {}

FaultyBackend::~FaultyBackend() = default;

void FaultyBackend::fail_nth(BackendCall call, std::uint64_t n, Error error) {
  plan_->fail_nth(call, n, error);
}

void FaultyBackend::fail_nth_of_all(std::uint64_t n, Error error) {
  plan_->fail_nth_of_all(n, error);
}

void FaultyBackend::fail_at_random(BackendCall call, double probability, Error error) {
  plan_->fail_at_random(call, probability, error);
}

void FaultyBackend::before(BackendCall call, std::function<void()> hook) {
  plan_->before(call, std::move(hook));
}

void FaultyBackend::clear() { plan_->clear(); }

std::uint64_t FaultyBackend::call_count(BackendCall call) const { return plan_->call_count(call); }

std::uint64_t FaultyBackend::call_count() const { return plan_->call_count(); }

std::uint64_t FaultyBackend::failed_count() const { return plan_->failed_count(); }

Result<MemoryInfo> FaultyBackend::memory_info() {
  if (const auto error = plan_->enter(BackendCall::memory_info)) return *error;
  return inner().memory_info();
}

Result<DeviceAddress> FaultyBackend::reserve_address(std::size_t bytes, std::size_t alignment) {
  if (const auto error = plan_->enter(BackendCall::reserve_address)) return *error;
  return inner().reserve_address(bytes, alignment);
}

Result<void> FaultyBackend::free_address(DeviceAddress address, std::size_t bytes) {
  if (const auto error = plan_->enter(BackendCall::free_address)) return *error;
  return inner().free_address(address, bytes);
}

Result<PhysicalHandle> FaultyBackend::create(std::size_t bytes) {
  if (const auto error = plan_->enter(BackendCall::create)) return *error;
  return inner().create(bytes);
}

Result<PhysicalHandle> FaultyBackend::create_shareable(std::size_t bytes) {
  if (const auto error = plan_->enter(BackendCall::create)) return *error;
  return inner().create_shareable(bytes);
}

Result<void> FaultyBackend::release(PhysicalHandle handle) {
  if (const auto error = plan_->enter(BackendCall::release)) return *error;
  return inner().release(handle);
}

Result<void> FaultyBackend::map(DeviceAddress address, std::size_t bytes, PhysicalHandle handle) {
  if (const auto error = plan_->enter(BackendCall::map)) return *error;
  return inner().map(address, bytes, handle);
}

Result<void> FaultyBackend::set_access(DeviceAddress address, std::size_t bytes) {
  if (const auto error = plan_->enter(BackendCall::set_access)) return *error;
  return inner().set_access(address, bytes);
}

Result<void> FaultyBackend::set_shared_access(DeviceAddress address, std::size_t bytes,
                                              const std::vector<int>& peers) {
  if (const auto error = plan_->enter(BackendCall::set_access)) return *error;
  return inner().set_shared_access(address, bytes, peers);
}

Result<void> FaultyBackend::unmap(DeviceAddress address, std::size_t bytes) {
  if (const auto error = plan_->enter(BackendCall::unmap)) return *error;
  return inner().unmap(address, bytes);
}

Result<DeviceAddress> FaultyBackend::allocate(std::size_t bytes) {
  if (const auto error = plan_->enter(BackendCall::allocate)) return *error;
  return inner().allocate(bytes);
}

Result<void> FaultyBackend::deallocate(DeviceAddress address) {
  if (const auto error = plan_->enter(BackendCall::deallocate)) return *error;
  return inner().deallocate(address);
}

Result<void> FaultyBackend::fill(DeviceAddress address, std::size_t bytes, std::uint8_t value,
                                 RawStream stream) {
  if (const auto error = plan_->enter(BackendCall::fill)) return *error;
  return inner().fill(address, bytes, value, stream);
}

Result<void> FaultyBackend::read(DeviceAddress address, std::size_t bytes, void* to,
                                 RawStream stream) {
  if (const auto error = plan_->enter(BackendCall::read)) return *error;
  return inner().read(address, bytes, to, stream);
}

Result<std::uint64_t> FaultyBackend::stream_id(RawStream stream) {
  if (const auto error = plan_->enter(BackendCall::stream_id)) return *error;
  return inner().stream_id(stream);
}

Result<CaptureState> FaultyBackend::capture_state(RawStream stream) {
  if (const auto error = plan_->enter(BackendCall::capture_state)) return *error;
  return inner().capture_state(stream);
}

Result<std::uint64_t> FaultyBackend::capture_id(RawStream stream) {
  if (const auto error = plan_->enter(BackendCall::capture_id)) return *error;
  return inner().capture_id(stream);
}

Result<EventHandle> FaultyBackend::create_event() {
  if (const auto error = plan_->enter(BackendCall::create_event)) return *error;
  return inner().create_event();
}

Result<void> FaultyBackend::destroy_event(EventHandle event) {
  if (const auto error = plan_->enter(BackendCall::destroy_event)) return *error;
  return inner().destroy_event(event);
}

Result<void> FaultyBackend::record_event(EventHandle event, RawStream stream) {
  if (const auto error = plan_->enter(BackendCall::record_event)) return *error;
  return inner().record_event(event, stream);
}

Result<bool> FaultyBackend::query_event(EventHandle event) {
  if (const auto error = plan_->enter(BackendCall::query_event)) return *error;
  return inner().query_event(event);
}

Result<void> FaultyBackend::wait_event(RawStream stream, EventHandle event) {
  if (const auto error = plan_->enter(BackendCall::wait_event)) return *error;
  return inner().wait_event(stream, event);
}

Result<void> FaultyBackend::synchronize_event(EventHandle event) {
  if (const auto error = plan_->enter(BackendCall::synchronize_event)) return *error;
  return inner().synchronize_event(event);
}

Result<void> FaultyBackend::synchronize_device() {
  if (const auto error = plan_->enter(BackendCall::synchronize_device)) return *error;
  return inner().synchronize_device();
}

}  // namespace gpupool
