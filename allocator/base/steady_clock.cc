#include <chrono>

#include "gpupool/clock.h"

namespace gpupool {
namespace {

class SteadyClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override {
    return static_cast<std::uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
  }
};

}  // namespace

const Clock& steady_clock() noexcept {
  static const SteadyClock clock;
  return clock;
}

}  // namespace gpupool
