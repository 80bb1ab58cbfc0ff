// One page at two addresses: does a grid that reads through one of them see what another wrote
// through the other?
//
// CUDA's programming guide promises it to grids that start after the writing one is over, and calls
// incoherent what was already there when the write was made. This measures on the card at hand, for
// each kind of reader, at the same address (where there is a promise for all of them) and at the
// other one: how often the reader was there before the write, and how many words were not the new
// ones. It reports and asserts nothing: hardware may go either way.
//
// Thread safety: one thread. Cost: some milliseconds a case.
#ifndef GPUPOOL_TESTS_GPU_REPLAY_ALIAS_PROBE_H_
#define GPUPOOL_TESTS_GPU_REPLAY_ALIAS_PROBE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gpupool/status.h"

namespace gpupool::gpu_tests {

struct AliasCase {
  std::string reader;     // when it starts, and what it does before the write
  bool is_alias = false;  // reads at the other address
  std::uint64_t rounds = 0;
  std::uint64_t rounds_already_there = 0;  // the reader was there before the write
  std::uint64_t words = 0;                 // read in all rounds
  std::uint64_t old_words = 0;             // of them not what was written
};

/// On CUDA device 0. Empty where the card has no dependent launch.
Result<std::vector<AliasCase>, Status> probe_aliases(std::uint64_t rounds);

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_REPLAY_ALIAS_PROBE_H_
