// What a recording costs the thread that allocates: the pair loop while the pool records.
#include <benchmark/benchmark.h>

#include <string>

#include "bench/micro/rows.h"
#include "bench/support/pair_loop.h"

namespace gpupool::bench {
namespace {

constexpr std::uint64_t kRecordBatch = 1024;
/// So many the buffer has room for, however slow the writer: what is left out would cost less.
constexpr std::uint64_t kPairs = 512 * kRecordBatch;

void measure_recorded_pairs(benchmark::State& state, std::size_t bytes) {
  GpupoolPairLoop* const loop = gpupool_pair_open(bytes);
  gpupool_pair_record(loop, kPairs);
  std::uint64_t made = 0;
  while (state.KeepRunningBatch(kRecordBatch)) {
    if (made == kPairs) {
      state.PauseTiming();
      gpupool_pair_stop_recording(loop);
      gpupool_pair_record(loop, kPairs);
      made = 0;
      state.ResumeTiming();
    }
    gpupool_pair_run(loop, kRecordBatch);
    made += kRecordBatch;
  }
  gpupool_pair_stop_recording(loop);
  gpupool_pair_close(loop);
}

}  // namespace

void register_record_rows() {
  constexpr std::size_t kBytes[] = {4096, std::size_t{1} << 20};
  for (const std::size_t bytes : kBytes) {
    const std::string name = "recorded_pair/" + std::to_string(bytes);
    benchmark::RegisterBenchmark(name.c_str(), measure_recorded_pairs, bytes);
  }
}

}  // namespace gpupool::bench
