#include "bench/micro/run_rows.h"

#include <benchmark/benchmark.h>

#include "bench/support/sleeping_thread.h"

namespace gpupool::bench {

int run_rows(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const SleepingThread second_thread;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace gpupool::bench
