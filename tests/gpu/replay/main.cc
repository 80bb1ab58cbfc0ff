// gpupool_gpu_replay: recorded traces through the pool with real work on every block, under each
// way of recycling pages, and what the driver took for it beside what the simulated device models.
//
// On a GPU where there is one; with --device sim on the simulated device, whose streams then work
// on real memory. Exit status: 0 where all that was asked for was measured and no word was wrong;
// 1 where not; 2 for a command line or a trace that cannot be used.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/kernels_ptx.h"
#include "tests/gpu/replay/probes.h"
#include "tests/gpu/replay/report.h"
#include "tests/gpu/replay/trace_run.h"
#include "tools/replay/load_traces.h"

namespace gpupool::gpu_tests {
namespace {

constexpr char kName[] = "gpupool_gpu_replay";
constexpr int kUsage = 2;
constexpr std::uint64_t kAliasRounds = 200;
constexpr std::uint64_t kChainLinks = 6000;

struct CommandLine {
  std::string device = "cuda";
  std::string memory = "real";
  std::string json_path;
  std::string ptx_folder;
  std::vector<std::string> settings;
  std::vector<std::string> modes;
  std::vector<std::string> trace_paths;
  std::uint64_t passes = 2;
  double time_limit_s = 0;  // 0: none
  bool has_probes = false;
};

class Program {
 public:
  explicit Program(CommandLine line) : line_(std::move(line)) {}
  int go();

 private:
  bool wants(Mode mode) const;
  bool wants(const Setting& setting) const;
  bool is_over() const;
  Result<void, Status> open();
  RunFigures run(const tools::Trace& trace, const Setting& setting, Mode mode);
  void measure(const tools::Trace& trace, const Setting& setting);
  void probe();
  void leave_out(const std::string& what, const std::string& why);
  void fail(const std::string& what, const std::string& why);
  void save();

  CommandLine line_;
  Place place_;
  std::vector<tools::Trace> traces_;
  tools::Device device_;  // held to the end: opening it again is cheap meanwhile
  Json json_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int status_ = 0;
};

bool is_named(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

/// Whether the trace records what the setting needs.
bool suits(const tools::Trace& trace, const Setting& setting) {
  if (setting.is_paced && (!trace.seconds.has_value() || *trace.seconds > kLongestPacedSeconds)) {
    return false;
  }
  return !setting.honours_completions ||
         std::any_of(trace.operations.begin(), trace.operations.end(),
                     [](const tools::Operation& operation) { return operation.completes_later; });
}

bool Program::wants(Mode mode) const {
  // Without work the chosen device would be the modelled one again.
  if (mode == Mode::idle && place_.device == tools::DeviceChoice::simulated) return false;
  return is_named(line_.modes, to_string(mode));
}

bool Program::wants(const Setting& setting) const { return is_named(line_.settings, setting.name); }

bool Program::is_over() const {
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
  return line_.time_limit_s > 0 && passed.count() > line_.time_limit_s;
}

void Program::leave_out(const std::string& what, const std::string& why) {
  json_["left_out"].push_back({{"what", what}, {"why", why}});
  status_ = 1;
}

void Program::fail(const std::string& what, const std::string& why) {
  std::fprintf(stderr, "%s: %s: %s\n", kName, what.c_str(), why.c_str());
  json_["faults"].push_back({{"what", what}, {"why", why}});
  status_ = 1;
}

void Program::save() {
  std::fflush(stdout);
  if (line_.json_path.empty()) return;
  std::ofstream file(line_.json_path, std::ios::trunc);
  // Names of traces need not be UTF-8, JSON must be.
  file << json_.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
  file.close();
  if (file.fail()) {
    std::fprintf(stderr, "%s: cannot write %s\n", kName, line_.json_path.c_str());
    status_ = 1;
  }
}

Result<void, Status> Program::open() {
  auto traces = tools::load_traces(line_.trace_paths);
  if (!traces.ok()) return traces.error();
  traces_ = std::move(traces).value();
  const bool is_simulated = line_.device == "sim";
  place_.device = is_simulated ? tools::DeviceChoice::simulated : tools::DeviceChoice::cuda;
  place_.memory = line_.memory == "real" ? SimulatedMemory::real : SimulatedMemory::address_only;
  place_.passes = line_.passes;
  auto device = tools::open_device(place_.device, SimulatedTime::virtual_time);
  if (!device.ok()) return device.error();
  device_ = std::move(device).value();
  const DeviceInfo& info = device_.backend->info();
  json_["device"] = {
      {"name", info.name}, {"driver", info.driver}, {"is_simulated", info.simulated}};
  json_["settings"] = Json::array();
  for (const char* key : {"runs", "aliases", "chains", "left_out", "faults"}) {
    json_[key] = Json::array();
  }
  return {};
}

RunFigures Program::run(const tools::Trace& trace, const Setting& setting, Mode mode) {
  RunFigures figures;
  auto opened = TraceRun::open(trace, setting, mode, place_);
  if (!opened.ok()) {
    figures.error = opened.error().message;
    return figures;
  }
  TraceRun& run = *opened.value();
  for (std::uint64_t pass = 0; pass < place_.passes && figures.error.empty(); ++pass) {
    auto played = run.play();
    const auto mismatches = run.mismatches();
    if (!played.ok() || !mismatches.ok()) {
      figures.error = played.ok() ? mismatches.error().message : played.error().message;
      break;
    }
    figures.passes.push_back(played.value());
    figures.passes.back().wrong_words = mismatches.value().words - figures.mismatches.words;
    figures.mismatches = mismatches.value();
    figures.error = run.find_fault();
  }
  return figures;
}

void Program::measure(const tools::Trace& trace, const Setting& setting) {
  TraceFigures figures;
  figures.trace = trace.name;
  figures.setting = setting.name;
  figures.trace_seconds = trace.seconds;
  const std::string what = trace.name + ", " + setting.name;
  for (const Mode mode : {Mode::modelled, Mode::idle, Mode::busy}) {
    if (!wants(mode)) continue;
    const RunFigures run_figures = run(trace, setting, mode);
    if (!run_figures.error.empty()) {
      leave_out(what + ", " + to_string(mode), run_figures.error);
    }
    if (run_figures.mismatches.words != 0) {
      fail(what, std::to_string(run_figures.mismatches.words) + " words were not their block's");
    }
    figures.runs[static_cast<std::size_t>(mode)] = run_figures;
  }
  if (setting.is_tight) {
    const auto plan = tools::make_plan(trace, {setting.honours_completions, 1});
    if (plan.ok()) figures.capacity_bytes = tight_capacity(peak_requested_bytes(plan.value()));
  }
  std::printf("%s", to_text(figures).c_str());
  json_["runs"].push_back(to_json(figures));
  save();
}

void Program::probe() {
  const auto aliases = probe_aliases(kAliasRounds);
  if (aliases.ok()) {
    for (const AliasCase& figures : aliases.value()) {
      std::printf("%s", to_text(figures).c_str());
      json_["aliases"].push_back(to_json(figures));
    }
  } else {
    std::printf("  a page at two addresses: not measured: %s\n", aliases.error().message.c_str());
    leave_out("a page at two addresses", aliases.error().message);
  }
  for (const AliasReuse alias_reuse : {AliasReuse::wait, AliasReuse::same_stream}) {
    const ChainCase chain = probe_chain(alias_reuse, kChainLinks);
    std::printf("%s", to_text(chain).c_str());
    json_["chains"].push_back(to_json(chain));
    const std::string what = std::string("dependent launches, ") + to_string(alias_reuse);
    if (!chain.error.empty()) leave_out(what, chain.error);
    // With same_stream there is no promise: a figure of the card.
    if (alias_reuse == AliasReuse::wait && chain.wrong_words != 0) {
      fail(what, std::to_string(chain.wrong_words) + " words were not their block's");
    }
  }
  save();
}

int Program::go() {
  if (!line_.ptx_folder.empty()) {
    std::ofstream(line_.ptx_folder + "/general.ptx") << general_ptx();
    std::ofstream(line_.ptx_folder + "/dependent.ptx") << dependent_ptx();
    return 0;
  }
  if (const auto opened = open(); !opened.ok()) {
    std::fprintf(stderr, "%s: %s\n", kName, opened.error().message.c_str());
    return kUsage;
  }
  if (line_.has_probes) probe();
  for (const Setting& setting : settings()) {
    if (!wants(setting)) continue;
    json_["settings"].push_back(to_json(setting));
    for (const tools::Trace& trace : traces_) {
      if (!suits(trace, setting)) continue;
      if (is_over()) {
        std::printf("  %s, %s: not measured: the time was over\n", trace.name.c_str(),
                    setting.name.c_str());
        leave_out(trace.name + ", " + setting.name, "the time was over");
      } else {
        measure(trace, setting);
      }
    }
  }
  save();
  return status_;
}

std::vector<std::string> setting_names() {
  std::vector<std::string> names;
  for (const Setting& setting : settings()) names.push_back(setting.name);
  return names;
}

int run_program(int argc, char** argv) {
  CLI::App app("Plays traces with work on every block, under each way of recycling pages", kName);
  CommandLine line;
  app.add_option("--device", line.device, "cuda or sim (default cuda)")
      ->check(CLI::IsMember({"cuda", "sim"}));
  app.add_option("--sim-memory", line.memory,
                 "What a busy simulated device works on: real memory of the host, or address "
                 "(default real)")
      ->check(CLI::IsMember({"real", "address"}));
  app.add_option("--settings", line.settings, "Only these (default all)")
      ->delimiter(',')
      ->allow_extra_args(false)  // the traces follow
      ->check(CLI::IsMember(setting_names()));
  app.add_option("--modes", line.modes, "Only these: modelled, idle, busy (default all)")
      ->delimiter(',')
      ->allow_extra_args(false)  // the traces follow
      ->check(CLI::IsMember({"modelled", "idle", "busy"}));
  app.add_option("--passes", line.passes, "Times each trace is played (default 2)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--time-limit", line.time_limit_s, "Seconds after which nothing more is begun");
  app.add_flag("--probes", line.has_probes, "Measure aliases and dependent launches, too");
  app.add_option("--json", line.json_path, "File for the results");
  app.add_option("--write-ptx", line.ptx_folder, "Write the kernels into this folder, and end");
  app.add_option("TRACE", line.trace_paths, "Recorded traces to play");
  CLI11_PARSE(app, argc, argv);
  return Program(std::move(line)).go();
}

}  // namespace
}  // namespace gpupool::gpu_tests

int main(int argc, char** argv) { return gpupool::gpu_tests::run_program(argc, argv); }
