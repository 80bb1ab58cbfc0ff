#include "tools/compare/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "gpupool/size_text.h"
#include "tools/bounds.h"
#include "tools/compare/comparison.h"
#include "tools/compare/report.h"
#include "tools/replay/load_traces.h"
#include "tools/terminal/progress_bar.h"
#include "tools/trace/line_reader.h"
#include "tools/trace/sample_traces.h"

namespace gpupool::tools {
namespace {

using baselines::CatalogEntry;

struct CompareCommand {
  CompareOptions options;
  std::vector<std::string> names;
  bool is_json = false;
  std::vector<std::string> paths;
};

std::string system_names() {
  std::string names;
  for (const CatalogEntry& entry : baselines::catalog()) {
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  return names;
}

/// The systems of these names, all where there is none; in the catalog's order, each once.
std::vector<const CatalogEntry*> choose_systems(const std::vector<std::string>& names) {
  std::vector<const CatalogEntry*> chosen;
  for (const CatalogEntry& entry : baselines::catalog()) {
    const bool is_named = std::find(names.begin(), names.end(), entry.name) != names.end();
    if (names.empty() || is_named) chosen.push_back(&entry);
  }
  return chosen;
}

Result<std::vector<Trace>, Status> load(std::vector<std::string> paths) {
  if (paths.empty()) {
    auto samples = find_sample_traces();
    if (!samples.ok()) {
      return Status{samples.error().code, samples.error().message + "; give a TRACE"};
    }
    paths = std::move(samples).value();
  }
  return load_traces(paths);
}

Result<Comparison, CompareFailure> compare(const std::vector<Trace>& traces,
                                           const CompareOptions& options) {
  std::uint64_t total = 2 * kClassicBlocks;
  for (const Trace& trace : traces) total += trace.operation_count;
  ProgressBar bar(stderr, total * options.passes * options.systems.size());
  std::uint64_t done = 0;
  const CompareHook hook = [&](const std::string& what, std::uint64_t operations) {
    bar.update(what, done);
    done += operations;
  };
  Comparison comparison;
  auto classic = compare_on_classic_test(options, hook);
  if (!classic.ok()) return classic.error();
  comparison.classic = std::move(classic).value();
  for (const Trace& trace : traces) {
    auto rows = compare_on_trace(trace, options, hook);
    if (!rows.ok()) return rows.error();
    for (TraceRow& row : rows.value()) comparison.traces.push_back(std::move(row));
  }
  return comparison;
}

ExitCode run_compare(const CompareCommand& command) {
  CompareOptions options = command.options;
  options.systems = choose_systems(command.names);
  const Result<std::vector<Trace>, Status> traces = load(command.paths);
  if (!traces.ok()) {
    print_error(traces.error().message);
    return ExitCode::usage;
  }
  const auto comparison = compare(traces.value(), options);
  if (!comparison.ok()) {
    print_error(comparison.error().message);
    return comparison.error().code;
  }
  return print_result(command.is_json
                          ? to_json(comparison.value(), options)
                          : to_tables(comparison.value(), options, inspect_terminal(stdout)));
}

void add_only_option(CLI::App& compare, const std::shared_ptr<CompareCommand>& command) {
  const auto take = [command](const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (baselines::find_system(name) == nullptr) {
        throw CLI::ValidationError("--only",
                                   quote(name) + " is no system; there are: " + system_names());
      }
    }
    command->names = names;
  };
  // One word each time, so that the traces after it are not taken for names.
  compare
      .add_option_function<std::vector<std::string>>(
          "--only", take, "Only these systems, parted by commas: " + system_names())
      ->type_name("NAME")
      ->delimiter(',')
      ->allow_extra_args(false);
}

void add_capacity_option(CLI::App& compare, const std::shared_ptr<CompareCommand>& command) {
  const auto take = [command](std::uint64_t bytes) {
    if (bytes < kMinCapacityBytes || bytes > kMaxCapacityBytes) {
      throw CLI::ValidationError("--capacity", format_size(bytes) + " is not from " +
                                                   format_size(kMinCapacityBytes) + " to " +
                                                   format_size(kMaxCapacityBytes));
    }
    command->options.capacity_bytes = bytes;
  };
  add_size(compare, "--capacity", take, "Memory of the simulated device (default 140GiB)");
}

}  // namespace

void add_compare_command(CLI::App& app, Action& action) {
  CLI::App& compare = *app.add_subcommand(
      "compare", "Play the same work through this pool and the classic designs");
  // Shared with the callbacks, which run while the line is parsed and after.
  const auto command = std::make_shared<CompareCommand>();
  add_only_option(compare, command);
  add_capacity_option(compare, command);
  add_number(compare, "--passes", command->options.passes, 2, kMaxTrialPasses,
             "Passes of each system, the first of them cold (default 5)");
  compare.add_flag("--json", command->is_json, "Print one JSON object instead of tables");
  compare.add_option("TRACE", command->paths,
                     "gpupool traces or MiniMalloc CSV, plain or gzip'd (default: the samples)");
  compare.callback([command, &action] { action = [command] { return run_compare(*command); }; });
}

}  // namespace gpupool::tools
