#include "exporter/http/endpoints.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "exporter/http/compression.h"
#include "exporter/http/host_name.h"
#include "exporter/http/negotiation.h"
#include "exporter/http/socket_address.h"
#include "exporter/metrics/metric_table.h"
#include "exporter/metrics/openmetrics.h"
#include "exporter/metrics/page_families.h"
#include "exporter/metrics/samples.h"
#include "exporter/page/page_assets.h"

namespace gpupool::internal {
namespace {

constexpr const char* kPaths =
    "/                     live page\n"
    "/metrics              metrics for Prometheus\n"
    "/api/v1/stats         the same numbers as JSON\n"
    "/api/v1/last_failure  why a request failed last, as JSON\n"
    "/-/healthy            whether this process serves\n"
    "/-/ready              whether it is ready to be scraped\n";

HttpResponse text_response(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

void add_common_headers(HttpResponse& response) {
  response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.headers.emplace_back(
      "Content-Security-Policy",
      "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  response.headers.emplace_back("Referrer-Policy", "no-referrer");
  response.headers.emplace_back("Cache-Control", "no-store");
}

/// Also for HEAD, whose headers are those of GET.
void pack(const HttpRequest& request, HttpResponse& response) {
  if (response.body.size() <= kMinCompressedBytes) return;
  response.headers.emplace_back("Vary", "Accept-Encoding");
  if (!is_gzip_accepted(request.accept_encoding)) return;
  auto packed = gzip(response.body);
  if (!packed) return;
  response.body = *std::move(packed);
  response.headers.emplace_back("Content-Encoding", "gzip");
}

const PageAsset* find_asset(std::string_view path) {
  const auto assets = page_assets();
  const auto asset = std::ranges::find(assets, path, &PageAsset::path);
  return asset == assets.end() ? nullptr : &*asset;
}

bool is_loopback_address(const std::string& text) {
  const auto address = parse_address(text, 0);
  return address && address->is_loopback();
}

}  // namespace

Endpoints::Endpoints(Sources sources, AccessRules rules)
    : sources_(std::move(sources)),
      rules_(std::move(rules)),
      is_loopback_(is_loopback_address(rules_.bound_address)) {}

bool Endpoints::is_host_allowed(const HttpRequest& request) const {
  // Browsers always send Host; what does not is no browser.
  if (!is_loopback_ || !request.host) return true;
  const std::string_view host = without_port(*request.host);
  return host == rules_.bound_address || is_this_machine(host);
}

HttpResponse Endpoints::handle(const HttpRequest& request) {
  HttpResponse response = route(request);
  add_common_headers(response);
  pack(request, response);
  return response;
}

HttpResponse Endpoints::route(const HttpRequest& request) {
  if (!is_host_allowed(request)) {
    return text_response(403, "this address is served to this machine only\n");
  }
  const std::string& path = request.path;
  const PageAsset* const asset = find_asset(path);
  const bool is_last_failure = path == "/api/v1/last_failure";
  const bool is_api = path == "/api/v1/stats" || is_last_failure;
  if (asset == nullptr && !is_api && path != "/metrics" && path != "/-/healthy" &&
      path != "/-/ready") {
    return text_response(404, std::string("not found; there are\n\n") + kPaths);
  }
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse response = text_response(405, "only GET and HEAD\n");
    response.headers.emplace_back("Allow", "GET, HEAD");
    return response;
  }
  if ((asset != nullptr || is_api) && !is_loopback_ && !rules_.is_page_public) {
    return text_response(403,
                         "the page and the API are not served beyond loopback;"
                         " `exporter.public_page: true` allows it\n");
  }
  if (asset != nullptr) {
    return {.status = 200,
            .content_type = std::string(asset->content_type),
            .body = std::string(asset->body)};
  }
  if (is_last_failure) return guarded([this] { return json(sources_.last_failure_json); });
  if (is_api) return guarded([this] { return json(sources_.stats_json); });
  if (path == "/metrics") return guarded([&] { return metrics(request); });
  if (path == "/-/healthy") return text_response(200, "healthy\n");
  return is_ready_ ? text_response(200, "ready\n") : text_response(503, "not ready\n");
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
  auto families = page_families(sources_.collect(), kMaxSeriesOfAPage, dropped);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  dropped_duplicates_ += dropped.duplicate;
  dropped_over_limit_ += dropped.over_limit;
  families.push_back(make_family(metric_row(kCollectDuration), taken.count()));
  families.push_back(make_family(metric_row(kCollectErrors), static_cast<double>(collect_errors_)));
  families.push_back(make_family(metric_row(kSeriesDropped),
                                 {{"duplicate", static_cast<double>(dropped_duplicates_)},
                                  {"limit", static_cast<double>(dropped_over_limit_)}}));
  return families;
}

HttpResponse Endpoints::metrics(const HttpRequest& request) {
  const MetricsFormat format = choose_metrics_format(request.accept);
  const auto families = collect_page();
  return {.status = 200,
          .content_type = content_type_of(format),
          .body = format == MetricsFormat::text ? prometheus::TextSerializer().Serialize(families)
                                                : openmetrics_text(families),
          .headers = {{"Vary", "Accept"}}};
}

HttpResponse Endpoints::json(const std::function<std::string()>& source) {
  return {.status = 200, .content_type = "application/json; charset=utf-8", .body = source()};
}

}  // namespace gpupool::internal
