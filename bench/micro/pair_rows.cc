#include "bench/micro/pair_rows.h"

#include <benchmark/benchmark.h>

#include "bench/micro/sizes.h"

namespace gpupool::bench {
namespace {

void measure_pairs(benchmark::State& state, PairFunctions functions, std::size_t bytes) {
  // So many that the call through a pointer and the library's own loop weigh nothing.
  constexpr std::uint64_t kBatch = 1024;
  GpupoolPairLoop* const loop = functions.open(bytes);
  while (state.KeepRunningBatch(kBatch)) functions.run(loop, kBatch);
  functions.close(loop);
}

}  // namespace

void register_pair_rows(const std::string& prefix, PairFunctions functions) {
  for (const std::size_t bytes : kPairBytes) {
    const std::string name = prefix + "/" + std::to_string(bytes);
    benchmark::RegisterBenchmark(name.c_str(), measure_pairs, functions, bytes);
  }
}

}  // namespace gpupool::bench
