#include "tools/advise/yaml.h"

#include <algorithm>
#include <utility>

#include "gpupool/size_text.h"
#include "tools/advise/wording.h"
#include "tools/terminal/units.h"

namespace gpupool::tools {
namespace {

constexpr std::size_t kWidth = 98;  // of a line of comment

/// `text` as lines of comment, broken between words.
std::string comment(const std::string& text, const std::string& indent = "") {
  const std::string start = indent + "#";
  std::string result;
  std::string line = start;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (line.size() + 1 + word.size() > kWidth && line != start) {
      result += line + "\n";
      line = start;
    }
    line += " " + word;
    at = end + 1;
  }
  return result + line + "\n";
}

std::string names(const std::vector<Trace>& traces) {
  std::string text;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    if (i != 0) text += i + 1 == traces.size() ? " and " : ", ";
    text += plain_name(traces[i]);
  }
  return text;
}

std::string head(const Advice& advice, const std::vector<Trace>& traces,
                 const AdviseOptions& options) {
  const Trial& chosen = advice.trials[*advice.chosen];
  const std::string budget = percent_text(options.budget_percent);
  std::string text =
      comment("gpupool advise, for " + names(traces) + ", on " + device_text(options) + ".");
  const std::string count = std::to_string(advice.trials.size());
  if (is_within_budget(chosen, options)) {
    text += comment("Of " + count + " settings that were played, the one that holds the least " +
                    "memory while allocating threads wait for the driver for at most " + budget +
                    " of the recorded time, once warm.");
  } else {
    text += comment("Of " + count + " settings that were played, none keeps to the budget of " +
                    budget + ": this is the one under which allocating threads wait the least " +
                    "for the driver.");
  }
  text += comment("It holds " + fixed(chosen.worst_ratio(), 3) + " times what is requested" +
                  (traces.size() > 1 ? ", at the worst" : "") + ": " +
                  human_bytes(chosen.peak_held_bytes()) +
                  " at the most. Waiting: " + share_text(chosen.warm_wait_share()) + " warm, " +
                  share_text(chosen.cold_wait_share()) + " in a first, cold pass.");
  if (options.searches_capacity) text += comment(capacity_text(chosen) + ".");
  return text;
}

std::string cost_line(const std::string& label, std::size_t width, const Trial& trial,
                      const AdviseOptions& options, bool is_chosen) {
  std::string text = "  #   " + label + std::string(width - label.size(), ' ') + "  " +
                     ratio_text(trial.worst_ratio(), trial.failed()) + "  waits " +
                     share_text(trial.warm_wait_share());
  if (trial.failed() != 0) text += "  " + grouped(trial.failed()) + " requests fail";
  if (!is_within_budget(trial, options)) text += "  over the budget";
  return text + (is_chosen ? "  <- this" : "") + "\n";
}

/// What each of `settings` costs, as far as it was tried, in their order.
template <class Label>
std::string cost_lines(const Advice& advice, const std::vector<Setting>& settings,
                       const AdviseOptions& options, const Label& label) {
  std::vector<std::pair<std::string, std::size_t>> found;
  std::size_t width = 0;
  for (const Setting& setting : settings) {
    for (std::size_t i = 0; i < advice.trials.size(); ++i) {
      if (!(advice.trials[i].setting == setting) || !is_allowed(setting, options)) continue;
      found.emplace_back(label(setting), i);
      width = std::max(width, found.back().first.size());
    }
  }
  std::string text;
  for (const auto& [name, index] : found) {
    text += cost_line(name, width, advice.trials[index], options, index == *advice.chosen);
  }
  return text;
}

std::string moving_keys(const Setting& setting, const RuntimeOptions& runtime) {
  std::string text = std::string("  recycling: ") + to_string(setting.recycling) + "\n";
  if (setting.recycling == Recycling::eager) {
    text += "  slack: " + percent_text(setting.slack_percent) + "\n";
    if (runtime.recycling_wait != RuntimeOptions().recycling_wait) {
      text += "  recycling_wait: " + percent_text(runtime.recycling_wait * 100) + "\n";
    }
  }
  if (setting.alias_reuse != RuntimeOptions().alias_reuse) {
    text += comment(
                "Only for programs without kernels that are resident before the memory is written, "
                "dependent launches among them.",
                "  ") +
            "  alias_reuse: " + to_string(setting.alias_reuse) + "\n";
  }
  return text;
}

}  // namespace

std::string to_yaml(const Advice& advice, const std::vector<Trace>& traces,
                    const AdviseOptions& options) {
  const Setting& setting = advice.trials[*advice.chosen].setting;
  std::string text = head(advice, traces, options);
  text += comment(
      "The figures below: memory held by memory requested, and the waiting, warm; all "
      "else as it is here" +
      std::string(traces.size() > 1 ? "; each of the worst trace." : "."));
  text += "version: 1\n\npool:\n";
  if (const auto& capacity = options.replay.capacity_bytes) {
    text += "  capacity: " + format_size(*capacity) + "\n\n";
  }
  text += std::string("  backing: ") + to_string(options.replay.backing) + "\n\n";
  text += comment("What is done with empty pages:", "  ") +
          cost_lines(advice, with_each_policy(setting), options, policy_text) +
          moving_keys(setting, options.replay.runtime) + "\n";
  text += comment("Freed blocks above 128 KiB that are kept for the next request of their size:",
                  "  ") +
          cost_lines(advice, with_each_cache(setting), options,
                     [](const Setting& tried) { return format_size(tried.cache_large_bytes); }) +
          "  cache_large: " + format_size(setting.cache_large_bytes) + "\n";
  return text;
}

}  // namespace gpupool::tools
