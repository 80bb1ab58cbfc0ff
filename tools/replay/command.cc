#include "tools/replay/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "tools/bounds.h"
#include "tools/choice_option.h"
#include "tools/replay/find_capacity.h"
#include "tools/replay/load_traces.h"
#include "tools/replay/replay.h"
#include "tools/replay/report.h"
#include "tools/serve/bind.h"
#include "tools/terminal/progress_bar.h"

namespace gpupool::tools {
namespace {

constexpr std::uint64_t kMaxPasses = 1'000'000;

/// Options that may have been given although they change nothing.
struct Given {
  bool slack = false;
  bool recycling_wait = false;
  bool alias_reuse = false;
  bool seed = false;
  bool passes = false;
  bool bind = false;
};

struct ReplayCommand {
  ReplayOptions options;
  Given given;
  double slack_percent = 0.5;
  double recycling_wait_percent = 5;
  bool finds_capacity = false;
  bool is_json = false;
  bool is_served = false;
  std::string bind = kDefaultBind;
  std::vector<std::string> paths;
  ServeReplay serve;  // nullptr: this build cannot
};

const std::map<std::string, DeviceChoice> kDevices = {{"sim", DeviceChoice::simulated},
                                                      {"cuda", DeviceChoice::cuda},
                                                      {"auto", DeviceChoice::automatic}};
const std::map<std::string, AliasReuse> kAliasReuses = {{"wait", AliasReuse::wait},
                                                        {"same_stream", AliasReuse::same_stream}};
const std::map<std::string, Recycling> kRecyclings = {
    {"eager", Recycling::eager}, {"pressure", Recycling::pressure}, {"off", Recycling::off}};

/// A line on stderr for each option that was given and changes nothing: no error, since a script
/// that goes through settings may give all of them.
void note_void_options(const ReplayCommand& command) {
  const ReplayOptions& options = command.options;
  const std::string recycling = std::string("--recycling ") + to_string(options.runtime.recycling);
  if (command.given.slack && options.runtime.recycling != Recycling::eager) {
    print_error("--slack has no effect with " + recycling);
  }
  if (command.given.recycling_wait && options.runtime.recycling != Recycling::eager) {
    print_error("--recycling-wait has no effect with " + recycling);
  }
  if (command.given.alias_reuse && options.runtime.recycling == Recycling::off) {
    print_error("--alias-reuse has no effect with " + recycling);
  } else if (command.given.alias_reuse && options.backing == Backing::cudamalloc) {
    print_error("--alias-reuse has no effect with --backend cudamalloc");
  }
  if (command.given.seed && options.fault_probability == 0) {
    print_error("--seed has no effect without --fault-rate");
  }
  if (command.given.bind && !command.is_served) print_error("--bind has no effect without --serve");
}

/// All results, and what they were played on.
struct Played {
  std::vector<PassResult> results;
  ReplaySetting setting;
};

Result<Played, ReplayFailure> play_all(const std::vector<Trace>& traces,
                                       const ReplayOptions& options, bool finds_capacity) {
  // A search is mostly over after so many runs.
  const std::uint64_t runs = finds_capacity ? 10 : 1;
  std::uint64_t total = 0;
  for (const Trace& trace : traces) total += trace.operation_count * options.passes * runs;
  ProgressBar bar(stderr, total);
  std::uint64_t done = 0;
  const auto show = [&](const Trace& trace, std::uint64_t pass) {
    const std::string what = finds_capacity ? ", smallest capacity, pass " : ", pass ";
    bar.update(trace.name + what + std::to_string(pass) + " of " + std::to_string(options.passes),
               std::min(done, total));
    done += trace.operation_count;
  };
  Played all;
  for (const Trace& trace : traces) {
    std::vector<PassResult> results;
    if (finds_capacity) {
      auto found = find_capacity(trace, options, show);
      if (!found.ok()) return found.error();
      results = std::move(found.value().passes);
      all.setting = found.value().setting;
    } else {
      Replayer replayer(options);
      auto played = replayer.play(trace, show);
      if (!played.ok()) return played.error();
      results = std::move(played).value();
      all.setting = replayer.setting();
    }
    std::move(results.begin(), results.end(), std::back_inserter(all.results));
  }
  return all;
}

/// One of each trace is enough: mostly they are alike.
void explain_failures(const std::vector<PassResult>& results) {
  std::string explained;
  for (const PassResult& result : results) {
    if (result.last_failure.empty() || result.trace_path == explained) continue;
    explained = result.trace_path;
    print_error("the last request that failed in pass " + std::to_string(result.pass) + " of " +
                result.trace_name + ":\n" + result.last_failure);
  }
}

/// Why --serve does not go with what else was given; empty where it does.
std::string refuse_serving(const ReplayCommand& command) {
  if (command.paths.size() != 1) return "--serve shows one trace, and more were given";
  if (command.is_json) return "--serve prints no table that --json could replace";
  if (command.finds_capacity) return "--serve plays the trace once: without --find-capacity";
  if (command.given.passes && command.options.passes != 1) {
    return "--serve plays the trace once: without --passes";
  }
  if (command.options.device == DeviceChoice::cuda) {
    return "--serve plays the trace again for each look at it: with --device sim";
  }
  return "";
}

ExitCode serve(const ReplayCommand& command, ReplayOptions options, std::vector<Trace> traces) {
  options.device = DeviceChoice::simulated;
  return command.serve(std::move(traces.front()), options, command.bind);
}

ExitCode run_replay(const ReplayCommand& command) {
  ReplayOptions options = command.options;
  if (const std::string refused = command.is_served ? refuse_serving(command) : "";
      !refused.empty()) {
    print_error(refused);
    return ExitCode::usage;
  }
  if (command.finds_capacity && options.fault_probability > 0) {
    print_error("--find-capacity needs calls that do not fail: without --fault-rate");
    return ExitCode::usage;
  }
  note_void_options(command);
  options.runtime.slack = command.slack_percent / 100;
  options.runtime.recycling_wait = command.recycling_wait_percent / 100;
  Result<std::vector<Trace>, Status> traces = load_traces(command.paths);
  if (!traces.ok()) {
    print_error(traces.error().message);
    return ExitCode::usage;
  }
  if (command.given.recycling_wait && options.runtime.recycling == Recycling::eager) {
    note_untimed(traces.value());
  }
  if (command.is_served) return serve(command, options, std::move(traces).value());
  // Held to the end: each trace opens the device anew, which is cheap while it is in use.
  const Result<Device, Status> device = open_device(options.device, SimulatedTime::virtual_time);
  if (!device.ok()) {
    print_error(device.error().message);
    return ExitCode::usage;
  }
  if (!device.value().notice.empty()) print_error(device.value().notice);
  options.device =
      device.value().simulated != nullptr ? DeviceChoice::simulated : DeviceChoice::cuda;

  const auto played = play_all(traces.value(), options, command.finds_capacity);
  if (!played.ok()) {
    print_error(played.error().message);
    return played.error().code;
  }
  const Played& all = played.value();
  // A program that reads the JSON counts `failed` itself.
  if (!command.is_json) explain_failures(all.results);
  return print_result(command.is_json
                          ? to_json(all.results)
                          : to_table(all.results, options, all.setting, inspect_terminal(stdout)));
}

CLI::Option* add_serve_options(CLI::App& replay, ReplayCommand& command) {
  replay.add_flag("--serve", command.is_served,
                  "Play the trace once on the simulated device and serve the page on it, to go "
                  "through the job by hand, until stopped");
  return replay
      .add_option(
          "--bind", command.bind,
          std::string("Where --serve does, on this machine alone, port 0 for any (default ") +
              kDefaultBind + ")")
      ->type_name("HOST:PORT");
}

}  // namespace

void add_replay_command(CLI::App& app, Action& action, const ServeReplay& serve) {
  CLI::App& replay = *app.add_subcommand(
      "replay", "Play recorded allocation traces through a pool as fast as possible");
  // Shared with the callbacks, which run while the line is parsed and after.
  const auto command = std::make_shared<ReplayCommand>();
  command->serve = serve;
  ReplayOptions& options = command->options;
  add_choice(replay, "--device", kDevices, options.device,
             "Device to use (auto: a GPU where there is one)");
  add_choice(replay, "--backend", kBackings, options.backing, "How the pool gets its memory");
  add_choice(replay, "--recycling", kRecyclings, options.runtime.recycling,
             "What is done with empty pages (default eager)");
  const CLI::Option* const slack =
      add_percent(replay, "--slack", command->slack_percent,
                  "Pages held beyond the most that were occupied, in percent (default 0.5)");
  const CLI::Option* const recycling_wait = add_percent(
      replay, "--recycling-wait", command->recycling_wait_percent,
      "Most of the recorded time that requests may wait for pages to move, in percent (default 5)");
  const CLI::Option* const alias_reuse =
      add_choice(replay, "--alias-reuse", kAliasReuses, options.runtime.alias_reuse,
                 "When a page that is moved is used again");
  add_size(
      replay, "--capacity",
      [command](std::uint64_t bytes) { command->options.capacity_bytes = bytes; },
      "Most the pool may hold, such as 8GiB (default: the whole device)");
  add_size(
      replay, "--reserve",
      [command](std::uint64_t bytes) { command->options.reserve_bytes = bytes; },
      "Held from the start (default 0)");
  add_size(
      replay, "--cache-large",
      [command](std::uint64_t bytes) { command->options.cache_large_bytes = bytes; },
      "Freed blocks above 128 KiB that threads keep (default 32MiB)");
  const CLI::Option* const passes =
      add_number(replay, "--passes", options.passes, 1, kMaxPasses,
                 "Times each trace is played through the same pool (default 2)");
  replay.add_flag("--completions", options.honour_completions,
                  "Keep a block until its last use on another stream is complete");
  add_number(replay, "--scale", options.scale, 1, kMaxScale,
             "Multiply every size by this (default 1)");
  const CLI::Option* const seed =
      add_number(replay, "--seed", options.seed, 0, UINT64_MAX, "Seed of --fault-rate (default 0)");
  add_fraction(replay, "--fault-rate", options.fault_probability, 0, 1,
               "Let create, map, set-access and cudaMalloc fail with this probability");
  replay.add_flag("--find-capacity", command->finds_capacity,
                  "Search the smallest capacity at which no request of any pass fails, and show "
                  "the passes at that; more passes may need more");
  replay.add_flag("--json", command->is_json, "Print one JSON array instead of a table");
  CLI::Option* bind = nullptr;
  if (serve) bind = add_serve_options(replay, *command);
  replay.add_option("TRACE", command->paths, "gpupool traces or MiniMalloc CSV, plain or gzip'd")
      ->required();
  replay.callback([command, slack, recycling_wait, alias_reuse, seed, passes, bind, &action] {
    command->given = {slack->count() != 0,       recycling_wait->count() != 0,
                      alias_reuse->count() != 0, seed->count() != 0,
                      passes->count() != 0,      bind != nullptr && bind->count() != 0};
    action = [command] { return run_replay(*command); };
  });
}

}  // namespace gpupool::tools
