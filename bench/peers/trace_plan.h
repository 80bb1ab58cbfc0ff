// A trace as every system plays it: allocations and frees in one list, the size of each free known,
// once with the maintenance steps of recorded time between them and once without.
//
// Requests of 0 bytes are left out, since systems differ in what they return for them.
// Thread safety: plain values. Cost: 32 bytes an operation.
#ifndef GPUPOOL_BENCH_PEERS_TRACE_PLAN_H_
#define GPUPOOL_BENCH_PEERS_TRACE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gpupool/status.h"
#include "tools/replay/plan.h"
#include "tools/trace/trace.h"

namespace gpupool::bench {

struct TracePlan {
  std::string name;
  std::vector<tools::Step> steps;             // no step is `maintain`
  std::vector<tools::Step> maintained_steps;  // the same with those
  std::vector<std::uint64_t> streams;
  std::uint32_t slot_count = 0;

  const std::vector<tools::Step>& steps_of(bool is_maintained) const {
    return is_maintained ? maintained_steps : steps;
  }
};

Result<TracePlan, Status> make_trace_plan(const tools::Trace& trace);

/// The most bytes requested at once in the first `step_count` steps.
std::uint64_t peak_requested_bytes(const std::vector<tools::Step>& steps, std::uint64_t step_count);

/// How many of the first `step_count` steps are allocations or frees.
std::uint64_t count_operations(const std::vector<tools::Step>& steps, std::uint64_t step_count);

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_TRACE_PLAN_H_
