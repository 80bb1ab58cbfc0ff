// The timed loop that every replay runs, whatever serves the requests: nothing in it but the
// requests themselves, so that numbers of `gpupool replay` and `gpupool compare` are alike.
//
// A System has
//   Result<void*> allocate(std::uint64_t bytes, std::uint16_t stream);
//   bool deallocate(void* pointer, std::uint16_t stream);   false: refused
//   void pass_time(std::uint64_t ns);                       recorded time passes, then maintenance
//
// An allocation that fails is data: the block is just not there, and its free is one of nullptr.
//
// Thread safety: one thread. Cost: the steps, and an address a slot; two to three nanoseconds an
// operation of its own.
#ifndef GPUPOOL_TOOLS_REPLAY_LOOP_H_
#define GPUPOOL_TOOLS_REPLAY_LOOP_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpupool/status.h"
#include "tools/replay/plan.h"

namespace gpupool::tools {

struct LoopResult {
  double ns = 0;  // wall time
  std::uint64_t failed = 0;
  std::uint64_t failed_bytes = 0;   // what those asked for
  std::uint64_t refused_frees = 0;  // 0, unless something of ours is wrong
};

class Loop {
 public:
  /// Requires: `steps`, made from a trace with that many slots, outlive the loop.
  Loop(const std::vector<Step>& steps, std::uint32_t slot_count)
      : steps_(steps), pointers_(slot_count, nullptr), last_streams_(slot_count, 0) {
    for (const Step& step : steps) {
      if (step.kind == StepKind::allocate) last_streams_[step.slot] = step.stream;
    }
  }

  /// Plays the steps once.
  template <class System>
  LoopResult play(System& system) {
    return play(system, 0, steps_.size());
  }
  /// Plays steps `first` up to `end`.
  template <class System>
  LoopResult play(System& system, std::size_t first, std::size_t end);
  /// Frees what is left. Returns how many frees were refused.
  template <class System>
  std::uint64_t free_rest(System& system);

 private:
  const std::vector<Step>& steps_;
  std::vector<void*> pointers_;              // by slot; nullptr where nothing is live
  std::vector<std::uint16_t> last_streams_;  // by slot: the stream of what a pass leaves there
};

template <class System>
LoopResult Loop::play(System& system, std::size_t first, std::size_t end) {
  const Step* const last = steps_.data() + end;
  void** const pointers = pointers_.data();
  std::uint64_t failed = 0;
  std::uint64_t failed_bytes = 0;
  std::uint64_t refused = 0;
  const auto start = std::chrono::steady_clock::now();
  for (const Step* at = steps_.data() + first; at != last; ++at) {
    const Step& step = *at;
    switch (step.kind) {
      case StepKind::allocate: {
        const Result<void*> block = system.allocate(step.amount, step.stream);
        pointers[step.slot] = block.value();
        if (!block.ok()) {
          ++failed;
          failed_bytes += step.amount;
        }
        break;
      }
      case StepKind::free:
        if (!system.deallocate(pointers[step.slot], step.stream)) ++refused;
        pointers[step.slot] = nullptr;
        break;
      case StepKind::maintain: system.pass_time(step.amount); break;
    }
  }
  const auto stop = std::chrono::steady_clock::now();
  LoopResult result;
  result.ns = std::chrono::duration<double, std::nano>(stop - start).count();
  result.failed = failed;
  result.failed_bytes = failed_bytes;
  result.refused_frees = refused;
  return result;
}

template <class System>
std::uint64_t Loop::free_rest(System& system) {
  std::uint64_t refused = 0;
  for (std::size_t slot = 0; slot < pointers_.size(); ++slot) {
    if (!system.deallocate(pointers_[slot], last_streams_[slot])) ++refused;
    pointers_[slot] = nullptr;
  }
  return refused;
}

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_REPLAY_LOOP_H_
