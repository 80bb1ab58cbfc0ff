// The plain pairs against another build of the allocator; GPUPOOL_BENCH_PREFIX names the rows.
#include "bench/micro/pair_rows.h"
#include "bench/micro/run_rows.h"

int main(int argc, char** argv) {
  using namespace gpupool::bench;
  register_pair_rows(GPUPOOL_BENCH_PREFIX,
                     {gpupool_pair_open, gpupool_pair_run, gpupool_pair_close});
  return run_rows(argc, argv);
}
