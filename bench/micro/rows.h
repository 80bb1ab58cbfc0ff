// The groups of rows of gpupool_bench besides the plain pairs. bench/README.md says what each
// measures.
//
// Thread safety: called once each, before the benchmarks run.
#ifndef GPUPOOL_BENCH_MICRO_ROWS_H_
#define GPUPOOL_BENCH_MICRO_ROWS_H_

namespace gpupool::bench {

/// mimalloc_pair/<bytes>, glibc_pair/<bytes>
void register_heap_rows();
/// pair_threads/<n>
void register_thread_rows();
/// producer_consumer/2/<bytes>, producer_consumer_own_stream/2/<bytes>
void register_hand_over_rows();
/// live_blocks/<n>, live_blocks_replace/<n>, distinct_sizes/<n>, scrape/<n>
void register_growth_rows();
/// recorded_pair/<bytes>
void register_record_rows();
/// replay/<trace>
void register_replay_rows();

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_MICRO_ROWS_H_
