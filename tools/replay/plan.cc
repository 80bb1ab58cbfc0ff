#include "tools/replay/plan.h"

#include <limits>
#include <string>

namespace gpupool::tools {
namespace {

constexpr std::uint64_t kNsPerUs = 1000;

/// Appends the maintenance steps that fall into `elapsed_ns` plus what was left before; returns
/// what is left after them.
std::uint64_t append_maintenance(std::vector<Step>& steps, std::uint64_t elapsed_ns) {
  for (std::uint64_t n = 1; elapsed_ns >= kMaintainPeriodNs; ++n) {
    Step step;
    step.kind = StepKind::maintain;
    const std::uint64_t rest = elapsed_ns % kMaintainPeriodNs;
    step.amount = n == kMaxStepsPerPause ? elapsed_ns - rest : kMaintainPeriodNs;
    elapsed_ns -= step.amount;
    steps.push_back(step);
  }
  return elapsed_ns;
}

/// Whether `operation` is where its block goes back to the pool.
bool ends_block(const Operation& operation, bool honour_completions) {
  if (operation.kind == OperationKind::complete) return honour_completions;
  return operation.kind == OperationKind::free &&
         !(honour_completions && operation.completes_later);
}

}  // namespace

Result<std::vector<Step>, Status> make_plan(const Trace& trace, const PlanOptions& options) {
  std::vector<Step> steps;
  steps.reserve(trace.operations.size());
  std::uint64_t elapsed_ns = 0;
  for (const Operation& operation : trace.operations) {
    elapsed_ns = append_maintenance(steps, elapsed_ns + operation.dt_us * kNsPerUs);
    Step step;
    step.slot = operation.slot;
    step.stream = operation.stream;
    if (operation.kind == OperationKind::allocate) {
      if (operation.bytes > std::numeric_limits<std::uint64_t>::max() / options.scale) {
        return Status{Error::invalid_argument,
                      trace.path + ": a size of " + std::to_string(operation.bytes) +
                          " bytes times --scale " + std::to_string(options.scale) +
                          " does not fit in 64 bits"};
      }
      step.kind = StepKind::allocate;
      step.amount = operation.bytes * options.scale;
    } else if (ends_block(operation, options.honour_completions)) {
      step.kind = StepKind::free;
    } else {
      continue;
    }
    steps.push_back(step);
  }
  return steps;
}

}  // namespace gpupool::tools
