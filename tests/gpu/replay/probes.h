// What a card does where CUDA makes no promise, as figures: a page read at another address than it
// was written at (alias_probe.h), and a chain of dependent launches whose pages move
// (dependent_chain.h).
//
// Thread safety: one thread. Cost: below a second.
#ifndef GPUPOOL_TESTS_GPU_REPLAY_PROBES_H_
#define GPUPOOL_TESTS_GPU_REPLAY_PROBES_H_

#include <cstdint>
#include <string>

#include "gpupool/options.h"
#include "tests/gpu/replay/alias_probe.h"

namespace gpupool::gpu_tests {

struct ChainCase {
  AliasReuse alias_reuse = AliasReuse::wait;
  std::uint64_t links = 0;
  std::uint64_t pages_recycled = 0;
  std::uint64_t served_after_wait = 0;
  std::uint64_t wrong_words = 0;
  std::string error;  // why it was not measured
};

ChainCase probe_chain(AliasReuse alias_reuse, std::uint64_t links);

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_REPLAY_PROBES_H_
