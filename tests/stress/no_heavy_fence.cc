// Takes the place of the library's own: a system that refuses membarrier(2), as some containers do.
#include "base/check.h"
#include "base/heavy_fence.h"

namespace gpupool::internal {

bool has_heavy_fence() noexcept { return false; }
void heavy_fence() noexcept { GPUPOOL_CHECK(has_heavy_fence()); }

}  // namespace gpupool::internal
