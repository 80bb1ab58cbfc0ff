#include "backend/driver.h"

#include "base/duration_bucket.h"

namespace gpupool::internal {

template <class Call>
auto Driver::timed(DriverOperation operation, std::size_t bytes, Call call) -> decltype(call()) {
  const std::uint64_t start = now_ns();
  auto result = call();
  const std::uint64_t duration = now_ns() - start;

  Counters& counters = counters_[static_cast<std::size_t>(operation)];
  counters.calls.fetch_add(1, std::memory_order_relaxed);
  counters.sum_ns.fetch_add(duration, std::memory_order_relaxed);
  counters.duration[duration_bucket(duration)].fetch_add(1, std::memory_order_relaxed);
  if (!result.ok()) counters.failures.fetch_add(1, std::memory_order_relaxed);

  if (observer_ != nullptr) {
    SlowPathEvent event;
    event.kind = SlowPathEventKind::driver_call;
    event.operation = operation;
    event.time_ns = event_clock_.now_ns();
    event.duration_ns = duration;
    event.bytes = bytes;
    event.failed = !result.ok();
    if (event.failed) event.error = result.error();
    observer_->on_event(event);
  }
  return result;
}

template <class Given>
Given Driver::count_taken(Given result, std::size_t bytes) {
  if (result.ok()) taken_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return result;
}

Result<void> Driver::count_released(Result<void> result, std::size_t bytes) {
  std::atomic<std::uint64_t>& released = released_bytes_[static_cast<std::size_t>(reason_)];
  if (result.ok()) released.fetch_add(bytes, std::memory_order_relaxed);
  return result;
}

std::uint64_t Driver::held_bytes() const noexcept {
  std::uint64_t held = taken_bytes_.load(std::memory_order_relaxed);
  for (const auto& released : released_bytes_) held -= released.load(std::memory_order_relaxed);
  return held;
}

Result<PhysicalHandle> Driver::create(std::size_t bytes) {
  return count_taken(timed(DriverOperation::create, bytes, [&] { return backend_.create(bytes); }),
                     bytes);
}

Result<PhysicalHandle> Driver::create_shareable(std::size_t bytes) {
  return count_taken(
      timed(DriverOperation::create, bytes, [&] { return backend_.create_shareable(bytes); }),
      bytes);
}

Result<void> Driver::release(PhysicalHandle handle, std::size_t bytes) {
  return count_released(
      timed(DriverOperation::release, bytes, [&] { return backend_.release(handle); }), bytes);
}

Result<void> Driver::map(DeviceAddress address, std::size_t bytes, PhysicalHandle handle) {
  return timed(DriverOperation::map, bytes, [&] { return backend_.map(address, bytes, handle); });
}

Result<void> Driver::set_access(DeviceAddress address, std::size_t bytes) {
  return timed(DriverOperation::set_access, bytes, [&] {
    return peers_.empty() ? backend_.set_access(address, bytes)
                          : backend_.set_shared_access(address, bytes, peers_);
  });
}

Result<void> Driver::unmap(DeviceAddress address, std::size_t bytes) {
  return timed(DriverOperation::unmap, bytes, [&] { return backend_.unmap(address, bytes); });
}

Result<DeviceAddress> Driver::allocate(std::size_t bytes) {
  auto address = count_taken(
      timed(DriverOperation::allocate, bytes, [&] { return backend_.allocate(bytes); }), bytes);
  if (notes_ != nullptr && address.ok()) notes_->add_heap(address.value(), bytes);
  return address;
}

Result<void> Driver::deallocate(DeviceAddress address, std::size_t bytes) {
  // Before, since the address may be another's at once.
  if (notes_ != nullptr) notes_->remove_heap(address);
  auto gone = count_released(
      timed(DriverOperation::deallocate, bytes, [&] { return backend_.deallocate(address); }),
      bytes);
  if (notes_ != nullptr && !gone.ok()) notes_->add_heap(address, bytes);
  return gone;
}

void Driver::add_to(StatsV1& stats) const {
  for (std::size_t i = 0; i < kReleaseReasonCount; ++i) {
    stats.released_bytes_by_reason[i] += released_bytes_[i].load(std::memory_order_relaxed);
  }
  for (std::size_t i = 0; i < kDriverOperationCount; ++i) {
    const Counters& from = counters_[i];
    const auto calls = from.calls.load(std::memory_order_relaxed);
    const auto failures = from.failures.load(std::memory_order_relaxed);
    const auto sum_ns = from.sum_ns.load(std::memory_order_relaxed);
    stats.driver_calls += calls;
    stats.driver_failures += failures;
    stats.driver_ns += sum_ns;
    stats.driver_calls_by_operation[i] += calls;
    stats.driver_failures_by_operation[i] += failures;
    stats.driver_duration[i].sum_ns += sum_ns;
    for (std::size_t b = 0; b < kDurationBuckets; ++b) {
      stats.driver_duration[i].count[b] += from.duration[b].load(std::memory_order_relaxed);
    }
  }
}

}  // namespace gpupool::internal
