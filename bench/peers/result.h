// What was measured of one system, as plain values.
//
// A time that could not be taken is not there; `failed` counts requests that were not served and
// frees that were refused, and makes the numbers beside it worthless unless it is 0.
// Thread safety: plain values.
#ifndef GPUPOOL_BENCH_PEERS_RESULT_H_
#define GPUPOOL_BENCH_PEERS_RESULT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpupool::bench {

/// Allocate and free at once, one thread, a second one asleep.
struct PairResult {
  std::uint64_t bytes = 0;
  double ns_median = 0;
  double ns_least = 0;
  std::uint64_t failed = 0;
};

/// Pairs of one size on several threads, each with a stream of its own.
struct ThreadsResult {
  std::uint64_t threads = 0;
  double million_pairs_per_second = 0;
  std::uint64_t failed = 0;
};

struct TraceResult {
  std::string trace;
  std::uint64_t operations = 0;        // that were played
  std::uint64_t trace_operations = 0;  // that the trace has
  std::uint64_t passes = 0;            // warm ones, whose times are below
  double ns_per_op_median = 0;
  double ns_per_op_least = 0;
  std::uint64_t failed = 0;
  std::uint64_t peak_requested_bytes = 0;
  std::optional<std::uint64_t> peak_held_bytes;
  std::optional<std::uint64_t> driver_allocations_cold;
  std::optional<std::uint64_t> driver_allocations_warm;  // the most of any warm pass
  std::optional<std::uint64_t> driver_calls_cold;
  std::optional<std::uint64_t> driver_calls_warm;
};

/// Allocate many, then free them all.
struct BurstRound {
  double allocate_us = 0;  // a call
  double free_us = 0;      // a call
  double total_ms = 0;
};
struct BurstResult {
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;  // of each
  BurstRound cold;          // the system held nothing before
  BurstRound warm;          // medians
  std::uint64_t warm_rounds = 0;
  std::uint64_t failed = 0;
};

struct SystemResult {
  std::string system;
  std::string error;  // why there is nothing, or nothing more, below
  std::vector<PairResult> pairs;
  std::uint64_t threads_bytes = 0;
  std::vector<ThreadsResult> threads;
  std::vector<TraceResult> traces;
  std::optional<BurstResult> burst;
};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_RESULT_H_
