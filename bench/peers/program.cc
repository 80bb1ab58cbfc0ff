#include "bench/peers/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <utility>

#include "bench/peers/report.h"
#include "tools/trace/trace.h"

namespace gpupool::bench {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;

struct CommandLine {
  std::string device = "auto";
  std::string json_path;
  std::vector<std::string> only;
  std::vector<std::string> trace_paths;
  bool is_quick = false;
};

const std::map<std::string, tools::DeviceChoice> kDevices = {
    {"auto", tools::DeviceChoice::automatic},
    {"sim", tools::DeviceChoice::simulated},
    {"cuda", tools::DeviceChoice::cuda}};

/// The measurements of systems that --only may name, besides the program's own sections.
const std::vector<std::string> kMeasurements = {"pairs", "threads", "traces", "burst"};

class Run {
 public:
  Run(const Program& program, CommandLine line) : program_(program), line_(std::move(line)) {}

  int go();

 private:
  bool wants(const std::string& name) const {
    return line_.only.empty() ||
           std::find(line_.only.begin(), line_.only.end(), name) != line_.only.end();
  }
  Result<void, Status> make_plan();
  Result<bool, Status> find_gpu();
  void measure_section(const Section& section, bool has_gpu);
  void measure_system(const SystemEntry& entry, bool has_gpu);
  void leave_out(const std::string& what, const std::string& why);
  void save();

  const Program& program_;
  CommandLine line_;
  Plan plan_;
  tools::Device device_;
  Json json_;
  int status_ = 0;
};

Result<void, Status> Run::make_plan() {
  plan_.device = kDevices.at(line_.device);
  if (wants("pairs")) plan_.pair_bytes = {512, 64 * kKiB, kMiB, 16 * kMiB, 256 * kMiB};
  if (wants("threads")) plan_.thread_counts = {1, 2, 4, 8, 16};
  if (wants("burst")) plan_.burst_blocks = 10'000;
  if (line_.is_quick) {
    plan_.pair_rounds = 3;
    plan_.pair_round_time = std::chrono::milliseconds(1);
    plan_.thread_rounds = 1;
    plan_.thread_time = std::chrono::milliseconds(5);
    plan_.trace_warm_up_passes = 1;
    plan_.trace_passes = 1;
    plan_.burst_blocks = std::min<std::uint64_t>(plan_.burst_blocks, 100);
    plan_.burst_warm_rounds = 1;
  }
  if (!wants("traces")) return {};
  for (const std::string& path : line_.trace_paths) {
    const auto trace = tools::load_trace(path);
    if (!trace.ok()) return trace.error();
    auto plan = make_trace_plan(trace.value());
    if (!plan.ok()) return plan.error();
    plan_.traces.push_back(std::move(plan).value());
  }
  return {};
}

/// Opens the device, so that the file names it and what needs a GPU is left out with one clear
/// reason; and keeps it open, since systems open it again, which is cheap while it is in use.
Result<bool, Status> Run::find_gpu() {
  auto opened = tools::open_device(plan_.device, SimulatedTime::virtual_time);
  if (!opened.ok()) return opened.error();
  device_ = std::move(opened).value();
  const DeviceInfo& info = device_.backend->info();
  json_["device"] = {
      {"name", info.name}, {"driver", info.driver}, {"is_simulated", info.simulated}};
  const auto memory = device_.backend->memory_info();
  if (memory.ok()) json_["device"]["total_bytes"] = memory.value().total_bytes;
  if (!device_.notice.empty()) {
    std::fprintf(stderr, "%s: %s\n", program_.name.c_str(), device_.notice.c_str());
  }
  return !info.simulated;
}

void Run::leave_out(const std::string& what, const std::string& why) {
  std::printf("%s: not measured: %s\n", what.c_str(), why.c_str());
  json_["left_out"].push_back({{"what", what}, {"why", why}});
  status_ = 1;
}

void Run::measure_section(const Section& section, bool has_gpu) {
  if (!wants(section.name)) return;
  if (section.needs_gpu && !has_gpu) {
    leave_out(section.name, "needs a GPU");
    return;
  }
  std::string sentences;
  const auto measured = section.measure(sentences);
  std::printf("%s", sentences.c_str());
  if (measured.ok()) {
    json_[section.name] = Json::parse(measured.value());
  } else {
    leave_out(section.name, measured.error().message);
  }
  save();
}

void Run::measure_system(const SystemEntry& entry, bool has_gpu) {
  if (entry.needs_gpu && !has_gpu) {
    leave_out(entry.name, "needs a GPU");
    return;
  }
  const SystemResult result = entry.measure(plan_);
  std::printf("%s", to_text(result).c_str());
  std::fflush(stdout);
  json_["systems"].push_back(to_json(result));
  if (!result.error.empty()) status_ = 1;
  save();
}

void Run::save() {
  if (line_.json_path.empty()) return;
  std::ofstream file(line_.json_path, std::ios::trunc);
  // Names of traces need not be UTF-8, JSON must be.
  file << json_.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
  file.close();
  if (file.fail()) {
    std::fprintf(stderr, "%s: cannot write %s\n", program_.name.c_str(), line_.json_path.c_str());
    status_ = 1;
  }
}

int Run::go() {
  constexpr int kUsage = 2;
  const auto fail = [this](const Status& status) {
    std::fprintf(stderr, "%s: %s\n", program_.name.c_str(), status.message.c_str());
    return kUsage;
  };
  if (const auto made = make_plan(); !made.ok()) return fail(made.error());
  const auto has_gpu = find_gpu();
  if (!has_gpu.ok()) return fail(has_gpu.error());
  json_["systems"] = Json::array();
  json_["left_out"] = Json::array();
  for (const Section& section : program_.sections) measure_section(section, has_gpu.value());
  const bool wants_systems = std::any_of(kMeasurements.begin(), kMeasurements.end(),
                                         [this](const std::string& name) { return wants(name); });
  if (wants_systems) {
    for (const SystemEntry& entry : program_.systems) measure_system(entry, has_gpu.value());
  }
  save();
  return status_;
}

}  // namespace

int run_program(int argc, char** argv, const Program& program) {
  CLI::App app("Measures allocators on the same work, beside each other", program.name);
  CommandLine line;
  std::vector<std::string> choices = kMeasurements;
  for (const Section& section : program.sections) choices.push_back(section.name);
  app.add_option("--device", line.device, "auto, cuda or sim (default auto)")
      ->check(CLI::IsMember({"auto", "cuda", "sim"}));
  app.add_option("--json", line.json_path, "File for the results");
  app.add_option("--only", line.only, "Measure only these")
      ->delimiter(',')
      ->check(CLI::IsMember(choices));
  app.add_flag("--quick", line.is_quick, "As little as shows that everything runs");
  app.add_option("TRACE", line.trace_paths, "Recorded traces to play");
  CLI11_PARSE(app, argc, argv);
  return Run(program, std::move(line)).go();
}

}  // namespace gpupool::bench
