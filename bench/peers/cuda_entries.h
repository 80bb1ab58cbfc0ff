// What gpupool_peers measures only where the build has CUDA, without a CUDA header in the rest of
// the program.
//
// Thread safety: one thread.
#ifndef GPUPOOL_BENCH_PEERS_CUDA_ENTRIES_H_
#define GPUPOOL_BENCH_PEERS_CUDA_ENTRIES_H_

#include <optional>
#include <string>

#include "bench/peers/program.h"

namespace gpupool::bench {

void add_cuda_entries(Program& program);

/// Where the command line asks this process to be another one's helper: what it ends with.
std::optional<int> help_another_process(int argc, char** argv);

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_CUDA_ENTRIES_H_
