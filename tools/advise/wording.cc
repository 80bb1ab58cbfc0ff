#include "tools/advise/wording.h"

#include <algorithm>

#include "gpupool/size_text.h"
#include "tools/terminal/units.h"

namespace gpupool::tools {

std::string plain_name(const Trace& trace) {
  std::string name = trace.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

std::string share_text(double share) {
  constexpr double kLeastShown = 0.0001;
  if (share == 0) return "0%";
  return share < kLeastShown ? "<0.01%" : fixed(share * 100, 2) + "%";
}

std::string ratio_text(double ratio, std::uint64_t failed) {
  return failed != 0 ? "-" : fixed(ratio, 3);
}

std::string least_need_text(const std::vector<Need>& needs) {
  const auto least = find_least(needs);
  if (!least) return "not even " + format_size(kMaxCapacityBytes) + " would do";
  return "`capacity: " + format_size(*least->capacity_bytes) + "` would do, with recycling " +
         policy_text(least->setting);
}

std::string device_text(const AdviseOptions& options) {
  const ReplayOptions& replay = options.replay;
  std::string text = "a simulated device of " + human_bytes(replay.device_capacity_bytes);
  if (replay.capacity_bytes) text += ", limit " + format_size(*replay.capacity_bytes);
  text += ", " + std::to_string(replay.passes) + " passes each";
  if (replay.scale != 1) text += ", sizes times " + std::to_string(replay.scale);
  if (replay.runtime.recycling_wait != RuntimeOptions().recycling_wait) {
    text += ", under eager waiting up to " + percent_text(replay.runtime.recycling_wait * 100) +
            " for pages to move";
  }
  if (replay.honour_completions) text += ", completions honoured";
  return text;
}

std::string capacity_text(const Trial& trial) {
  std::uint64_t most = 0;
  double wait_share = 0;
  for (const TraceCost& cost : trial.traces) {
    if (!cost.smallest_capacity_bytes) return "No capacity serves every request";
    most = std::max(most, *cost.smallest_capacity_bytes);
    wait_share = std::max(wait_share, cost.smallest_capacity_wait_seconds / cost.seconds);
  }
  return "With `capacity: " + format_size(most) + "` it would still serve every request, at " +
         share_text(wait_share) + " of waiting";
}

}  // namespace gpupool::tools
