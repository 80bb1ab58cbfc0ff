#include "tools/advise/report.h"

#include <algorithm>
#include <utility>

#include "gpupool/size_text.h"
#include "tools/advise/wording.h"
#include "tools/advise/yaml.h"
#include "tools/seconds.h"
#include "tools/terminal/table.h"
#include "tools/terminal/units.h"

namespace gpupool::tools {
namespace {

constexpr std::size_t kPolicyWidth = 14;  // of "eager 0.5%" and two more; same_stream is not there

/// A capacity that was searched for takes the place of the driver's time: both do not fit.
std::vector<Column> columns(bool has_mean, bool has_capacity) {
  std::vector<Column> all = {{"recycling", true, false},           {"slack", false, false},
                             {"alias reuse", true, false},         {"cache\nlarge", false, false},
                             {"held", false, true, "peak memory"}, {"ratio", false, false}};
  if (has_mean) all.push_back({"mean", false, false});
  all.push_back({"warm", false, true, "waiting"});
  all.push_back({"cold", false, false});
  if (has_capacity) {
    all.push_back({"bytes", false, true, "least capacity"});
    all.push_back({"waiting", false, false});
  } else {
    all.push_back({"warm", false, true, "driver ms"});
    all.push_back({"cold", false, false});
  }
  all.push_back({"cache\nhits", false, true});
  all.push_back({"", true, true});
  return all;
}

/// Of the trace that needs most; nothing where one has none.
std::pair<std::string, std::string> least_capacity(const Trial& trial) {
  std::uint64_t most = 0;
  double wait_share = 0;
  for (const TraceCost& cost : trial.traces) {
    if (!cost.smallest_capacity_bytes) return {"none", "-"};
    most = std::max(most, *cost.smallest_capacity_bytes);
    wait_share = std::max(wait_share, cost.smallest_capacity_wait_seconds / cost.seconds);
  }
  return {human_bytes(most), share_text(wait_share)};
}

/// What there is to say of a setting, apart from its figures.
std::string remark(const Advice& advice, std::size_t index, const AdviseOptions& options) {
  const Trial& trial = advice.trials[index];
  std::vector<std::string> parts;
  if (advice.chosen == index) parts.emplace_back("chosen");
  if (advice.defaults == index) parts.emplace_back("default");
  if (trial.failed() != 0) {
    parts.push_back("fails " + human_bytes(trial.failed_bytes()));
  } else if (!is_within_budget(trial, options))
    parts.emplace_back("over budget");
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::vector<Cell> row(const Advice& advice, std::size_t index, const AdviseOptions& options,
                      bool has_mean) {
  const Trial& trial = advice.trials[index];
  const Setting& setting = trial.setting;
  const bool is_chosen = advice.chosen == index;
  const bool moves = setting.recycling != Recycling::off;
  const Style style = is_chosen ? Style::bold : Style::plain;
  const Style waiting = is_within_budget(trial, options) ? style : Style::red;
  std::vector<Cell> cells = {
      {std::string(is_chosen ? "* " : "  ") + to_string(setting.recycling), style},
      {setting.recycling == Recycling::eager ? percent_text(setting.slack_percent) : "-", style},
      {moves ? to_string(setting.alias_reuse) : "-", style},
      {format_size(setting.cache_large_bytes), style},
      {human_bytes(trial.peak_held_bytes()), style},
      {ratio_text(trial.worst_ratio(), trial.failed()), style}};
  if (has_mean) cells.push_back({ratio_text(trial.mean_ratio(), trial.failed()), style});
  cells.push_back({share_text(trial.warm_wait_share()), waiting});
  cells.push_back({share_text(trial.cold_wait_share()), style});
  if (options.searches_capacity) {
    auto [bytes, share] = least_capacity(trial);
    cells.push_back({std::move(bytes), style});
    cells.push_back({std::move(share), style});
  } else {
    cells.push_back({fixed(trial.warm().driver_seconds * kMsPerSecond, 1), style});
    cells.push_back({fixed(trial.cold().driver_seconds * kMsPerSecond, 1), style});
  }
  cells.push_back({fixed(trial.cache_hit_share() * 100, 0) + "%", style});
  cells.push_back(
      {remark(advice, index, options), trial.failed() != 0 ? Style::red : Style::plain});
  return cells;
}

std::string settings_table(const Advice& advice, const AdviseOptions& options, bool has_mean,
                           const Terminal& terminal) {
  Table table(columns(has_mean, options.searches_capacity));
  for (std::size_t i = 0; i < advice.trials.size(); ++i) {
    if (is_allowed(advice.trials[i].setting, options)) {
      table.add_row(row(advice, i, options, has_mean));
    }
  }
  return table.render(terminal);
}

/// Signed: a setting may hold less on most traces and more on one.
std::string saving_text(std::uint64_t before, std::uint64_t after) {
  return after <= before ? human_bytes(before - after) : "-" + human_bytes(after - before);
}

/// What would be chosen for this trace without the others.
std::string alone_text(const Advice& advice, std::size_t trace, const AdviseOptions& options) {
  const auto alone = choose(advice.trials, options, trace);
  if (!alone) return "-";
  if (alone == advice.chosen) return "the same";
  const Trial& trial = advice.trials[*alone];
  return policy_text(trial.setting) + ", " + format_size(trial.setting.cache_large_bytes) + ": " +
         fixed(trial.traces[trace].held_ratio(), 3);
}

std::string traces_table(const Advice& advice, const std::vector<Trace>& traces,
                         const AdviseOptions& options, const Terminal& terminal) {
  Table table({{"trace", true},
               {"requested", false, true, "peak memory"},
               {"default", false},
               {"ratio", false},
               {"chosen", false},
               {"ratio", false},
               {"saved", false},
               {"warm", false, true, "waiting"},
               {"cold", false},
               {"for it alone", true, true}});
  const Trial& chosen = advice.trials[*advice.chosen];
  const Trial& defaults = advice.trials[advice.defaults];
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const TraceCost& before = defaults.traces[i];
    const TraceCost& after = chosen.traces[i];
    table.add_row(
        {{plain_name(traces[i])},
         {human_bytes(after.peak_requested_bytes)},
         {human_bytes(before.peak_held_bytes)},
         {ratio_text(before.held_ratio(), before.failed)},
         {human_bytes(after.peak_held_bytes), Style::bold},
         {fixed(after.held_ratio(), 3)},
         {before.failed != 0 ? "-" : saving_text(before.peak_held_bytes, after.peak_held_bytes)},
         {share_text(after.wait_share(after.warm))},
         {share_text(after.wait_share(after.cold))},
         {alone_text(advice, i, options)}});
  }
  return table.render(terminal);
}

/// Where the ratio falls most.
std::size_t trace_saving_most(const Trial& before, const Trial& after) {
  std::size_t most = 0;
  for (std::size_t i = 1; i < before.traces.size(); ++i) {
    const auto fall = [&](std::size_t trace) {
      return before.traces[trace].held_ratio() - after.traces[trace].held_ratio();
    };
    if (fall(i) > fall(most)) most = i;
  }
  return most;
}

/// One line: what the chosen setting saves against the defaults, on the trace where that is most.
std::string saving_line(const Advice& advice, const std::vector<Trace>& traces,
                        const AdviseOptions& options) {
  const Trial& chosen = advice.trials[*advice.chosen];
  const Trial& defaults = advice.trials[advice.defaults];
  const std::string waiting = "waiting " + share_text(chosen.warm_wait_share()) + " of the time" +
                              (is_within_budget(chosen, options) ? "." : ", over the budget.");
  if (*advice.chosen == advice.defaults) return "Nothing to change, the defaults do; " + waiting;
  if (defaults.failed() != 0) {
    return "The defaults fail " + grouped(defaults.failed()) + " requests, this none; " + waiting;
  }
  const std::size_t most = trace_saving_most(defaults, chosen);
  const std::uint64_t before = defaults.traces[most].peak_held_bytes;
  const std::uint64_t after = chosen.traces[most].peak_held_bytes;
  if (before <= after) {
    return "Saves no memory against the defaults, which wait " +
           share_text(defaults.warm_wait_share()) + "; " + waiting;
  }
  const double share = static_cast<double>(before - after) / static_cast<double>(before);
  const bool has_several = traces.size() > 1;
  return std::string("Saves ") + (has_several ? "up to " : "") + human_bytes(before - after) +
         " of " + human_bytes(before) + " against the defaults (" + fixed(share * 100, 1) + "%" +
         (has_several ? ", " + plain_name(traces[most]) : "") + "), " + waiting;
}

/// What settings that were not allowed would give, where any was tried.
std::string opt_in_lines(const Advice& advice, const AdviseOptions& options) {
  const auto count =
      std::count_if(advice.trials.begin(), advice.trials.end(),
                    [&](const Trial& trial) { return !is_allowed(trial.setting, options); });
  if (count == 0) return {};
  std::string text =
      std::to_string(count) + " settings with alias_reuse same_stream were played, too. ";
  if (!advice.with_same_stream) return text + "None of them would be better.\n";
  const Trial& bolder = advice.trials[*advice.with_same_stream];
  text += "With --allow-same-stream it would be " + policy_text(bolder.setting) +
          ",\ncache_large " + format_size(bolder.setting.cache_large_bytes) + ": ratio " +
          fixed(bolder.worst_ratio(), 3) + ", waiting " + share_text(bolder.warm_wait_share()) +
          ".\nOnly for programs without kernels that are resident before the memory is written.\n";
  return text;
}

/// What the columns mean, and what was taken for granted.
std::vector<std::string> notes(const Advice& advice, const std::vector<Trace>& traces,
                               const AdviseOptions& options) {
  std::vector<std::string> lines = {
      "held, ratio, waiting, cache hits: of the trace where each is worst; driver ms: of all in "
      "sum.",
      "waiting: of allocating threads for the driver, of the recorded time; cold: the first pass, "
      "warm: the worst later one.",
      "cache hits: requests that callers' caches serve, without a lock; default: a pool that was "
      "told nothing."};
  if (std::any_of(advice.trials.begin(), advice.trials.end(),
                  [](const Trial& trial) { return trial.failed() != 0; })) {
    lines.emplace_back(
        "fails: what was asked for and not served, all passes; rows in that order, since who "
        "refuses a few large requests");
    lines.emplace_back(
        "has room for many small ones. Without a ratio: less was held because less was served.");
  }
  const auto shown =
      std::count_if(advice.trials.begin(), advice.trials.end(),
                    [&](const Trial& trial) { return is_allowed(trial.setting, options); });
  const auto hidden = static_cast<std::ptrdiff_t>(advice.trials.size()) - shown;
  if (hidden != 0) {
    lines.push_back("Shown are " + std::to_string(shown) + " of the " +
                    std::to_string(advice.trials.size()) +
                    " settings that were played; the other " + std::to_string(hidden) +
                    " have same_stream and need --allow-same-stream.");
  }
  for (std::size_t i = 0; i < traces.size(); ++i) {
    if (traces[i].seconds.value_or(0) > 0) continue;
    lines.push_back(plain_name(traces[i]) + " has no recorded time: taken as " +
                    grouped(options.operations_per_second) + " operations a second.");
  }
  for (const std::string& text : advice.unavailable) lines.push_back("Not tried: " + text + ".");
  return lines;
}

std::string no_advice(const Advice& advice, const AdviseOptions& options) {
  std::string text = "No setting serves every request on " + device_text(options) + ".\n";
  if (!find_least(advice.needs))
    return text + "Nor does any with " + format_size(kMaxCapacityBytes) + ".\n";
  text += "The smallest capacity with which one would:\n";
  for (const Need& need : advice.needs) {
    std::string policy = policy_text(need.setting);
    text += "  " + policy + std::string(kPolicyWidth - policy.size(), ' ') +
            (need.capacity_bytes ? format_size(*need.capacity_bytes)
                                 : "more than " + format_size(kMaxCapacityBytes)) +
            "\n";
  }
  return text;
}

}  // namespace

std::string to_text(const Advice& advice, const std::vector<Trace>& traces,
                    const AdviseOptions& options, const Terminal& terminal) {
  const bool has_several = traces.size() > 1;
  std::string text = terminal.styled("On " + device_text(options) + ", " +
                                         to_string(options.replay.backing) + "; budget: waiting " +
                                         "warm of at most " + percent_text(options.budget_percent),
                                     Style::dim) +
                     "\n\n" + settings_table(advice, options, has_several, terminal) + "\n";
  for (const std::string& line : notes(advice, traces, options)) {
    text += terminal.styled(line, Style::dim) + "\n";
  }
  text += "\n";
  if (!advice.chosen) return text + terminal.styled(no_advice(advice, options), Style::red);
  if (has_several) text += traces_table(advice, traces, options, terminal) + "\n";
  text += to_yaml(advice, traces, options) + "\n";
  text += terminal.styled(saving_line(advice, traces, options), Style::bold) + "\n";
  return text + opt_in_lines(advice, options);
}

}  // namespace gpupool::tools
