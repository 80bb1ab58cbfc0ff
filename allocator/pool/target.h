// Where an address given by a caller leads.
#ifndef GPUPOOL_POOL_TARGET_H_
#define GPUPOOL_POOL_TARGET_H_

#include "pool/block_ref.h"
#include "pool/fallbacks.h"

namespace gpupool::internal {

struct Target {
  BlockRef block;
  Fallback* fallback = nullptr;
  bool is_start = false;
  bool exists() const noexcept { return block.exists() || fallback != nullptr; }
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_TARGET_H_
