#include "bench/peers/cuda_entries.h"

namespace gpupool::bench {

void add_cuda_entries(Program& /*program*/) {}

std::optional<int> help_another_process(int /*argc*/, char** /*argv*/) { return std::nullopt; }

}  // namespace gpupool::bench
