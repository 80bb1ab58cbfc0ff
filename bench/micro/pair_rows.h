// Registers the rows PREFIX/<bytes> that run the pair loop of one build of the allocator.
//
// Thread safety: before the benchmarks run. Cost: nothing until they do.
#ifndef GPUPOOL_BENCH_MICRO_PAIR_ROWS_H_
#define GPUPOOL_BENCH_MICRO_PAIR_ROWS_H_

#include <string>

#include "bench/support/pair_loop.h"

namespace gpupool::bench {

/// How a pair loop is reached: linked, or through dlsym.
struct PairFunctions {
  decltype(&gpupool_pair_open) open = nullptr;
  decltype(&gpupool_pair_run) run = nullptr;
  decltype(&gpupool_pair_close) close = nullptr;
};

void register_pair_rows(const std::string& prefix, PairFunctions functions);

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_MICRO_PAIR_ROWS_H_
