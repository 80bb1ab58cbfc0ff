// Memory of the driver's for one block alone: a cudaMalloc, or one physical handle that can be
// passed to other processes, at addresses reserved for it.
//
// Thread safety: as Driver; under the pool's growth lock. Cost: driver calls.
#ifndef GPUPOOL_POOL_OWN_ALLOCATION_H_
#define GPUPOOL_POOL_OWN_ALLOCATION_H_

#include <cstdint>

#include "backend/driver.h"
#include "gpupool/options.h"
#include "pool/fallbacks.h"

namespace gpupool::internal {

/// What it takes to hold `bytes` so aligned.
std::uint64_t own_bytes(std::uint64_t bytes, std::uint64_t alignment, ContiguousBacking kind);

/// Requires: `bytes` is what own_bytes() says. On an error nothing is held, but for a handle that
/// the driver would not take back, which is lost.
Result<void> take_own(Driver& driver, std::uint64_t bytes, std::uint64_t alignment,
                      ContiguousBacking kind, Fallback& out);

/// On an error `own` says what is left, for another try.
Result<void> give_back_own(Driver& driver, Fallback& own);

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_OWN_ALLOCATION_H_
