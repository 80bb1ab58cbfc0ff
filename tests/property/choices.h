// Short names of what the kinds of lists are made of, so that a kind is a line of a table.
#pragma once

#include "gpupool/options.h"
#include "gpupool/simulated_backend.h"

namespace gpupool::test {

inline constexpr auto kVmm = Backing::vmm;
inline constexpr auto kSegments = Backing::cudamalloc;
inline constexpr auto kAddresses = SimulatedMemory::address_only;
inline constexpr auto kReal = SimulatedMemory::real;
inline constexpr auto kEager = Recycling::eager;
inline constexpr auto kPressure = Recycling::pressure;
inline constexpr auto kWait = AliasReuse::wait;
inline constexpr auto kSameStream = AliasReuse::same_stream;

}  // namespace gpupool::test
