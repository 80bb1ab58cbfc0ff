// What is served, and to whom: exact paths, GET and HEAD only, nothing that changes anything.
//
//   /metrics            for Prometheus, text format 0.0.4 or OpenMetrics 1.0, as Accept says
//   /-/healthy          200 while the process serves;  /-/ready  200 between start and stop
//   /api/v1/stats       the snapshot as JSON, for scripts and the page
//   /api/v1/last_failure  why the last request that failed did, as JSON
//   /  /page.css ...    the page for people
//
// Bound to loopback, a request must name this machine in Host, or a web site could read everything
// through a visitor's browser by pointing its own name here. Bound beyond, the page and the API
// answer 403 unless `is_page_public`: they show what a job is doing.
// Answers of more than 4 kB are packed for who accepts gzip.
// Thread safety: handle() may be called from any thread. Cost: that of the two sources.
#ifndef GPUPOOL_EXPORTER_HTTP_ENDPOINTS_H_
#define GPUPOOL_EXPORTER_HTTP_ENDPOINTS_H_

#include <prometheus/metric_family.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/http/http_message.h"

namespace gpupool::internal {

/// Where the numbers come from; each may throw, which becomes a 500 and is counted.
struct Sources {
  std::function<std::vector<prometheus::MetricFamily>()> collect;
  std::function<std::string()> stats_json;
  std::function<std::string()> last_failure_json;
};

struct AccessRules {
  std::string bound_address = "127.0.0.1";
  bool is_page_public = false;
};

class Endpoints {
 public:
  Endpoints(Sources sources, AccessRules rules);

  HttpResponse handle(const HttpRequest& request);
  void set_ready(bool is_ready) noexcept { is_ready_ = is_ready; }

 private:
  HttpResponse route(const HttpRequest& request);
  HttpResponse guarded(const std::function<HttpResponse()>& answer);
  HttpResponse metrics(const HttpRequest& request);
  std::vector<prometheus::MetricFamily> collect_page();
  HttpResponse json(const std::function<std::string()>& source);
  bool is_host_allowed(const HttpRequest& request) const;

  const Sources sources_;
  const AccessRules rules_;
  const bool is_loopback_;
  std::atomic<bool> is_ready_{false};
  std::atomic<std::uint64_t> collect_errors_{0};
  std::atomic<std::uint64_t> dropped_duplicates_{0};
  std::atomic<std::uint64_t> dropped_over_limit_{0};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_ENDPOINTS_H_
