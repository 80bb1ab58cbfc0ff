// A trace made ready for the timed loop: allocations, frees, and a maintenance step for each
// millisecond of recorded time, in one list, nothing left to decide.
//
// Frees: where completions are not honoured, a block ends at its `f`; where they are, at its `c`
// if it has one. Time: steps come from the recorded DT alone. A pause of more than
// kMaxStepsPerPause milliseconds gets that many steps, the last of which takes the rest of it:
// by then there is nothing left to maintain, and a trace may pause for years.
//
// Thread safety: plain values. Cost: 16 bytes a step.
#ifndef GPUPOOL_TOOLS_REPLAY_PLAN_H_
#define GPUPOOL_TOOLS_REPLAY_PLAN_H_

#include <cstdint>
#include <vector>

#include "gpupool/status.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

enum class StepKind : std::uint8_t { allocate, free, maintain };

struct Step {
  std::uint64_t amount = 0;  // allocate: bytes; maintain: nanoseconds that pass before it
  std::uint32_t slot = 0;
  std::uint16_t stream = 0;
  StepKind kind = StepKind::allocate;
};

inline constexpr std::uint64_t kMaintainPeriodNs = 1'000'000;
inline constexpr std::uint64_t kMaxStepsPerPause = 10'000;

struct PlanOptions {
  bool honour_completions = false;
  std::uint64_t scale = 1;  // every size is multiplied by it
};

/// Error: a scaled size does not fit in 64 bits; the message names the trace.
Result<std::vector<Step>, Status> make_plan(const Trace& trace, const PlanOptions& options);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_REPLAY_PLAN_H_
