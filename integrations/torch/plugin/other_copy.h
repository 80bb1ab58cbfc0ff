// Whether another copy of this library serves the process: loaded from another path, it has pools
// and books of its own, and two pools that each believe the card to be theirs would starve each
// other.
//
// Thread safety: any thread. Cost: a walk over what is loaded.
#ifndef GPUPOOL_INTEGRATIONS_TORCH_OTHER_COPY_H_
#define GPUPOOL_INTEGRATIONS_TORCH_OTHER_COPY_H_

#include <string>

namespace gpupool::torch {

/// The path of a loaded copy that is in use; "" where there is none.
std::string find_other_copy_in_use();

}  // namespace gpupool::torch

#endif  // GPUPOOL_INTEGRATIONS_TORCH_OTHER_COPY_H_
