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
  // Never destroyed: a maintenance thread may read it while the program's static objects end.
  static const auto* const clock = new SteadyClock();
  return *clock;
}

}  // namespace gpupool
