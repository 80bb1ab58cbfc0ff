#include "tests/gpu/peers/collectives.h"

namespace gpupool::gpu_tests {

std::string missing_nccl() { return "this build has no NCCL (CMake looks for it in NCCL_ROOT)"; }

std::string open_nccl() { throw Broken(missing_nccl()); }

std::shared_ptr<Communicators> open_communicators(const Cards& /*cards*/) {
  throw Broken(missing_nccl());
}

void run_collectives(Communicators& /*communicators*/, Task& /*task*/, bool /*is_registered*/) {
  throw Broken(missing_nccl());
}

void time_collectives(Communicators& /*communicators*/, Task& /*task*/, bool /*is_registered*/,
                      int /*runs*/) {
  throw Broken(missing_nccl());
}

}  // namespace gpupool::gpu_tests
