#include "tools/advise/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

#include "gpupool/size_text.h"
#include "tools/advise/advisor.h"
#include "tools/advise/report.h"
#include "tools/advise/wording.h"
#include "tools/advise/yaml.h"
#include "tools/bounds.h"
#include "tools/choice_option.h"
#include "tools/replay/load_traces.h"
#include "tools/terminal/progress_bar.h"

namespace gpupool::tools {
namespace {

constexpr std::uint64_t kMaxOperationsPerSecond = 1'000'000'000;

struct AdviseCommand {
  AdviseOptions options;
  double recycling_wait_percent = 5;
  bool is_recycling_wait_given = false;
  bool is_json = false;
  bool is_yaml = false;
  std::vector<std::string> paths;
};

Result<Advice, ReplayFailure> advise_with_progress(const std::vector<Trace>& traces,
                                                   const AdviseOptions& options) {
  // Each policy and each cache once; a further turn and a search of capacities come on top, and
  // the bar then stays full.
  const Setting defaults;
  const std::size_t settings = with_each_policy(defaults).size() + with_each_cache(defaults).size();
  std::uint64_t total = 0;
  for (const Trace& trace : traces) {
    total += trace.operation_count * options.replay.passes * settings;
  }
  ProgressBar bar(stderr, total);
  std::mutex mutex;
  std::uint64_t done = 0;
  const auto show = [&](const Setting& setting, const Trace& trace) {
    const std::lock_guard<std::mutex> lock(mutex);
    bar.update(
        policy_text(setting) + ", " + format_size(setting.cache_large_bytes) + ": " + trace.name,
        std::min(done, total));
    done += trace.operation_count;
  };
  ReplayTester tester(options, show);
  return advise(traces, options, tester);
}

ExitCode run_advise(const AdviseCommand& command) {
  AdviseOptions options = command.options;
  options.replay.runtime.recycling_wait = command.recycling_wait_percent / 100;
  if (command.is_json && command.is_yaml) {
    print_error("--json and --yaml-only: one of them");
    return ExitCode::usage;
  }
  const Result<std::vector<Trace>, Status> traces = load_traces(command.paths);
  if (!traces.ok()) {
    print_error(traces.error().message);
    return ExitCode::usage;
  }
  if (command.is_recycling_wait_given) note_untimed(traces.value());
  const auto advised = advise_with_progress(traces.value(), options);
  if (!advised.ok()) {
    print_error(advised.error().message);
    return advised.error().code;
  }
  const Advice& advice = advised.value();
  if (command.is_json) return print_result(to_json(advice, traces.value(), options));
  if (!command.is_yaml) {
    return print_result(to_text(advice, traces.value(), options, inspect_terminal(stdout)));
  }
  // A file that would be taken for a configuration, or nothing.
  if (!advice.chosen) {
    print_error("no setting serves every request on " + device_text(options) + "; " +
                least_need_text(advice.needs));
    return ExitCode::usage;
  }
  return print_result(to_yaml(advice, traces.value(), options));
}

void add_bounded_size(CLI::App& app, const std::string& name,
                      const std::function<void(std::uint64_t)>& take, const std::string& help) {
  const auto check = [name, take](std::uint64_t bytes) {
    if (bytes < kMinCapacityBytes || bytes > kMaxCapacityBytes) {
      throw CLI::ValidationError(name, format_size(bytes) + " is not from " +
                                           format_size(kMinCapacityBytes) + " to " +
                                           format_size(kMaxCapacityBytes));
    }
    take(bytes);
  };
  add_size(app, name, check, help);
}

}  // namespace

void add_advise_command(CLI::App& app, Action& action) {
  CLI::App& advise = *app.add_subcommand(
      "advise", "Find the settings that need the least memory for recorded traces");
  // Shared with the callbacks, which run while the line is parsed and after.
  const auto command = std::make_shared<AdviseCommand>();
  AdviseOptions& options = command->options;
  add_percent(advise, "--budget", options.budget_percent,
              "Percent of the recorded time that allocating threads may wait for the driver, warm "
              "(default 0.3)");
  add_number(advise, "--rate", options.operations_per_second, 1, kMaxOperationsPerSecond,
             "Operations a second of traces without recorded time (default 10000)");
  const CLI::Option* const recycling_wait = add_percent(
      advise, "--recycling-wait", command->recycling_wait_percent,
      "Most of the recorded time that requests may wait for pages to move under eager, in percent, "
      "which goes into the YAML, too (default 5)");
  advise.add_flag("--allow-same-stream", options.allows_same_stream,
                  "Also advise alias_reuse same_stream: only for programs without kernels that are "
                  "resident before the memory is written, dependent launches among them");
  add_number(advise, "--passes", options.replay.passes, 2, kMaxTrialPasses,
             "Passes of each setting, the first of them cold (default 2)");
  advise.add_flag("--completions", options.replay.honour_completions,
                  "Keep a block until its last use on another stream is complete");
  add_number(advise, "--scale", options.replay.scale, 1, kMaxScale,
             "Multiply every size by this (default 1)");
  add_choice(advise, "--backend", kBackings, options.replay.backing,
             "How the pool gets its memory (default vmm)");
  add_bounded_size(
      advise, "--device-capacity",
      [command](std::uint64_t bytes) { command->options.replay.device_capacity_bytes = bytes; },
      "Memory of the simulated device (default 140GiB)");
  add_bounded_size(
      advise, "--capacity",
      [command](std::uint64_t bytes) { command->options.replay.capacity_bytes = bytes; },
      "Most the pool may hold, which goes into the YAML, too (default: the whole device)");
  advise.add_flag("--capacity-search", options.searches_capacity,
                  "Also search the smallest capacity that each setting can do with; slow");
  advise.add_flag("--json", command->is_json, "Print one JSON object instead of text");
  advise.add_flag("--yaml-only", command->is_yaml, "Print only the configuration file");
  advise.add_option("TRACE", command->paths, "gpupool traces or MiniMalloc CSV, plain or gzip'd")
      ->required();
  advise.callback([command, recycling_wait, &action] {
    command->is_recycling_wait_given = recycling_wait->count() != 0;
    action = [command] { return run_advise(*command); };
  });
}

}  // namespace gpupool::tools
