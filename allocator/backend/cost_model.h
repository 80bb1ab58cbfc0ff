// How long a driver call takes on a card, by kind and bytes: what the simulated device charges.
//
// Source: medians measured on an NVIDIA H200, driver 580, CUDA 13.0, idle device, one thread.
// Between two measured sizes the cost is interpolated linearly in log2(bytes); outside them it is
// that of the nearest.
//
// The cost of set_access and of unmap is per mapping and hardly per byte: a call that spans
// several mappings costs what one on the first costs, and a fixed 27 us (set_access) or 18 us
// (unmap) for each further. That agrees within 30 % with 1 GiB of addresses set and unmapped over
// handles of 2 MiB to 128 MiB (16.1 / 11.4 ms to 0.22 / 0.13 ms).
//
// Thread safety: pure functions. Cost: a search in at most five points, about 10 ns.
#ifndef GPUPOOL_BACKEND_COST_MODEL_H_
#define GPUPOOL_BACKEND_COST_MODEL_H_

#include <cstdint>

#include "gpupool/faulty_backend.h"

namespace gpupool::internal {

/// Duration of `call` on `bytes`; 0 bytes for calls that have no size. For set_access and unmap
/// `bytes` are those of the whole span and `mappings` is how many it holds.
std::uint64_t modelled_cost_ns(BackendCall call, std::uint64_t bytes,
                               std::uint64_t mappings = 1) noexcept;

}  // namespace gpupool::internal

#endif  // GPUPOOL_BACKEND_COST_MODEL_H_
