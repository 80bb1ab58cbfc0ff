// How the pools among the baselines get a segment from the driver.
//
// Thread safety: plain functions. Cost: one to three driver calls.
#ifndef GPUPOOL_BENCH_BASELINES_GROWTH_H_
#define GPUPOOL_BENCH_BASELINES_GROWTH_H_

#include <cstdint>
#include <functional>

#include "gpupool/backend.h"

namespace gpupool::baselines {

inline void* to_pointer(DeviceAddress address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}
inline DeviceAddress to_address(const void* pointer) {
  return static_cast<DeviceAddress>(reinterpret_cast<std::uintptr_t>(pointer));
}

struct Segment {
  DeviceAddress address = 0;
  std::uint64_t bytes = 0;
};

/// Asks for `wanted_bytes`; where the device has no room for that, for `needed_bytes`; and once
/// more for those after `give_back` has returned what is unused to the driver (true: there was
/// something). cudaFree waits for the device, so that memory which went this way is anybody's.
Result<Segment> grow(Backend& backend, std::uint64_t wanted_bytes, std::uint64_t needed_bytes,
                     const std::function<bool()>& give_back);

}  // namespace gpupool::baselines

#endif  // GPUPOOL_BENCH_BASELINES_GROWTH_H_
