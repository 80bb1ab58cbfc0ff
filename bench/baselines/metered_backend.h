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

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "gpupool/forwarding_backend.h"

namespace gpupool::baselines {

struct DriverUse {
  std::uint64_t calls = 0;
  std::uint64_t ns = 0;

  friend DriverUse operator-(DriverUse later, DriverUse earlier) {
    return {later.calls - earlier.calls, later.ns - earlier.ns};
  }
};

class MeteredBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  DriverUse use() const { return use_; }
  std::uint64_t peak_held_bytes() const { return peak_held_bytes_; }
  void reset_peak() { peak_held_bytes_ = inner().held_bytes(); }

  Result<PhysicalHandle> create(std::size_t bytes) override {
    return metered([&] { return inner().create(bytes); });
  }
  Result<PhysicalHandle> create_shareable(std::size_t bytes) override {
    return metered([&] { return inner().create_shareable(bytes); });
  }
  Result<void> release(PhysicalHandle handle) override {
    return metered([&] { return inner().release(handle); });
  }
  Result<void> map(DeviceAddress address, std::size_t bytes, PhysicalHandle handle) override {
    return metered([&] { return inner().map(address, bytes, handle); });
  }
  Result<void> set_access(DeviceAddress address, std::size_t bytes) override {
    return metered([&] { return inner().set_access(address, bytes); });
  }
  Result<void> set_shared_access(DeviceAddress address, std::size_t bytes,
                                 const std::vector<int>& peers) override {
    return metered([&] { return inner().set_shared_access(address, bytes, peers); });
  }
  Result<void> unmap(DeviceAddress address, std::size_t bytes) override {
    return metered([&] { return inner().unmap(address, bytes); });
  }
  Result<DeviceAddress> allocate(std::size_t bytes) override {
    return metered([&] { return inner().allocate(bytes); });
  }
  Result<void> deallocate(DeviceAddress address) override {
    return metered([&] { return inner().deallocate(address); });
  }

 private:
  template <class Call>
  std::invoke_result_t<const Call&> metered(const Call& call) {
    const std::uint64_t start_ns = inner().clock().now_ns();
    auto result = call();
    use_.ns += inner().clock().now_ns() - start_ns;
    ++use_.calls;
    const std::uint64_t held_bytes = inner().held_bytes();
    if (held_bytes > peak_held_bytes_) peak_held_bytes_ = held_bytes;
    return result;
  }

  DriverUse use_;
  std::uint64_t peak_held_bytes_ = 0;
};

}  // namespace gpupool::baselines

#endif  // GPUPOOL_BENCH_BASELINES_METERED_BACKEND_H_
