// What is served: exact paths, GET and HEAD only, nothing that changes anything.
//
//   /metrics              for Prometheus, text format 0.0.4 or OpenMetrics 1.0, as Accept says
//   /-/healthy            200 while the process serves;  /-/ready  200 between start and stop
//   /api/v1/pools         the names and devices of the pools, as JSON
//   /api/v1/stats         a pool's numbers as JSON, for scripts and the page
//   /api/v1/would_fit     whether a request would be served now, and how, as JSON
//   /api/v1/snapshot      every block, as JSON
//   /api/v1/history       the numbers of the last 15 minutes and 24 hours, as JSON
//   /api/v1/events        the last events of the slow path, as JSON
//   /api/v1/last_failure  why the last request that failed did, as JSON
//   /  /page.css ...      the page for people
//
// Where there are several pools, ?pool=NAME and ?device=N say which one the API is asked about; the
// first that fits answers, of all where neither is said. /metrics has them all.
// To whom: access.h; beyond loopback the page and the API answer 403 unless they are asked for, as
// they show what a job is doing. Parameters that a path does not know are a 400 that says so.
// Answers of more than 4 kB are packed for who accepts gzip; what a client has already (ETag) is
// not sent again.
// Thread safety: handle() may be called from any thread. Cost: that of the sources.
#ifndef GPUPOOL_EXPORTER_HTTP_ENDPOINTS_H_
#define GPUPOOL_EXPORTER_HTTP_ENDPOINTS_H_

#include <prometheus/metric_family.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/http/access.h"
#include "exporter/http/http_message.h"
#include "exporter/http/query.h"
#include "exporter/http/responses.h"
#include "exporter/metrics/page_families.h"

namespace gpupool::internal {

/// Where the answers about one pool come from; each may throw, which becomes a 500 and is counted.
/// One that is not there is a 404.
struct Sources {
  std::function<std::vector<prometheus::MetricFamily>()> collect;
  std::function<std::string()> stats_json;
  std::function<std::string()> last_failure_json;
  /// The error is what is wrong with the query.
  std::function<Result<Document, std::string>(const Query&)> would_fit;
  std::function<Document(bool is_gzip_accepted)> snapshot;
  /// The error is what is wrong with the query.
  std::function<Result<Document, std::string>(const Query&)> history;
  std::function<Result<Document, std::string>(const Query&)> events;
};

/// Which pool is meant.
struct PoolChoice {
  std::optional<std::string> name;
  std::optional<std::uint64_t> device;
};

/// The pools that are shown; they may come and go.
struct PoolDirectory {
  /// Of all of them, and of the process.
  std::function<std::vector<prometheus::MetricFamily>()> collect;
  /// nullptr where there is no such pool. A pool does not go while this is held.
  std::function<std::shared_ptr<const Sources>(const PoolChoice&)> find;
  std::function<std::string()> list_json;
};

class Endpoints {
 public:
  Endpoints(PoolDirectory pools, Access access);
  /// For one pool that stays.
  Endpoints(Sources sources, Access access);

  HttpResponse handle(const HttpRequest& request);
  /// Series of a pool that is not shown.
  void count_dropped(const DroppedSeries& dropped) noexcept;
  void set_ready(bool is_ready) noexcept { is_ready_ = is_ready; }

 private:
  struct Route;
  static const Route* find_route(std::string_view path);

  HttpResponse route(const HttpRequest& request);
  HttpResponse guarded(const std::function<HttpResponse()>& answer);
  HttpResponse metrics(const HttpRequest& request, const Query& query);
  HttpResponse healthy(const HttpRequest& request, const Query& query);
  HttpResponse ready(const HttpRequest& request, const Query& query);
  HttpResponse list(const HttpRequest& request, const Query& query);
  HttpResponse answer_for_pool(const Route& route, const HttpRequest& request,
                               const Query& query) const;
  std::vector<prometheus::MetricFamily> collect_page();

  const PoolDirectory pools_;
  const Access access_;
  std::atomic<bool> is_ready_{false};
  std::atomic<std::uint64_t> collect_errors_{0};
  std::atomic<std::uint64_t> dropped_duplicates_{0};
  std::atomic<std::uint64_t> dropped_over_limit_{0};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_ENDPOINTS_H_
