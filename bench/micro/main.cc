// gpupool_bench: the allocator as it is linked by default, and beside it what it is compared with.

#include "bench/micro/pair_rows.h"
#include "bench/micro/rows.h"
#include "bench/micro/run_rows.h"

int main(int argc, char** argv) {
  using namespace gpupool::bench;
  register_pair_rows("pair", {gpupool_pair_open, gpupool_pair_run, gpupool_pair_close});
  register_pair_rows("pair_raw", {gpupool_pair_open, gpupool_pair_run_raw, gpupool_pair_close});
  register_heap_rows();
  register_thread_rows();
  register_hand_over_rows();
  register_growth_rows();
  register_record_rows();
  register_replay_rows();
  return run_rows(argc, argv);
}
