// NCCL on blocks of pools: exact results while others allocate, and how long it takes beside memory
// of cudaMalloc. In builds without NCCL missing_nccl() says so, and the rest is not to be called.
//
// Thread safety: one step at a time.
#ifndef GPUPOOL_TESTS_GPU_PEERS_COLLECTIVES_H_
#define GPUPOOL_TESTS_GPU_PEERS_COLLECTIVES_H_

#include <memory>
#include <string>

#include "tests/gpu/peers/steps.h"

namespace gpupool::gpu_tests {

/// One for each device, all in this process.
class Communicators;

/// Why there is no NCCL; empty where there is.
std::string missing_nccl();
/// Its version, in words. Turns NVLink multicast off where nothing is said of it.
std::string open_nccl();
std::shared_ptr<Communicators> open_communicators(const Cards& cards);

/// All-reduce and all-gather on blocks of the contiguous class.
void run_collectives(Communicators& communicators, Task& task, bool is_registered);
/// Adds a Timing for each operation and size, each the medians of `runs` runs that alternate, and
/// a fault where the pool's blocks are slower by more than kMostSlower.
void time_collectives(Communicators& communicators, Task& task, bool is_registered, int runs);
inline constexpr double kMostSlower = 0.03;

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_PEERS_COLLECTIVES_H_
