#include "tools/sd/command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "exporter/config/duration_text.h"
#include "exporter/http/access.h"
#include "exporter/http/http_server.h"
#include "exporter/http/socket_address.h"
#include "tools/sd/target_list.h"
#include "tools/serve/serve.h"
#include "tools/terminal/stop_signal.h"
#include "tools/trace/line_reader.h"

namespace gpupool::tools {
namespace {

using internal::HttpRequest;
using internal::HttpResponse;

constexpr const char* kDefaultListen = "127.0.0.1:10063";
constexpr std::chrono::nanoseconds kDefaultKeep = std::chrono::hours(1);

struct SdCommand {
  std::string directory;
  std::string listen = kDefaultListen;
  std::optional<std::chrono::nanoseconds> keep;
  bool is_once = false;
};

HttpResponse plain(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

HttpResponse answer(const HttpRequest& request, const internal::Access& access,
                    TargetList& targets) {
  if (auto refused = access.refusal(request, request.path == "/-/healthy")) {
    return *std::move(refused);
  }
  if (request.path != "/sd" && request.path != "/-/healthy") {
    return plain(404, "not found; there are /sd and /-/healthy\n");
  }
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse response = plain(405, "only GET and HEAD\n");
    response.headers.emplace_back("Allow", "GET, HEAD");
    return response;
  }
  if (request.path == "/-/healthy") return plain(200, "healthy\n");
  auto list = targets.read(std::chrono::steady_clock::now());
  // Prometheus then keeps the targets that it has.
  if (!list.ok()) return plain(500, list.error().message + "\n");
  HttpResponse response = plain(200, std::move(list).value());
  response.content_type = "application/json";
  response.headers.emplace_back("Cache-Control", "no-store");
  return response;
}

ExitCode print_once(TargetList& targets) {
  const auto list = targets.read(std::chrono::steady_clock::now());
  if (!list.ok()) {
    print_error(list.error().message);
    return ExitCode::usage;
  }
  return print_result(list.value());
}

ExitCode run_sd(const SdCommand& command) {
  using std::chrono::nanoseconds;
  const nanoseconds keep = command.keep.value_or(command.is_once ? nanoseconds(0) : kDefaultKeep);
  TargetList targets(command.directory, keep, print_error);
  if (command.is_once) return print_once(targets);

  const auto endpoint = parse_endpoint(command.listen);
  if (!endpoint) {
    print_error("--listen: " + quote(command.listen) +
                " is no address and port, such as 127.0.0.1:10063 or [::1]:10063");
    return ExitCode::usage;
  }
  // Said now rather than at the first request. Before any thread is started: the signals are ours.
  StopSignal stop;
  if (const auto list = targets.read(std::chrono::steady_clock::now()); !list.ok()) {
    print_error(list.error().message);
    return ExitCode::usage;
  }
  ExporterOptions options;
  options.bind = endpoint->address;
  const auto access = internal::Access::create(options);
  if (!access.ok()) {
    print_error("--listen: " + access.error().message);
    return ExitCode::usage;
  }
  auto server =
      internal::HttpServer::start(*endpoint, [&access, &targets](const HttpRequest& request) {
        return answer(request, access.value(), targets);
      });
  if (!server.ok()) {
    print_error("--listen: " + server.error().message);
    return ExitCode::usage;
  }
  std::printf("targets: http://%s/sd\n",
              internal::endpoint_text(endpoint->address, server.value()->port()).c_str());
  std::fflush(stdout);
  while (!stop.wait_until(std::chrono::steady_clock::now() + std::chrono::hours(1))) {
  }
  return ExitCode::finished;
}

}  // namespace

void add_sd_command(CLI::App& app, Action& action) {
  CLI::App& sd = *app.add_subcommand(
      "sd", "Serve the targets that exporter.discovery has put into a directory, for http_sd");
  const auto command = std::make_shared<SdCommand>();
  sd.add_option("DIRECTORY", command->directory,
                "Where the files are, or the directories of several jobs with them")
      ->required();
  sd.add_option(
        "--listen", command->listen,
        std::string("Serve at this address, port 0 for any (default ") + kDefaultListen + ")")
      ->type_name("ADDRESS:PORT");
  sd.add_flag("--once", command->is_once, "Print the targets and end; nothing is served");
  sd.add_option_function<std::string>(
        "--keep",
        [command](const std::string& text) {
          const auto time = internal::parse_duration(text);
          if (!time.ok()) throw CLI::ValidationError("--keep", time.error().text);
          command->keep = std::chrono::nanoseconds(time.value());
        },
        "How long a killed process of this host stays a target, which is then down; its file is"
        " removed after that (default 1h; with --once 0)")
      ->type_name("TIME");
  sd.callback([command, &action] { action = [command] { return run_sd(*command); }; });
}

}  // namespace gpupool::tools
