// What every benchmark program does once its rows are registered.
#ifndef GPUPOOL_BENCH_MICRO_RUN_ROWS_H_
#define GPUPOOL_BENCH_MICRO_RUN_ROWS_H_

namespace gpupool::bench {

/// Runs what the command line asks for, with a second thread in the process. Returns the exit code.
int run_rows(int argc, char** argv);

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_MICRO_RUN_ROWS_H_
