#include "gpupool/exporter/exporter.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exporter/discovery/port_plan.h"
#include "exporter/discovery/publication.h"
#include "exporter/discovery/target_file.h"
#include "exporter/http/access.h"
#include "exporter/http/endpoints.h"
#include "exporter/http/http_server.h"
#include "exporter/http/maintainer.h"
#include "exporter/http/pool_sources.h"
#include "exporter/http/socket_address.h"
#include "exporter/metrics/identity.h"
#include "exporter/metrics/metric_table.h"
#include "exporter/metrics/page_families.h"
#include "exporter/metrics/samples.h"
#include "exporter/pool_set.h"
#include "exporter/reloading.h"
#include "exporter/textfile_writer.h"

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

constexpr const char* kForked = "this process was forked from the one that is served";
/// Of a thread that has no pool to maintain: it keeps histories and waits for SIGHUP.
constexpr std::chrono::milliseconds kIdlePeriod = internal::ServedPool::kHistoryPeriod;

}  // namespace

class Exporter::Impl {
 public:
  Impl(const ExporterOptions& options, const internal::Access& access)
      : options_(options),
        owner_(getpid()),
        job_(identity_of(options_)),
        with_details_(access.are_details_shown()),
        pools_(kMaxServedPools),
        reloading_(pools_, [this](const std::string& line) { log(options_, line); }),
        endpoints_(directory(), access) {}

  Result<void, Status> serve();
  Result<void, Status> keep_textfile();
  /// With a period of 0 the pools are somebody else's to maintain.
  void maintain(std::chrono::milliseconds period) {
    const bool has_upkeep = period.count() > 0;
    maintainer_.emplace(has_upkeep ? period : kIdlePeriod,
                        [this, has_upkeep] { step(has_upkeep); });
  }

  Result<void, Status> add(Pool& pool, const EventLog* events);
  void remove(const Pool& pool) { pools_.remove(pool); }
  Result<void, Status> watch(Pool& pool, const ThresholdWatchOptions& options,
                             ThresholdWatch::Handler handler);

  void enable_reload(const Config& in_force);
  internal::Reloading& reloading() noexcept { return reloading_; }

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
    reloading_.stop_watching();
    textfile_.reset();  // writes it
    if (server_) server_->stop();
  }

 private:
  internal::PoolDirectory directory();
  std::vector<prometheus::MetricFamily> collect();
  void step(bool has_upkeep) noexcept;

  const ExporterOptions options_;
  const pid_t owner_;
  const internal::JobIdentity job_;
  const bool with_details_;
  internal::PoolSet pools_;
  internal::Reloading reloading_;
  internal::Endpoints endpoints_;
  std::unique_ptr<internal::HttpServer> server_;
  std::unique_ptr<internal::TargetFile> target_file_;
  std::unique_ptr<internal::TextfileWriter> textfile_;
  std::optional<internal::Maintainer> maintainer_;
};

Result<void, Status> Exporter::Impl::serve() {
  const auto plan = internal::plan_ports(options_, job_.local_rank);
  if (!plan.ok()) return plan.error();
  auto server = internal::listen(plan.value(), [this](const internal::HttpRequest& request) {
    return endpoints_.handle(request);
  });
  if (!server.ok()) return server.error();
  server_ = std::move(server).value();
  endpoints_.set_ready(true);
  if (options_.discovery.directory.empty()) return {};
  auto published = internal::publish(options_, job_, port());
  if (published.ok()) {
    target_file_ = std::move(published).value();
  } else {
    // Prometheus has to be told otherwise where this process is: no reason not to serve.
    log(options_,
        "this process is not to be found by exporter.discovery: " + published.error().message);
  }
  return {};
}

Result<void, Status> Exporter::Impl::keep_textfile() {
  auto kept = internal::TextfileWriter::create(
      options_, job_, [this] { return collect(); },
      [this](const std::string& line) { log(options_, line); });
  if (!kept.ok()) return kept.error();
  textfile_ = std::move(kept).value();
  return {};
}

internal::PoolDirectory Exporter::Impl::directory() {
  const auto find = [this](const internal::PoolChoice& choice) {
    const std::shared_ptr<internal::PoolSet::Use> use = pools_.use(choice);
    // Holds the pool for as long as its sources are asked.
    return use == nullptr
               ? nullptr
               : std::shared_ptr<const internal::Sources>(use, &use->pools().front()->sources());
  };
  return {.collect = [this] { return collect(); },
          .find = find,
          .list_json = [this] { return internal::pools_json(pools_.use_all()->pointers()); }};
}

std::vector<prometheus::MetricFamily> Exporter::Impl::collect() {
  auto families = internal::collect_pools(pools_.use_all()->pointers(), job_, with_details_);
  const ReloadState state = reloading_.state();
  families.push_back(internal::make_family(internal::metric_row(internal::kReloadSuccessful),
                                           state.is_successful ? 1.0 : 0.0));
  families.push_back(internal::make_family(internal::metric_row(internal::kReloadTime),
                                           static_cast<double>(state.success_unix_ns) / 1e9));
  return families;
}

Result<void, Status> Exporter::Impl::add(Pool& pool, const EventLog* events) {
  using Added = internal::PoolSet::Added;
  const Added added = pools_.add(std::make_shared<internal::ServedPool>(
      pool, internal::ServedPool::Showing{.job = job_,
                                          .with_details = with_details_,
                                          .with_history = options_.enabled,
                                          .events = events}));
  if (added == Added::added || added == Added::is_there) return {};
  std::uint64_t series = 0;
  for (const auto& family : internal::collect_pools({&pool}, job_, with_details_)) {
    for (const auto& metric : family.metric) series += internal::series_count(family, metric);
  }
  const std::string name =
      "pool " + pool.name() + " of device " + std::to_string(pool.device().ordinal);
  if (added == Added::duplicate) {
    endpoints_.count_dropped({.duplicate = series});
    return Status{Error::invalid_argument,
                  name + " is not shown: the exporter has one of this name and device"};
  }
  endpoints_.count_dropped({.over_limit = series});
  return Status{Error::limit_exceeded, name + " is not shown: an exporter has up to " +
                                           std::to_string(kMaxServedPools) + " pools"};
}

Result<void, Status> Exporter::Impl::watch(Pool& pool, const ThresholdWatchOptions& options,
                                           ThresholdWatch::Handler handler) {
  const auto use = pools_.use(pool);
  if (use == nullptr) {
    return Status{Error::invalid_argument,
                  "pool " + pool.name() + " is not shown by this exporter"};
  }
  use->pools().front()->add_watch(
      std::make_shared<ThresholdWatch>(pool, options, std::move(handler)));
  return {};
}

void Exporter::Impl::enable_reload(const Config& in_force) {
  const bool is_watching = reloading_.enable(in_force, options_.reload_on_sighup);
  if (is_watching && !maintainer_) maintain(std::chrono::milliseconds(0));
}

void Exporter::Impl::step(bool has_upkeep) noexcept {
  try {
    pools_.for_each([has_upkeep](internal::ServedPool& served) { served.step(has_upkeep); });
    reloading_.reload_if_told();
  } catch (const std::exception&) {
    // The host has no memory for a list or a line: the next step is soon.
  }
}

Result<std::unique_ptr<Exporter>, Status> Exporter::start(
    Pool& pool, const ExporterOptions& options, std::chrono::milliseconds maintain_period) {
  try {
    auto access = internal::Access::create(options.enabled ? options : ExporterOptions());
    if (!access.ok()) return access.error();
    auto impl = std::make_unique<Impl>(options, access.value());
    if (auto added = impl->add(pool, options.events); !added.ok()) return added.error();
    if (!options.textfile.empty()) {
      if (auto kept = impl->keep_textfile(); !kept.ok()) return kept.error();
    }
    if (options.enabled) {
      if (auto served = impl->serve(); !served.ok()) return served.error();
    }
    if (maintain_period.count() > 0 || options.enabled) impl->maintain(maintain_period);
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

Result<void, Status> Exporter::add(Pool& pool, const EventLog* events) {
  if (impl_->is_forked()) {
    return Status{Error::not_supported, kForked};
  }
  try {
    return impl_->add(pool, events);
  } catch (const std::exception& error) {
    // The host has no memory for it: the pool works on, and is not shown.
    return Status{Error::out_of_memory, std::string("the pool is not shown: ") + error.what()};
  }
}

void Exporter::remove(Pool& pool) {
  if (!impl_->is_forked()) impl_->remove(pool);
}

Result<void, Status> Exporter::watch(Pool& pool, const ThresholdWatchOptions& options,
                                     ThresholdWatch::Handler handler) {
  if (impl_->is_forked()) {
    return Status{Error::not_supported, kForked};
  }
  return impl_->watch(pool, options, std::move(handler));
}

void Exporter::enable_reload(const Config& in_force) {
  if (!impl_->is_forked()) impl_->enable_reload(in_force);
}

ConfigReloader::Outcome Exporter::reload(const Config& next) {
  if (impl_->is_forked()) return std::vector<ConfigError>{{0, "", kForked}};
  return impl_->reloading().reload(next);
}

ConfigReloader::Outcome Exporter::reload_file(const std::string& path) {
  if (impl_->is_forked()) return std::vector<ConfigError>{{0, "", kForked}};
  return impl_->reloading().reload_file(path);
}

void Exporter::retire() {
  if (!impl_->is_forked()) impl_->retire();
}

void Exporter::stop() {
  if (!impl_->is_forked()) impl_->stop();
}

}  // namespace gpupool
