// gpupool_gpu_peers: a pool on each of several devices in one process, and what passes between
// them: peer access, copies, collectives of NCCL, blocks that another process opens.
//
// With one device what needs two is done within it, and the output says so. Exit status: 0 where
// all that could run ran and was right; 1 where not; 2 for a command line that cannot be used; 3
// where a step hung; 77 where there is no device at all.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/peers/collectives.h"
#include "tests/gpu/peers/processes.h"
#include "tests/gpu/peers/steps.h"
#include "tests/gpu/peers/watchdog.h"

namespace gpupool::gpu_tests {
namespace {

constexpr char kName[] = "gpupool_gpu_peers";
constexpr int kUsage = 2;
constexpr int kNoDevice = 77;
constexpr std::uint64_t kMovedRounds = 100;
// What a step may take beyond its time: opening devices, the last round, other processes.
constexpr std::chrono::seconds kGrace{45};

struct CommandLine {
  int devices = 0;  // 0: all
  std::uint64_t rounds = 1000;
  int seconds = 60;
  int runs = 5;
  bool holds_launches = false;
  std::vector<std::string> steps;
  std::vector<std::string> modes;
  std::string json_path;
  std::string child;
  std::string ptx_folder;
};

class Program {
 public:
  explicit Program(CommandLine line)
      : line_(std::move(line)),
        watch_(report_, line_.holds_launches),
        watchdog_(report_, line_.json_path) {}
  int go();

 private:
  using Step = std::function<void(Task&)>;

  bool wants(const std::string& step) const { return is_named(line_.steps, step); }
  static bool is_named(const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  }
  void say_what_one_device_cannot();
  void run(const std::string& name, const Mode& mode, std::uint64_t rounds, const Step& step);
  void run_steps();
  void run_nccl_steps();

  CommandLine line_;
  Report report_;
  Watch watch_;
  Watchdog watchdog_;
  Cards cards_;
  std::shared_ptr<Communicators> communicators_;
};

void Program::run(const std::string& name, const Mode& mode, std::uint64_t rounds,
                  const Step& step) {
  if (!is_named(line_.modes, mode.name)) return;
  Row row;
  row.step = name;
  row.mode = mode.name;
  row.wanted_rounds = rounds;
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t calls_before = watch_.calls();
  const std::uint64_t faults_before = report_.fault_count();
  std::printf("== %s, %s\n", name.c_str(), mode.name);
  std::fflush(stdout);
  const std::chrono::seconds limit(line_.seconds);
  Task task{cards_, watch_, mode, {rounds, start + limit}, row};
  watchdog_.begin(name + ", " + mode.name, limit + kGrace);
  try {
    step(task);
    if (row.rounds < row.wanted_rounds) {
      report_.fault(name, "only " + std::to_string(row.rounds) + " of " +
                              std::to_string(row.wanted_rounds) + " rounds in its time");
    }
  } catch (const std::exception& error) {
    report_.fault(name + std::string(", ") + mode.name, error.what());
  }
  watchdog_.end();
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  row.calls = watch_.calls() - calls_before;
  row.faults = report_.fault_count() - faults_before;
  report_.add(row);
  static_cast<void>(report_.save(line_.json_path));  // said once more at the end
}

void Program::run_steps() {
  // What needs no cudaDeviceEnablePeerAccess comes first: it must work without.
  if (wants("checks")) run("checks", kEager, 0, prove_checks);
  if (wants("moved")) {
    run("moved pages", kEager, std::min(line_.rounds, kMovedRounds), reach_moved_pages);
  }
  if (wants("copies")) run("copies", kEager, line_.rounds, copy_between);
  for (const Mode& mode : {kEager, kCudaMalloc}) {
    if (wants("calls")) run("every call", mode, 0, call_everything);
  }
  if (wants("copies")) run("copies", kCudaMalloc, line_.rounds, copy_between);
  for (const Mode& mode : {kEager, kEagerHandle, kCudaMalloc}) {
    if (wants("processes")) run("two processes", mode, 0, share_between_processes);
  }
}

void Program::run_nccl_steps() {
  if (!wants("collectives") && !wants("times")) return;
  if (!missing_nccl().empty()) {
    report_.leave_out("collectives and their times", missing_nccl());
    return;
  }
  watchdog_.begin("opening NCCL", std::chrono::seconds(line_.seconds) + kGrace);
  try {
    report_.describe("collectives", open_nccl());
    communicators_ = open_communicators(cards_);
  } catch (const std::exception& error) {
    report_.fault("opening NCCL", error.what());
  }
  watchdog_.end();
  if (communicators_ == nullptr) return;
  for (const Mode& mode : {kEager, kEagerHandle, kCudaMalloc}) {
    for (const bool is_registered : {false, true}) {
      const std::string how = is_registered ? ", registered" : "";
      if (wants("collectives")) {
        run("collectives" + how, mode, line_.rounds,
            [&](Task& task) { run_collectives(*communicators_, task, is_registered); });
      }
      if (wants("times") && cards_.size() > 1) {
        run("times" + how, mode, 0, [&](Task& task) {
          time_collectives(*communicators_, task, is_registered, line_.runs);
        });
      }
    }
  }
}

void Program::say_what_one_device_cannot() {
  if (cards_.size() > 1) {
    for (const Card& owner : cards_) {
      for (const Card& reader : cards_) {
        if (can_reach(reader.device, owner.device)) continue;
        report_.leave_out("device " + std::to_string(reader.device) + " reads blocks of device " +
                              std::to_string(owner.device),
                          "the devices have no peer access");
      }
    }
    return;
  }
  const char* const why = "there is one device; the same was done within it";
  report_.leave_out("threads with another device current", why);
  report_.leave_out("peer access, copies and collectives between devices", why);
  report_.leave_out("times of collectives", "there is one device, and nothing to pass on");
  report_.leave_out("a block opened by a process of another device", why);
}

int Program::go() {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || count == 0) {
    std::printf("%s: nothing was run: there is no CUDA device (%s)\n", kName,
                counted == cudaSuccess ? "none is visible" : cudaGetErrorString(counted));
    return kNoDevice;
  }
  if (line_.devices > count) {
    std::fprintf(stderr, "%s: --devices %d: there are %d\n", kName, line_.devices, count);
    return kUsage;
  }
  if (line_.devices > 0) count = line_.devices;
  watchdog_.begin("opening devices", std::chrono::seconds(120));
  try {
    load_driver_questions();
    cards_ = open_cards(count);
    for (const Card& card : cards_) {
      const DeviceInfo& info = card.backend->info();
      report_.describe("device " + std::to_string(card.device),
                       info.name + ", driver " + info.driver + ", " + info.pci_bus_id);
    }
    say_what_one_device_cannot();
  } catch (const std::exception& error) {
    report_.fault("opening devices", error.what());
  }
  watchdog_.end();
  if (report_.fault_count() == 0) {
    run_steps();
    run_nccl_steps();
  }
  watchdog_.begin("the end", kGrace);
  communicators_.reset();
  for (Card& card : cards_) {
    const OnDevice on(card.device);
    card.ramps.reset();
    card.kernels.reset();
    card.backend.reset();
  }
  watchdog_.end();
  report_.print();
  const bool is_saved = report_.save(line_.json_path);
  return is_saved && report_.fault_count() == 0 ? 0 : 1;
}

int run_program(int argc, char** argv) {
  CLI::App app("A pool on each of several devices, and what passes between them", kName);
  CommandLine line;
  app.add_option("--devices", line.devices, "How many (default all)")->check(CLI::Range(1, 16));
  app.add_option("--rounds", line.rounds, "Of copies and of collectives (default 1000)")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--seconds", line.seconds, "What a step may take (default 60)")
      ->check(CLI::Range(1, 3600));
  app.add_option("--runs", line.runs, "Of each kind of memory, for times (default 5)")
      ->check(CLI::Range(1, 100));
  app.add_option("--steps", line.steps,
                 "Only these: checks, moved, copies, calls, processes, collectives, times")
      ->delimiter(',')
      ->check(CLI::IsMember(
          {"checks", "moved", "copies", "calls", "processes", "collectives", "times"}));
  app.add_option("--modes", line.modes, "Only these: eager, eager-handle, cudamalloc")
      ->delimiter(',')
      ->check(CLI::IsMember({"eager", "eager-handle", "cudamalloc"}));
  app.add_flag("--hold-launches", line.holds_launches,
               "No call of a pool while a collective is launched on one device after the other");
  app.add_option("--json", line.json_path, "File for the results");
  app.add_option("--write-ptx", line.ptx_folder, "Write the kernels into this folder, and end");
  app.add_option("--child", line.child, "What the program gives itself");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (!line.ptx_folder.empty()) {
    std::ofstream(line.ptx_folder + "/ramps.ptx") << ramps_ptx();
    return 0;
  }
  if (!line.child.empty()) return run_child(line.child);
  return Program(std::move(line)).go();
}

}  // namespace
}  // namespace gpupool::gpu_tests

int main(int argc, char** argv) { return gpupool::gpu_tests::run_program(argc, argv); }
