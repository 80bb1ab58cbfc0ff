#include "tools/replay/replay.h"

#include <utility>

#include "gpupool/pool.h"
#include "tools/replay/plan.h"
#include "tools/replay/session.h"

namespace gpupool::tools {

Result<std::vector<PassResult>, ReplayFailure> Replayer::play(const Trace& trace,
                                                              const PassHook& hook) {
  const auto plan = make_plan(trace, {options_.honour_completions, options_.scale});
  if (!plan.ok()) return ReplayFailure{ExitCode::usage, plan.error().message};
  auto opened = Session::open(trace, plan.value(), options_);
  if (!opened.ok()) return ReplayFailure{ExitCode::usage, opened.error().message};
  Session& session = *opened.value();
  setting_ = {session.pool().device().name, session.pool().stats().limit_bytes};

  std::vector<PassResult> results;
  for (std::uint64_t pass = 1; pass <= options_.passes; ++pass) {
    hook(trace, pass);
    PassResult result = session.play(trace.operation_count);
    result.trace_path = trace.path;
    result.trace_name = trace.name;
    result.pass = pass;
    result.trace_seconds = trace.seconds;
    results.push_back(std::move(result));
    session.end_pass();
  }
  if (const std::string fault = session.find_fault(); !fault.empty()) {
    return ReplayFailure{ExitCode::internal_error, trace.path + ": " + fault};
  }
  return results;
}

}  // namespace gpupool::tools
