// The steps of the program that need no other library than CUDA. Each runs on pools that it makes,
// reports what is wrong, and fills in its row.
//
// Thread safety: one step at a time.
#ifndef GPUPOOL_TESTS_GPU_PEERS_STEPS_H_
#define GPUPOOL_TESTS_GPU_PEERS_STEPS_H_

#include <chrono>
#include <cstdint>

#include "tests/gpu/peers/fleet.h"

namespace gpupool::gpu_tests {

/// How much a step is to do, and how long it may take.
struct Budget {
  std::uint64_t rounds = 0;
  std::chrono::steady_clock::time_point end;
  bool is_over() const { return std::chrono::steady_clock::now() >= end; }
};

/// What every step is given.
struct Task {
  Cards& cards;
  Watch& watch;
  Mode mode;
  Budget budget;
  Row& row;
};

/// What pools of these steps may hold each: little enough for pages to have to move, and segments,
/// which leave larger holes, to have to go back.
inline std::uint64_t capacity_of(const Mode& mode) {
  return std::uint64_t{mode.moves_pages() ? 512U : 384U} << 20;
}

/// A wrong check would pass everything: words that are wrong on purpose are counted.
void prove_checks(Task& task);
/// Every call of a pool, in threads that have each device current, or none.
void call_everything(Task& task);
/// Pages that have just moved are read and written by the other devices. The mode moves pages.
void reach_moved_pages(Task& task);
/// Copies between devices, and kernels that read and write the other's block, while others
/// allocate on both.
void copy_between(Task& task);
/// Blocks that another process, of another device where there is one, opens, reads and writes; and
/// those that cannot be passed on say so.
void share_between_processes(Task& task);

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_PEERS_STEPS_H_
