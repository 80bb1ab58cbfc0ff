#include "tools/demo/command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "gpupool/exporter/event_log.h"
#include "gpupool/exporter/exporter.h"
#include "gpupool/pool.h"
#include "tools/check_config/config_file.h"
#include "tools/demo/player.h"
#include "tools/demo/status_line.h"
#include "tools/device/device.h"
#include "tools/device/misuse_log.h"
#include "tools/terminal/stop_signal.h"
#include "tools/terminal/units.h"
#include "tools/trace/sample_traces.h"

namespace gpupool::tools {
namespace {

constexpr double kMaxSeconds = 1e9;
constexpr double kMaxSpeed = 1e6;

struct DemoCommand {
  double seconds = 0;
  bool has_end = false;
  std::uint64_t port = 0;
  bool has_port = false;
  std::string config_path;
  std::string trace_path;
  std::string record_path;
  double speed = 1;
};

Result<std::vector<Trace>, Status> load_traces(const DemoCommand& command) {
  std::vector<std::string> paths = {command.trace_path};
  if (command.trace_path.empty()) {
    auto samples = find_sample_traces();
    if (!samples.ok()) {
      return Status{samples.error().code, samples.error().message + "; give --trace FILE"};
    }
    paths = std::move(samples).value();
  }
  std::vector<Trace> traces;
  for (const std::string& path : paths) {
    Result<Trace, Status> trace = load_trace(path);
    if (!trace.ok()) return trace.error();
    if (!trace.value().seconds) {
      return Status{Error::invalid_argument,
                    path + ": has no recorded times, which the demo plays by"};
    }
    traces.push_back(std::move(trace).value());
  }
  return traces;
}

/// Everything the demo runs on. Ends in the reverse order.
struct Service {
  std::vector<Trace> traces;
  EventLog events;
  Device device;
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Exporter> exporter;
};

Result<std::unique_ptr<Exporter>, Status> start_exporter(const DemoCommand& command, Pool& pool,
                                                         ExporterOptions options) {
  if (command.has_port) {
    options.port = static_cast<std::uint16_t>(command.port);
    options.port_count = 1;
    options.on_port_taken = OnPortTaken::fail;
  }
  options.reload_on_sighup = true;
  options.log = print_error;
  auto exporter = Exporter::start(pool, options);
  if (!exporter.ok() && command.has_port) {
    return Status{exporter.error().code,
                  "--port " + std::to_string(command.port) + ": " + exporter.error().message};
  }
  return exporter;
}

Result<std::unique_ptr<Service>, Status> start_service(const DemoCommand& command, Config config) {
  auto service = std::make_unique<Service>();
  auto traces = load_traces(command);
  if (!traces.ok()) return traces.error();
  service->traces = std::move(traces).value();

  auto device = open_device(DeviceChoice::automatic, SimulatedTime::real_time);
  if (!device.ok()) return device.error();
  service->device = std::move(device).value();

  if (command.has_port && !config.exporter.enabled) {
    return Status{Error::invalid_argument,
                  "--port " + std::to_string(command.port) +
                      ": the configuration says that nothing is served (exporter.enabled: false)"};
  }
  const Config loaded = config;
  config.pool.misuse_handler = log_misuse;
  config.pool.observer = &service->events;
  config.exporter.events = &service->events;
  auto pool = Pool::create(*service->device.backend, std::move(config.pool));
  if (!pool.ok()) return pool.error();
  service->pool = std::move(pool).value();

  if (config.exporter.enabled) {
    auto exporter = start_exporter(command, *service->pool, config.exporter);
    if (!exporter.ok()) return exporter.error();
    service->exporter = std::move(exporter).value();
    if (!loaded.path.empty()) service->exporter->enable_reload(loaded);
  }
  return service;
}

void announce(const Service& service) {
  if (!service.device.notice.empty()) print_error(service.device.notice);
  std::string text;
  if (service.exporter != nullptr) {
    text = "metrics: " + service.exporter->url() + "metrics\npage:    " + service.exporter->url() +
           "\n";
  } else {
    text = "metrics: off (exporter.enabled is false)\n";
  }
  text += "device:  " + service.pool->device().name + "\nplaying:";
  for (const Trace& trace : service.traces) text += " " + trace.name;
  std::fputs((text + "\n").c_str(), stdout);
  std::fflush(stdout);
}

PlayerOptions player_options(const DemoCommand& command, Service& service, StatusLine& status) {
  PlayerOptions options;
  options.speed = command.speed;
  options.tick_period = status.period();
  options.on_tick = [&service, &status](const PlayerCounts& counts) {
    // The exporter's thread does this otherwise.
    if (service.exporter == nullptr) service.pool->maintain();
    status.show(counts);
  };
  options.on_first_failure = [&service, &status] {
    status.finish();
    const FailureReport report = service.pool->last_failure();
    print_error("first allocation that failed:\n" + report.text());
  };
  if (command.has_end) {
    const std::chrono::duration<double> length(command.seconds);
    options.end = std::chrono::steady_clock::now() +
                  std::chrono::duration_cast<std::chrono::nanoseconds>(length);
  }
  return options;
}

bool finish_recording(const DemoCommand& command, Pool& pool) {
  const auto report = pool.stop_recording();
  if (!report.ok()) {
    print_error(report.error().message);
    return false;
  }
  std::printf("recorded: %s operations, %s left out, to %s (%s)\n",
              grouped(report.value().allocations + report.value().frees).c_str(),
              grouped(report.value().left_out).c_str(), command.record_path.c_str(),
              to_string(report.value().end));
  std::fflush(stdout);
  return true;
}

ExitCode run_demo(const DemoCommand& command) {
  // Before any thread is started, so that every thread leaves the signals to this one.
  StopSignal stop;
  Config config;
  if (!command.config_path.empty()) {
    std::optional<Config> loaded = load_config_or_print(command.config_path);
    if (!loaded) return ExitCode::usage;
    config = *std::move(loaded);
  }
  auto started = start_service(command, std::move(config));
  if (!started.ok()) {
    print_error(started.error().message);
    return ExitCode::usage;
  }
  Service& service = *started.value();
  StatusLine status(*service.pool);
  auto player = Player::create(service.device, *service.pool, service.traces,
                               player_options(command, service, status));
  if (!player.ok()) {
    print_error(player.error().message);
    return ExitCode::usage;
  }
  if (!command.record_path.empty()) {
    if (const auto recording = service.pool->record(command.record_path); !recording.ok()) {
      print_error(recording.error().message);
      return ExitCode::usage;
    }
  }
  announce(service);
  const PlayerCounts counts = player.value()->play(stop);
  status.finish();
  std::printf("stopped: %s operations, %s allocations failed, %s held at most\n",
              grouped(counts.operations).c_str(), grouped(counts.failed).c_str(),
              human_bytes(service.pool->stats().peak_held_bytes).c_str());
  std::fflush(stdout);
  if (!command.record_path.empty() && !finish_recording(command, *service.pool)) {
    return ExitCode::internal_error;
  }
  if (service.device.simulated != nullptr && service.device.simulated->violation_count() != 0) {
    print_error("internal error: the simulated device refused work: " +
                service.device.simulated->last_violation());
    return ExitCode::internal_error;
  }
  return ExitCode::finished;
}

}  // namespace

void add_demo_command(CLI::App& app, Action& action) {
  CLI::App& demo = *app.add_subcommand(
      "demo", "Run a training service: recorded traces at their own pace, with metrics and a page");
  const auto command = std::make_shared<DemoCommand>();
  CLI::Option* const seconds = add_fraction(demo, "--for", command->seconds, 0, kMaxSeconds,
                                            "Stop after so many seconds (default: when told to)");
  CLI::Option* const port =
      add_number(demo, "--port", command->port, 0, 65535,
                 "Serve on this port, or on that of LOCAL_RANK from there, or fail; 0 is any"
                 " (default: the first free one from " +
                     std::to_string(kDefaultPort) + ")");
  demo.add_option("--config", command->config_path,
                  "Settings: a YAML file, as configs/gpupool.yaml explains it")
      ->type_name("FILE");
  demo.add_option("--trace", command->trace_path, "Trace to play (default: the sample traces)")
      ->type_name("FILE");
  demo.add_option("--record", command->record_path,
                  "Write what the pool is asked for to this file, a trace that replay plays")
      ->type_name("FILE");
  add_fraction(demo, "--speed", command->speed, 0.001, kMaxSpeed,
               "Play so many times as fast as recorded (default 1)");
  demo.callback([command, seconds, port, &action] {
    command->has_end = seconds->count() != 0;
    command->has_port = port->count() != 0;
    action = [command] { return run_demo(*command); };
  });
}

}  // namespace gpupool::tools
