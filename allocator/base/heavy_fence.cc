#include "base/heavy_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"

namespace gpupool::internal {
namespace {

bool membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

bool has_heavy_fence() noexcept {
  static const bool has = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  return has;
}

void heavy_fence() noexcept { GPUPOOL_CHECK(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)); }

}  // namespace gpupool::internal
