// The loop behind every row of the gpupool's own pairs: allocate a block and free it, again and
// again, in a pool of its own. Compiled once for each build of the allocator that is measured, so
// that the builds differ and the loop does not.
//
// The functions are plain ones because one of the builds is reached through dlopen and dlsym.
//
// Thread safety: one thread. Cost of the loop itself: under 1 ns a pair.
#ifndef GPUPOOL_BENCH_SUPPORT_PAIR_LOOP_H_
#define GPUPOOL_BENCH_SUPPORT_PAIR_LOOP_H_

#include <cstddef>
#include <cstdint>

extern "C" {

struct GpupoolPairLoop;  // a pool, a stream, a size

/// Starts a pool in which blocks of `bytes` were used before, so that every pair is a hit.
GpupoolPairLoop* gpupool_pair_open(std::size_t bytes);
void gpupool_pair_run(GpupoolPairLoop* loop, std::uint64_t pairs);
/// The same with the driver's own stream handle instead of a StreamRef.
void gpupool_pair_run_raw(GpupoolPairLoop* loop, std::uint64_t pairs);
/// From now on the pool records to /dev/null, with room for `pairs` whatever the device does.
void gpupool_pair_record(GpupoolPairLoop* loop, std::uint64_t pairs);
void gpupool_pair_stop_recording(GpupoolPairLoop* loop);
void gpupool_pair_close(GpupoolPairLoop* loop);

}  // extern "C"

#endif  // GPUPOOL_BENCH_SUPPORT_PAIR_LOOP_H_
