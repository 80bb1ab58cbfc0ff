// A decorator over any Backend that makes chosen calls fail or take long, for tests: the n-th call
// of a kind, every n-th, or each with a probability drawn from a seed.
//
// A call made to fail is not passed on, so nothing has changed on the device, like a call that the
// driver refused. Thread safety: all methods may be called from any thread. Cost: one lock a call.
#ifndef GPUPOOL_FAULTY_BACKEND_H_
#define GPUPOOL_FAULTY_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "gpupool/forwarding_backend.h"

namespace gpupool {

enum class BackendCall : std::uint8_t {
  memory_info,
  reserve_address,
  free_address,
  create,
  release,
  map,
  set_access,
  unmap,
  allocate,
  deallocate,
  stream_id,
  capture_state,
  create_event,
  destroy_event,
  record_event,
  query_event,
  wait_event,
  synchronize_event,
  capture_id,
  synchronize_device,
  fill,
  read,
};
inline constexpr std::size_t kBackendCallCount = 22;

const char* to_string(BackendCall call) noexcept;

class FaultyBackend final : public ForwardingBackend {
 public:
  /// Requires: `inner` outlives this object.
  explicit FaultyBackend(Backend& inner, std::uint64_t seed = 0);
  ~FaultyBackend() override;

  /// The n-th call of `call` from now on (1 is the next) fails with `error`.
  void fail_nth(BackendCall call, std::uint64_t n, Error error);
  /// The n-th call of any kind from now on fails with `error`.
  void fail_nth_of_all(std::uint64_t n, Error error);
  /// Each call of `call` fails with this probability, drawn from the seed.
  void fail_at_random(BackendCall call, double probability, Error error);
  /// `hook` runs before each call of `call` is passed on (to block, to count, to sleep).
  void before(BackendCall call, std::function<void()> hook);
  /// Takes all plans back.
  void clear();
  std::uint64_t call_count(BackendCall call) const;
  std::uint64_t call_count() const;
  std::uint64_t failed_count() const;

  // What can fail; all else is passed on, and not counted.
  Result<MemoryInfo> memory_info() override;
  Result<DeviceAddress> reserve_address(std::size_t bytes, std::size_t alignment) override;
  Result<void> free_address(DeviceAddress address, std::size_t bytes) override;
  Result<PhysicalHandle> create(std::size_t bytes) override;
  Result<PhysicalHandle> create_shareable(std::size_t bytes) override;
  Result<void> release(PhysicalHandle handle) override;
  Result<void> map(DeviceAddress address, std::size_t bytes, PhysicalHandle handle) override;
  Result<void> set_access(DeviceAddress address, std::size_t bytes) override;
  Result<void> set_shared_access(DeviceAddress address, std::size_t bytes,
                                 const std::vector<int>& peers) override;
  Result<void> unmap(DeviceAddress address, std::size_t bytes) override;
  Result<DeviceAddress> allocate(std::size_t bytes) override;
  Result<void> deallocate(DeviceAddress address) override;
  Result<void> fill(DeviceAddress address, std::size_t bytes, std::uint8_t value,
                    RawStream stream) override;
  Result<void> read(DeviceAddress address, std::size_t bytes, void* to, RawStream stream) override;
  Result<std::uint64_t> stream_id(RawStream stream) override;
  Result<CaptureState> capture_state(RawStream stream) override;
  Result<std::uint64_t> capture_id(RawStream stream) override;
  Result<EventHandle> create_event() override;
  Result<void> destroy_event(EventHandle event) override;
  Result<void> record_event(EventHandle event, RawStream stream) override;
  Result<bool> query_event(EventHandle event) override;
  Result<void> wait_event(RawStream stream, EventHandle event) override;
  Result<void> synchronize_event(EventHandle event) override;
  Result<void> synchronize_device() override;

 private:
  class Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace gpupool

#endif  // GPUPOOL_FAULTY_BACKEND_H_
