#include "tools/serve/recorded_endpoints.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/http/json_writer.h"
#include "exporter/http/transfer.h"

namespace gpupool::tools {

using internal::HttpRequest;
using internal::HttpResponse;
using internal::Query;
using internal::text_response;

namespace {

constexpr const char* kPaths =
    "/                     the page\n"
    "/api/v1/recording     what was recorded, and where to look in it, as JSON\n"
    "/api/v1/history       the numbers of the whole job, as JSON\n"
    "/api/v1/stats         the numbers at the place ?at=N, as JSON\n"
    "/api/v1/snapshot      every block there, as JSON\n"
    "/api/v1/would_fit     whether a request of ?bytes=N would be served there, as JSON\n"
    "/api/v1/events        the last events before it, as JSON\n"
    "/api/v1/last_failure  why a request failed last before it, as JSON\n"
    "/api/v1/pools         the pool that is shown, as JSON\n"
    "/-/healthy            whether this process serves\n";

}  // namespace

struct RecordedEndpoints::Route {
  std::string_view path;
  RecordedSource RecordedSources::*source = nullptr;
  bool has_place = true;
  std::vector<std::string_view> parameters = {};
};

HttpResponse RecordedEndpoints::handle(const HttpRequest& request) const {
  HttpResponse response = route(request);
  internal::add_common_headers(response);
  internal::prepare_transfer(request, response);
  return response;
}

HttpResponse RecordedEndpoints::route(const HttpRequest& request) const {
  static const Route kRoutes[] = {
      {.path = "/api/v1/recording", .source = &RecordedSources::recording, .has_place = false},
      {.path = "/api/v1/history", .source = &RecordedSources::history, .has_place = false},
      {.path = "/api/v1/stats", .source = &RecordedSources::stats},
      {.path = "/api/v1/snapshot", .source = &RecordedSources::snapshot},
      {.path = "/api/v1/would_fit",
       .source = &RecordedSources::would_fit,
       .parameters = {"bytes", "stream"}},
      {.path = "/api/v1/events", .source = &RecordedSources::events, .parameters = {"since"}},
      {.path = "/api/v1/last_failure", .source = &RecordedSources::last_failure},
  };
  const bool is_health_check = request.path == "/-/healthy";
  if (auto refused = access_.refusal(request, is_health_check)) return *std::move(refused);
  const internal::PageAsset* const asset = internal::find_asset(request.path);
  const auto* const found = std::ranges::find(kRoutes, request.path, &Route::path);
  const bool is_list = request.path == "/api/v1/pools";
  if (!is_health_check && !is_list && asset == nullptr && found == std::end(kRoutes)) {
    return text_response(404, std::string("not found; there are\n\n") + kPaths);
  }
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse response = text_response(405, "only GET and HEAD\n");
    response.headers.emplace_back("Allow", "GET, HEAD");
    return response;
  }
  if (asset != nullptr) return internal::asset_response(*asset);
  if (is_health_check) return text_response(200, "healthy\n");
  if (is_list) return internal::json_response(pools_json());
  return answer(*found, request);
}

HttpResponse RecordedEndpoints::answer(const Route& route, const HttpRequest& request) const {
  std::vector<std::string_view> known = route.parameters;
  known.insert(known.end(), {"pool", "device"});
  if (route.has_place && sources_.has_places) known.emplace_back("at");
  const auto query = Query::parse(request.query, known);
  if (!query.ok()) return text_response(400, query.error() + "\n");
  const std::string* const pool = query.value().find("pool");
  const auto device = query.value().number("device", static_cast<std::uint64_t>(sources_.device));
  if (!device.ok()) return text_response(400, device.error() + "\n");
  if ((pool != nullptr && *pool != sources_.pool) ||
      device.value() != static_cast<std::uint64_t>(sources_.device)) {
    return text_response(404, "there is no such pool; /api/v1/pools has the one that there is\n");
  }
  const RecordedSource& source = sources_.*route.source;
  if (!source) return text_response(404, "the recording has nothing of this kind\n");
  try {
    auto document = source(query.value());
    if (!document.ok()) return text_response(400, document.error() + "\n");
    return internal::json_response(std::move(document).value());
  } catch (const std::exception& error) {
    // Memory of the host ran out; who asks is told, and may ask for less.
    return text_response(500, std::string("not answered: ") + error.what() + "\n");
  }
}

std::string RecordedEndpoints::pools_json() const {
  internal::JsonWriter json;
  json.begin_object();
  json.begin_array("pools");
  json.begin_object();
  json.field("pool", sources_.pool);
  json.field("device", sources_.device);
  json.end_object();
  json.end_array();
  json.field("recording", sources_.kind);
  json.end_object();
  return json.take() + "\n";
}

}  // namespace gpupool::tools
