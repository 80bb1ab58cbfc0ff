#include "exporter/http/endpoints.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <span>
#include <utility>

#include "exporter/http/negotiation.h"
#include "exporter/http/responses.h"
#include "exporter/http/transfer.h"
#include "exporter/metrics/metric_table.h"
#include "exporter/metrics/openmetrics.h"
#include "exporter/metrics/page_families.h"
#include "exporter/metrics/samples.h"

namespace gpupool::internal {
namespace {

constexpr const char* kPaths =
    "/                     live page\n"
    "/metrics              metrics for Prometheus\n"
    "/api/v1/pools         the pools of this process: names and devices, as JSON\n"
    "/api/v1/stats         the same numbers as JSON\n"
    "/api/v1/would_fit     whether a request of ?bytes=N would be served now, and how, as JSON\n"
    "/api/v1/snapshot      every block, as JSON\n"
    "/api/v1/history       the numbers of the last 15 minutes and 24 hours, as JSON\n"
    "/api/v1/events        the last events of the slow path, as JSON\n"
    "/api/v1/last_failure  why a request failed last, as JSON\n"
    "/-/healthy            whether this process serves\n"
    "/-/ready              whether it is ready to be scraped\n";

// What is asked of one pool.

HttpResponse stats(const Sources& sources, const HttpRequest&, const Query&) {
  return json_response(sources.stats_json());
}

HttpResponse last_failure(const Sources& sources, const HttpRequest&, const Query&) {
  return json_response(sources.last_failure_json());
}

HttpResponse would_fit(const Sources& sources, const HttpRequest&, const Query& query) {
  if (!sources.would_fit) return text_response(404, "no pool is asked here\n");
  auto document = sources.would_fit(query);
  if (!document.ok()) return text_response(400, document.error() + "\n");
  return json_response(std::move(document).value());
}

HttpResponse snapshot(const Sources& sources, const HttpRequest& request, const Query&) {
  if (!sources.snapshot) return text_response(404, "no snapshot is taken here\n");
  return json_response(sources.snapshot(is_gzip_accepted(request.accept_encoding)));
}

HttpResponse history(const Sources& sources, const HttpRequest&, const Query& query) {
  if (!sources.history) return text_response(404, "no history is kept here\n");
  auto document = sources.history(query);
  if (!document.ok()) return text_response(400, document.error() + "\n");
  return json_response(std::move(document).value());
}

HttpResponse events(const Sources& sources, const HttpRequest&, const Query& query) {
  if (!sources.events) {
    return text_response(404, "no events are kept here: the pool was made without an EventLog\n");
  }
  auto document = sources.events(query);
  if (!document.ok()) return text_response(400, document.error() + "\n");
  return json_response(std::move(document).value());
}

}  // namespace

struct Endpoints::Route {
  std::string_view path;
  HttpResponse (Endpoints::*answer)(const HttpRequest&, const Query&) = nullptr;
  // Instead of that, for what is asked of one pool.
  HttpResponse (*pool_answer)(const Sources&, const HttpRequest&, const Query&) = nullptr;
  bool is_api = true;
  bool is_health_check = false;
  std::span<const std::string_view> parameters;
};

const Endpoints::Route* Endpoints::find_route(std::string_view path) {
  static constexpr std::string_view kPoolParameters[] = {"pool", "device"};
  static constexpr std::string_view kFitParameters[] = {"pool", "device", "bytes", "stream"};
  static constexpr std::string_view kHistoryParameters[] = {"pool", "device", "since",
                                                            "resolution"};
  static constexpr std::string_view kEventsParameters[] = {"pool", "device", "since"};
  static constexpr Route kRoutes[] = {
      {.path = "/metrics", .answer = &Endpoints::metrics, .is_api = false},
      {.path = "/-/healthy",
       .answer = &Endpoints::healthy,
       .is_api = false,
       .is_health_check = true},
      {.path = "/-/ready", .answer = &Endpoints::ready, .is_api = false, .is_health_check = true},
      {.path = "/api/v1/pools", .answer = &Endpoints::list},
      {.path = "/api/v1/stats", .pool_answer = stats, .parameters = kPoolParameters},
      {.path = "/api/v1/last_failure", .pool_answer = last_failure, .parameters = kPoolParameters},
      {.path = "/api/v1/would_fit", .pool_answer = would_fit, .parameters = kFitParameters},
      {.path = "/api/v1/snapshot", .pool_answer = snapshot, .parameters = kPoolParameters},
      {.path = "/api/v1/history", .pool_answer = history, .parameters = kHistoryParameters},
      {.path = "/api/v1/events", .pool_answer = events, .parameters = kEventsParameters},
  };
  const auto* const found = std::ranges::find(kRoutes, path, &Route::path);
  return found == std::end(kRoutes) ? nullptr : found;
}

Endpoints::Endpoints(PoolDirectory pools, Access access)
    : pools_(std::move(pools)), access_(std::move(access)) {}

Endpoints::Endpoints(Sources sources, Access access)
    : Endpoints(PoolDirectory{.collect = sources.collect,
                              .find = [only = std::make_shared<const Sources>(sources)](
                                          const PoolChoice&) { return only; },
                              .list_json = nullptr},
                std::move(access)) {}

HttpResponse Endpoints::handle(const HttpRequest& request) {
  HttpResponse response = route(request);
  add_common_headers(response);
  prepare_transfer(request, response);
  return response;
}

HttpResponse Endpoints::route(const HttpRequest& request) {
  // RFC 9112, 3.2: a proxy in front may have looked at another of them than is looked at here.
  if (request.has_several_hosts) return text_response(400, "more than one Host\n");
  const Route* const route = find_route(request.path);
  if (auto refused = access_.refusal(request, route != nullptr && route->is_health_check)) {
    return *std::move(refused);
  }
  const PageAsset* const asset = route == nullptr ? find_asset(request.path) : nullptr;
  if (asset == nullptr && route == nullptr) {
    return text_response(404, std::string("not found; there are\n\n") + kPaths);
  }
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse response = text_response(405, "only GET and HEAD\n");
    response.headers.emplace_back("Allow", "GET, HEAD");
    return response;
  }
  if ((asset != nullptr || route->is_api) && !access_.is_page_served()) {
    return text_response(403,
                         "the page and the API are not served beyond loopback;"
                         " `exporter.public_page: true` allows it\n");
  }
  // What stands behind the page's question mark is for its script.
  if (asset != nullptr) return asset_response(*asset);
  const auto query = Query::parse(request.query, route->parameters);
  if (!query.ok()) return text_response(400, query.error() + "\n");
  if (route->pool_answer != nullptr) {
    return guarded([&] { return answer_for_pool(*route, request, query.value()); });
  }
  return guarded([&] { return (this->*route->answer)(request, query.value()); });
}

HttpResponse Endpoints::answer_for_pool(const Route& route, const HttpRequest& request,
                                        const Query& query) const {
  PoolChoice choice;
  if (const std::string* name = query.find("pool")) choice.name = *name;
  if (query.find("device") != nullptr) {
    const auto device = query.number("device", 0);
    if (!device.ok()) return text_response(400, device.error() + "\n");
    choice.device = device.value();
  }
  const std::shared_ptr<const Sources> sources = pools_.find(choice);
  if (sources == nullptr) {
    return text_response(404, "there is no such pool; /api/v1/pools has those that there are\n");
  }
  return route.pool_answer(*sources, request, query);
}

void Endpoints::count_dropped(const DroppedSeries& dropped) noexcept {
  dropped_duplicates_ += dropped.duplicate;
  dropped_over_limit_ += dropped.over_limit;
}

HttpResponse Endpoints::guarded(const std::function<HttpResponse()>& answer) {
  std::string what = "unknown";
  try {
    return answer();
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
    // Counted and answered like the others; there is nothing to say of it.
  }
  ++collect_errors_;
  return text_response(500, "collecting failed: " + what + "\n");
}

std::vector<prometheus::MetricFamily> Endpoints::collect_page() {
  const auto start = std::chrono::steady_clock::now();
  DroppedSeries dropped;
  auto families = page_families(pools_.collect(), kMaxSeriesOfAPage, dropped);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  count_dropped(dropped);
  families.push_back(make_family(metric_row(kCollectDuration), taken.count()));
  families.push_back(make_family(metric_row(kCollectErrors), static_cast<double>(collect_errors_)));
  families.push_back(make_family(metric_row(kSeriesDropped),
                                 {{"duplicate", static_cast<double>(dropped_duplicates_)},
                                  {"limit", static_cast<double>(dropped_over_limit_)}}));
  return families;
}

HttpResponse Endpoints::metrics(const HttpRequest& request, const Query&) {
  const MetricsFormat format = choose_metrics_format(request.accept);
  const auto families = collect_page();
  return {.status = 200,
          .content_type = content_type_of(format),
          .body = format == MetricsFormat::text ? prometheus::TextSerializer().Serialize(families)
                                                : openmetrics_text(families),
          .headers = {{"Vary", "Accept"}}};
}

HttpResponse Endpoints::healthy(const HttpRequest&, const Query&) {
  return text_response(200, "healthy\n");
}

HttpResponse Endpoints::ready(const HttpRequest&, const Query&) {
  return is_ready_ ? text_response(200, "ready\n") : text_response(503, "not ready\n");
}

HttpResponse Endpoints::list(const HttpRequest&, const Query&) {
  if (!pools_.list_json) return text_response(404, "no list of pools is kept here\n");
  return json_response(pools_.list_json());
}

}  // namespace gpupool::internal
