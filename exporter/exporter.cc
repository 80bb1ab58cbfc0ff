#include "gpupool/exporter/exporter.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <optional>
#include <utility>

#include "exporter/http/access.h"
#include "exporter/http/endpoints.h"
#include "exporter/http/http_server.h"
#include "exporter/http/maintainer.h"
#include "exporter/http/pool_sources.h"
#include "exporter/http/socket_address.h"
#include "exporter/metrics/history.h"
#include "exporter/metrics/textfile.h"

namespace gpupool {
namespace {

// Twice as often as the history has rows, so that none is missed.
constexpr std::chrono::milliseconds kHistoryPeriod{500};

}  // namespace

class Exporter::Impl {
 public:
  Impl(Pool& pool, const ExporterOptions& options, const internal::Access& access)
      : options_(options),
        owner_(getpid()),
        endpoints_(
            internal::pool_sources(pool, access.are_details_shown(), &history_, options.events),
            access) {}

  Result<void, Status> serve() {
    auto server = internal::HttpServer::start(
        {.address = options_.bind, .port = options_.port, .port_count = options_.port_count},
        [this](const internal::HttpRequest& request) { return endpoints_.handle(request); });
    if (!server.ok()) return server.error();
    server_ = std::move(server).value();
    endpoints_.set_ready(true);
    return {};
  }

  /// With a period of 0 the pool is somebody else's to maintain, and only the history is kept.
  void maintain(Pool& pool, std::chrono::milliseconds period) {
    const bool has_upkeep = period.count() > 0;
    maintainer_.emplace(has_upkeep ? period : kHistoryPeriod, [this, &pool, has_upkeep] {
      if (has_upkeep) pool.maintain();
      if (options_.enabled) keep_history(pool);
    });
  }

  Result<void, Status> keep_textfile(const Pool& pool, bool with_details) {
    textfile_.emplace(options_.textfile, internal::pool_sources(pool, with_details).collect);
    if (auto checked = textfile_->check(); !checked.ok()) return checked;
    if (options_.textfile_every_ns > 0) {
      const std::chrono::nanoseconds period(options_.textfile_every_ns);
      // A thread of its own, as the disk may be slow, and a network's never answer.
      textfile_writer_.emplace(std::chrono::ceil<std::chrono::milliseconds>(period),
                               [this] { write_textfile(); });
    }
    return {};
  }

  bool is_forked() const noexcept { return getpid() != owner_; }
  std::uint16_t port() const noexcept { return server_ ? server_->port() : 0; }
  const std::string& address() const noexcept { return options_.bind; }

  void stop() {
    endpoints_.set_ready(false);
    maintainer_.reset();
    textfile_writer_.reset();
    if (textfile_) write_textfile();
    textfile_.reset();
    if (server_) server_->stop();
  }

 private:
  void write_textfile() {
    const auto written = textfile_->write();
    if (written.ok() || has_complained_) return;
    has_complained_ = true;
    std::fprintf(stderr, "gpupool: %s\n", written.error().message.c_str());
  }

  void keep_history(const Pool& pool) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_sample_) return;
    next_sample_ = now + kHistoryPeriod;
    history_.add(pool.stats());
  }

  const ExporterOptions options_;
  const pid_t owner_;
  internal::History history_;
  std::chrono::steady_clock::time_point next_sample_;  // of the maintaining thread alone
  internal::Endpoints endpoints_;
  std::unique_ptr<internal::HttpServer> server_;
  std::optional<internal::Textfile> textfile_;
  bool has_complained_ = false;
  std::optional<internal::Maintainer> maintainer_;
  std::optional<internal::Maintainer> textfile_writer_;
};

Result<std::unique_ptr<Exporter>, Status> Exporter::start(
    Pool& pool, const ExporterOptions& options, std::chrono::milliseconds maintain_period) {
  try {
    auto access = internal::Access::create(options.enabled ? options : ExporterOptions());
    if (!access.ok()) return access.error();
    auto impl = std::make_unique<Impl>(pool, options, access.value());
    if (!options.textfile.empty()) {
      auto kept = impl->keep_textfile(pool, access.value().are_details_shown());
      if (!kept.ok()) return kept.error();
    }
    if (options.enabled) {
      if (auto served = impl->serve(); !served.ok()) return served.error();
    }
    if (maintain_period.count() > 0 || options.enabled) impl->maintain(pool, maintain_period);
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

void Exporter::stop() {
  if (!impl_->is_forked()) impl_->stop();
}

}  // namespace gpupool
