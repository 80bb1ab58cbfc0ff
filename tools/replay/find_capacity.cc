#include "tools/replay/find_capacity.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace gpupool::tools {
namespace {

constexpr std::uint64_t round_up_to_step(std::uint64_t bytes) {
  return (bytes + kCapacityStep - 1) / kCapacityStep * kCapacityStep;
}

/// The trace played at one capacity after the other.
class CapacitySearch {
 public:
  CapacitySearch(const Trace& trace, const ReplayOptions& options, const Replayer::PassHook& hook)
      : trace_(trace), options_(options), hook_(hook) {}

  /// Plays all passes with at most `capacity`, or with all there is.
  Result<FoundCapacity, ReplayFailure> run(std::optional<std::uint64_t> capacity) const {
    ReplayOptions options = options_;
    if (capacity.has_value()) options.capacity_bytes = capacity;
    Replayer replayer(options);
    auto passes = replayer.play(trace_, hook_);
    if (!passes.ok()) return passes.error();
    FoundCapacity found{std::move(passes).value(), replayer.setting()};
    found.setting.is_search = true;
    return found;
  }

 private:
  const Trace& trace_;
  const ReplayOptions& options_;
  const Replayer::PassHook& hook_;
};

bool is_complete(const FoundCapacity& run) {
  return std::all_of(run.passes.begin(), run.passes.end(),
                     [](const PassResult& pass) { return pass.failed == 0; });
}

std::uint64_t highest(const FoundCapacity& run, std::uint64_t PassResult::*bytes) {
  std::uint64_t most = 0;
  for (const PassResult& pass : run.passes) most = std::max(most, pass.*bytes);
  return most;
}

}  // namespace

Result<FoundCapacity, ReplayFailure> find_capacity(const Trace& trace, const ReplayOptions& options,
                                                   const Replayer::PassHook& hook) {
  const CapacitySearch search(trace, options, hook);
  auto run = search.run(options.capacity_bytes);
  if (!run.ok() || !is_complete(run.value())) return run;

  FoundCapacity best = std::move(run).value();
  const std::uint64_t all = best.setting.limit_bytes;
  // Neither a pool with less than a page, nor one whose reserve is larger than its limit, starts.
  const std::uint64_t least = std::max(highest(best, &PassResult::peak_requested_bytes),
                                       std::max(options.reserve_bytes, kCapacityStep));
  std::uint64_t too_small = round_up_to_step(least) - kCapacityStep;
  // Seen to work, as far as it is less than all there is.
  std::uint64_t enough = all;
  std::uint64_t next = std::max(round_up_to_step(highest(best, &PassResult::peak_held_bytes)),
                                too_small + kCapacityStep);
  while (next < enough && next > too_small) {
    auto tried = search.run(next);
    if (!tried.ok()) return tried;
    if (is_complete(tried.value())) {
      best = std::move(tried).value();
      enough = next;
    } else {
      too_small = next;
    }
    // Whole steps above what is too small; the one that is enough need not be a multiple of it.
    next = too_small + (enough - too_small) / 2 / kCapacityStep * kCapacityStep;
  }
  for (PassResult& pass : best.passes) pass.smallest_capacity_bytes = enough;
  return best;
}

}  // namespace gpupool::tools
