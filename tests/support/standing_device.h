// A device whose clock nothing moves, neither waiting nor the driver; else it does what another
// does.
#ifndef GPUPOOL_TESTS_SUPPORT_STANDING_DEVICE_H_
#define GPUPOOL_TESTS_SUPPORT_STANDING_DEVICE_H_

#include <cstdint>

#include "gpupool/forwarding_backend.h"

namespace gpupool {

class StandingClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override { return 1; }
};

class StandingDevice final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  const Clock& clock() const noexcept override { return clock_; }
  void wait_until(std::uint64_t /*time_ns*/) override {}
  bool has_passed(std::uint64_t /*time_ns*/) const override { return true; }

 private:
  StandingClock clock_;
};

}  // namespace gpupool

#endif  // GPUPOOL_TESTS_SUPPORT_STANDING_DEVICE_H_
