#include "tools/serve/serve.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "exporter/http/access.h"
#include "exporter/http/responses.h"
#include "exporter/http/socket_address.h"
#include "tools/command_line.h"
#include "tools/serve/recorded_job.h"
#include "tools/terminal/stop_signal.h"
#include "tools/terminal/units.h"
#include "tools/trace/line_reader.h"

namespace gpupool::tools {
namespace {

// What a person who moves the slider back takes for "at once".
constexpr double kNoticedSeconds = 0.5;

/// An address of this machine alone, and a port. The error is a line for a person.
Result<internal::ListenOptions, std::string> loopback_endpoint(const std::string& text) {
  const auto endpoint = parse_endpoint(text);
  if (!endpoint) {
    return "--bind: " + quote(text) +
           " is no address and port, such as 127.0.0.1:10062 or [::1]:10062";
  }
  if (!internal::parse_address(endpoint->address, endpoint->port)->is_loopback()) {
    return "--bind: " + quote(text) +
           " can be reached from elsewhere; a recording is served on this machine alone";
  }
  return *endpoint;
}

std::string describe(const Recording& recording) {
  std::string text =
      "trace:  " + recording.name + ", " + grouped(recording.operations) + " operations";
  if (recording.has_time) {
    text += " in " + fixed(static_cast<double>(recording.duration_ns) / 1e9, 2) + " s";
  }
  text += ", " + grouped(recording.failures.count) + " failed, played on " + recording.device.name;
  if (recording.replay_seconds > kNoticedSeconds) {
    text += "\nnote:   going back in it takes up to " + fixed(recording.replay_seconds, 1) +
            " s, as it is played from the start again";
  }
  return text + "\n";
}

}  // namespace

std::optional<internal::ListenOptions> parse_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  std::uint64_t port = 0;
  if (!parse_number(text.substr(colon + 1), port) || port > UINT16_MAX) return std::nullopt;
  const auto address = internal::parse_address(host, static_cast<std::uint16_t>(port));
  const std::string again = internal::endpoint_text(host, static_cast<std::uint16_t>(port));
  // Only what reads as it is written: brackets around an IPv6 address alone, no leading zero.
  if (!address || again != text) return std::nullopt;
  return internal::ListenOptions{.address = host, .port = static_cast<std::uint16_t>(port)};
}

ExitCode serve_replay(Trace trace, const ReplayOptions& options, const std::string& bind) {
  // Said now rather than after the replay.
  if (const auto endpoint = loopback_endpoint(bind); !endpoint.ok()) {
    print_error(endpoint.error());
    return ExitCode::usage;
  }
  const auto job = RecordedJob::create(std::move(trace), options);
  if (!job.ok()) {
    print_error(job.error().message);
    return ExitCode::usage;
  }
  return serve_recorded(job.value()->sources(), bind, describe(job.value()->recording()));
}

ExitCode serve_recorded(RecordedSources sources, const std::string& bind, const std::string& more) {
  // Before any thread is started: the signals are ours.
  StopSignal stop;
  const auto endpoint = loopback_endpoint(bind);
  if (!endpoint.ok()) {
    print_error(endpoint.error());
    return ExitCode::usage;
  }
  ExporterOptions options;
  options.bind = endpoint.value().address;
  auto access = internal::Access::create(options);
  if (!access.ok()) {
    print_error("--bind: " + access.error().message);
    return ExitCode::usage;
  }
  const RecordedEndpoints endpoints(std::move(sources), std::move(access).value());
  auto server = internal::HttpServer::start(
      endpoint.value(),
      [&endpoints](const internal::HttpRequest& request) { return endpoints.handle(request); });
  if (!server.ok()) {
    print_error("--bind: " + server.error().message);
    return ExitCode::usage;
  }
  const std::string url =
      "http://" + internal::endpoint_text(endpoint.value().address, server.value()->port()) + "/";
  std::printf("page:   %s\n%s", url.c_str(), more.c_str());
  std::fflush(stdout);
  if (internal::find_asset("/worker.js") == nullptr) {
    print_error("this build has the plain page, which shows the end of a recording alone");
  }
  while (!stop.wait_until(std::chrono::steady_clock::now() + std::chrono::hours(1))) {
  }
  return ExitCode::finished;
}

}  // namespace gpupool::tools
