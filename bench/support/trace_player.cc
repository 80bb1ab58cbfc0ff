#include "bench/support/trace_player.h"

#include <utility>

#include "tools/trace/trace.h"

namespace gpupool::bench {
namespace {

tools::Trace load(const std::string& path) {
  auto trace = tools::load_trace(path);
  if (!trace.ok()) give_up(trace.error().message);
  return std::move(trace).value();
}

}  // namespace

TracePlayer::TracePlayer(const std::string& path, Recycling recycling) : pool_(clock_, recycling) {
  const tools::Trace trace = load(path);
  auto plan = tools::make_plan(trace, {});
  if (!plan.ok()) give_up(plan.error().message);
  steps_ = std::move(plan).value();
  operation_count_ = trace.operation_count;
  for (const std::uint64_t number : trace.streams) streams_.push_back(pool_.open_stream(number));
  blocks_.assign(trace.slot_count, nullptr);
  last_streams_.assign(trace.slot_count, 0);
  for (const tools::Step& step : steps_) {
    if (step.kind == tools::StepKind::allocate) last_streams_[step.slot] = step.stream;
  }
}

void TracePlayer::play() {
  void** const blocks = blocks_.data();
  const StreamRef* const streams = streams_.data();
  for (const tools::Step& step : steps_) {
    switch (step.kind) {
      case tools::StepKind::allocate:
        blocks[step.slot] = pool_.allocate(step.amount, streams[step.stream]);
        break;
      case tools::StepKind::free:
        pool_.deallocate(blocks[step.slot], streams[step.stream]);
        blocks[step.slot] = nullptr;
        break;
      case tools::StepKind::maintain:
        clock_.advance_ns(step.amount);
        pool_->maintain();
        break;
    }
  }
}

void TracePlayer::end_pass() {
  for (std::size_t slot = 0; slot < blocks_.size(); ++slot) {
    if (blocks_[slot] == nullptr) continue;
    pool_.deallocate(blocks_[slot], streams_[last_streams_[slot]]);
    blocks_[slot] = nullptr;
  }
  pool_->drain_caches();
}

}  // namespace gpupool::bench
