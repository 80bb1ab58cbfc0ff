// Two statements about cudaMalloc that everybody repeats, tested on the device at hand: that it
// gives zeroed memory, and that it and cudaFree wait for work on every stream.
//
// Plain allocations only; every piece is given back. Thread safety: one thread, and nothing else on
// the device. Cost: about ten seconds, up to half of the device's free memory in another process
// for the first question.
#ifndef GPUPOOL_BENCH_PEERS_CUDA_FACTS_H_
#define GPUPOOL_BENCH_PEERS_CUDA_FACTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gpupool/status.h"

namespace gpupool::bench {

/// A block is filled with a pattern, freed, and allocated again; then its bytes are looked at.
struct ReuseTrial {
  std::uint64_t bytes = 0;
  bool has_neighbour = false;  // another block of the size stays live beside it
  std::uint64_t rounds = 0;
  std::uint64_t rounds_with_pattern = 0;  // some byte was our own pattern
  std::uint64_t rounds_with_other = 0;    // some byte was neither zero nor the pattern
  std::uint64_t rounds_at_same_address = 0;
};

/// What the first allocations of a process hold after another one filled much of the device.
struct StrangerTrial {
  std::uint64_t filled_bytes = 0;  // by the other process, before it ended
  std::uint64_t looked_at_bytes = 0;
  std::uint64_t pattern_bytes = 0;
  std::uint64_t other_bytes = 0;  // neither zero nor the pattern
};

/// cudaMalloc or cudaFree of one size, on an idle device and while another stream works.
struct StallTrial {
  std::string call;
  std::uint64_t bytes = 0;
  std::uint64_t rounds = 0;
  double idle_us = 0;        // median
  double busy_us = 0;        // median
  std::uint64_t waited = 0;  // rounds in which the work was over when the call came back
};

struct CudaMallocFacts {
  StrangerTrial stranger;
  std::vector<ReuseTrial> reuse;
  std::string job_kind;
  double job_ms = 0;
  std::vector<StallTrial> stalls;
};

/// Requires: argv[0]'s program answers `kFillArgument` by fill_and_end().
Result<CudaMallocFacts, Status> measure_cuda_malloc_facts();

inline constexpr char kFillArgument[] = "--fill-and-end";
/// Fills half of what the device has free with the pattern and prints how many bytes that were. The
/// caller ends the process with what this returns, the memory still allocated.
int fill_and_end();

std::string to_json_text(const CudaMallocFacts& facts);
/// Plain sentences with the numbers.
std::string to_text(const CudaMallocFacts& facts);

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_CUDA_FACTS_H_
