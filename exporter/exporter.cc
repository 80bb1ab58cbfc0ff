#include "gpupool/exporter/exporter.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exporter/discovery/port_plan.h"
#include "exporter/discovery/process_id.h"
#include "exporter/discovery/target_file.h"
#include "exporter/http/access.h"
#include "exporter/http/endpoints.h"
#include "exporter/http/http_server.h"
#include "exporter/http/maintainer.h"
#include "exporter/http/pool_sources.h"
#include "exporter/http/socket_address.h"
#include "exporter/metrics/identity.h"

namespace gpupool {
namespace {

/// Where nobody else is told.
void log_to_stderr(const std::string& line) { std::fprintf(stderr, "gpupool: %s\n", line.c_str()); }

void log(const ExporterOptions& options, const std::string& line) {
  options.log ? options.log(line) : log_to_stderr(line);
}

internal::JobIdentity identity_of(const ExporterOptions& options) {
  std::vector<std::string> notes;
  const auto lookup = [](const char* name) { return std::getenv(name); };
  internal::JobIdentity identity = internal::read_identity(options.job, lookup, notes);
  for (const std::string& note : notes) log(options, note);
  return identity;
}

/// Under which host Prometheus is to ask.
std::string advertised_host(const ExporterOptions& options) {
  if (!options.discovery.address.empty()) return options.discovery.address;
  const auto bound = internal::parse_address(options.bind, 0);
  return bound && bound->is_any() ? internal::host_name() : options.bind;
}

}  // namespace

class Exporter::Impl {
 public:
  Impl(Pool& pool, const ExporterOptions& options, const internal::Access& access)
      : options_(options),
        owner_(getpid()),
        job_(identity_of(options_)),
        endpoints_(internal::pool_sources(pool, job_, access.are_details_shown()), access) {}

  Result<void, Status> serve() {
    const auto plan = internal::plan_ports(options_, job_.local_rank);
    if (!plan.ok()) return plan.error();
    auto server = internal::listen(plan.value(), [this](const internal::HttpRequest& request) {
      return endpoints_.handle(request);
    });
    if (!server.ok()) return server.error();
    server_ = std::move(server).value();
    endpoints_.set_ready(true);
    if (!options_.discovery.directory.empty()) publish();
    return {};
  }

  void maintain(Pool& pool, std::chrono::milliseconds period) {
    maintainer_.emplace(period, [&pool] { pool.maintain(); });
  }

  bool is_forked() const noexcept { return getpid() != owner_; }
  std::uint16_t port() const noexcept { return server_ ? server_->port() : 0; }
  const std::string& address() const noexcept { return options_.bind; }

  void retire() {
    endpoints_.set_ready(false);
    target_file_.reset();
  }

  void stop() {
    retire();
    maintainer_.reset();
    if (server_) server_->stop();
  }

 private:
  /// Without it Prometheus has to be told otherwise where this process is: no reason not to serve.
  void publish() {
    const std::string directory = internal::expand_directory(options_.discovery.directory, job_);
    internal::sweep(directory);
    auto file = internal::TargetFile::publish(
        directory, {.endpoint = internal::endpoint_text(advertised_host(options_), port()),
                    .host = internal::host_name(),
                    .job = job_});
    if (file.ok()) {
      target_file_ = std::move(file).value();
    } else {
      log(options_,
          "this process is not to be found by exporter.discovery: " + file.error().message);
    }
  }

  const ExporterOptions options_;
  const pid_t owner_;
  const internal::JobIdentity job_;
  internal::Endpoints endpoints_;
  std::unique_ptr<internal::HttpServer> server_;
  std::unique_ptr<internal::TargetFile> target_file_;
  std::optional<internal::Maintainer> maintainer_;
};

Result<std::unique_ptr<Exporter>, Status> Exporter::start(
    Pool& pool, const ExporterOptions& options, std::chrono::milliseconds maintain_period) {
  try {
    auto access = internal::Access::create(options.enabled ? options : ExporterOptions());
    if (!access.ok()) return access.error();
    auto impl = std::make_unique<Impl>(pool, options, access.value());
    if (options.enabled) {
      if (auto served = impl->serve(); !served.ok()) return served.error();
    }
    if (maintain_period.count() > 0) impl->maintain(pool, maintain_period);
    return std::unique_ptr<Exporter>(new Exporter(std::move(impl)));
  } catch (const std::exception& error) {
    // No thread or no memory to be had: the service goes on without metrics.
    return Status{Error::out_of_memory, std::string("the exporter cannot start: ") + error.what()};
  }
}

Exporter::Exporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Exporter::~Exporter() {
  if (impl_->is_forked()) {
    // Its threads are the parent's: joining them would wait for ever.
    static_cast<void>(impl_.release());
    return;
  }
  stop();
}

std::uint16_t Exporter::port() const noexcept { return impl_->port(); }

std::string Exporter::url() const {
  if (port() == 0) return "";
  return "http://" + internal::endpoint_text(impl_->address(), port()) + "/";
}

void Exporter::retire() {
  if (!impl_->is_forked()) impl_->retire();
}

void Exporter::stop() {
  if (!impl_->is_forked()) impl_->stop();
}

}  // namespace gpupool
