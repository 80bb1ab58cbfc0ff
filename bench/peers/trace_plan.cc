#include "bench/peers/trace_plan.h"

#include <algorithm>

namespace gpupool::bench {

using tools::Step;
using tools::StepKind;

Result<TracePlan, Status> make_trace_plan(const tools::Trace& trace) {
  const auto made = tools::make_plan(trace, {});
  if (!made.ok()) return made.error();
  TracePlan plan;
  plan.name = trace.name;
  plan.streams = trace.streams;
  plan.slot_count = trace.slot_count;
  std::vector<std::uint64_t> bytes(trace.slot_count, 0);
  for (Step step : made.value()) {
    if (step.kind == StepKind::allocate) bytes[step.slot] = step.amount;
    if (step.kind == StepKind::free) step.amount = bytes[step.slot];
    if (step.kind != StepKind::maintain) {
      if (step.amount == 0) continue;
      plan.steps.push_back(step);
    }
    plan.maintained_steps.push_back(step);
  }
  return plan;
}

std::uint64_t peak_requested_bytes(const std::vector<Step>& steps, std::uint64_t step_count) {
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  for (std::uint64_t i = 0; i < step_count; ++i) {
    if (steps[i].kind == StepKind::allocate) live += steps[i].amount;
    if (steps[i].kind == StepKind::free) live -= steps[i].amount;
    peak = std::max(peak, live);
  }
  return peak;
}

std::uint64_t count_operations(const std::vector<Step>& steps, std::uint64_t step_count) {
  std::uint64_t count = 0;
  for (std::uint64_t i = 0; i < step_count; ++i) count += steps[i].kind != StepKind::maintain;
  return count;
}

}  // namespace gpupool::bench
