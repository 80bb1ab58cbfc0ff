// What is answered to whom, without a socket.
#include "exporter/http/endpoints.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "exporter/http/compression.h"
#include "exporter/metrics/samples.h"
#include "tests/exporter/gunzip.h"

namespace gpupool::internal {
namespace {

using testing_support::gunzip;

std::vector<prometheus::MetricFamily> one_family() {
  return {make_family(
      {.name = "gpupool_test_bytes", .kind = MetricKind::gauge, .labels = {}, .help = "A test."},
      12)};
}

Sources good_sources() {
  return {.collect = one_family,
          .stats_json = [] { return std::string("{}\n"); },
          .last_failure_json = [] { return std::string("{\"happened\":false}\n"); }};
}

ExporterOptions bound_to(const std::string& address, bool is_page_public = false) {
  return {.bind = address, .public_page = is_page_public};
}

Access access_by(const ExporterOptions& options) { return Access::create(options).value(); }

HttpResponse ask(Endpoints& endpoints, const std::string& path, const std::string& method = "GET",
                 std::optional<std::string> host = "localhost") {
  return endpoints.handle({.method = method, .path = path, .host = std::move(host)});
}

std::string header(const HttpResponse& response, const std::string& name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return "";
}

TEST(EndpointsTest, MetricsAreTextWithItsVersion) {
  Endpoints endpoints(good_sources(), access_by({}));
  const HttpResponse response = ask(endpoints, "/metrics");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_NE(response.body.find("gpupool_test_bytes 12\n"), std::string::npos) << response.body;
  EXPECT_NE(response.body.find("gpupool_collect_errors_total 0\n"), std::string::npos);
  EXPECT_NE(response.body.find("gpupool_collect_duration_seconds "), std::string::npos);
}

TEST(EndpointsTest, MetricsAreOpenMetricsForWhoPrefersThem) {
  Endpoints endpoints(good_sources(), access_by({}));
  const HttpResponse response =
      endpoints.handle({.method = "GET",
                        .path = "/metrics",
                        .host = "localhost",
                        .accept = "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"});
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
  EXPECT_NE(response.body.find("# TYPE gpupool_collect_errors counter\n"), std::string::npos);
  EXPECT_NE(response.body.find("gpupool_collect_errors_total 0\n"), std::string::npos);
  EXPECT_TRUE(response.body.ends_with("# EOF\n"));
  EXPECT_EQ(header(response, "Vary"), "Accept");
}

TEST(EndpointsTest, LargeAnswersArePackedForWhoAcceptsIt) {
  Sources sources = good_sources();
  std::string json(kMinCompressedBytes, 'x');
  sources.stats_json = [&] { return json; };
  Endpoints endpoints(sources, access_by({}));
  HttpRequest request{
      .method = "GET", .path = "/api/v1/stats", .host = "localhost", .accept_encoding = "gzip"};
  EXPECT_EQ(header(endpoints.handle(request), "Content-Encoding"), "") << "4 kB and less stay";
  json += "y";
  const HttpResponse packed = endpoints.handle(request);
  EXPECT_EQ(header(packed, "Content-Encoding"), "gzip");
  EXPECT_EQ(header(packed, "Vary"), "Accept-Encoding");
  EXPECT_EQ(gunzip(packed.body), json);
  request.method = "HEAD";
  EXPECT_EQ(header(endpoints.handle(request), "Content-Encoding"), "gzip");
  request.accept_encoding = "gzip;q=0";
  const HttpResponse plain = endpoints.handle(request);
  EXPECT_EQ(header(plain, "Content-Encoding"), "");
  EXPECT_EQ(header(plain, "Vary"), "Accept-Encoding");
  EXPECT_EQ(plain.body, json);
}

TEST(EndpointsTest, SeriesThatStandTwiceAreDroppedAndCounted) {
  Sources sources = good_sources();
  sources.collect = [] {
    auto families = one_family();
    families.push_back(families.front());
    return families;
  };
  Endpoints endpoints(sources, access_by({}));
  const std::string page = ask(endpoints, "/metrics").body;
  EXPECT_NE(page.find("gpupool_series_dropped_total{reason=\"duplicate\"} 1\n"), std::string::npos)
      << page;
  EXPECT_NE(page.find("gpupool_series_dropped_total{reason=\"limit\"} 0\n"), std::string::npos);
}

TEST(EndpointsTest, PageAndItsFilesAndTheApi) {
  Endpoints endpoints(good_sources(), access_by({}));
  EXPECT_EQ(ask(endpoints, "/").content_type, "text/html; charset=utf-8");
  EXPECT_EQ(ask(endpoints, "/page.css").content_type, "text/css; charset=utf-8");
  EXPECT_EQ(ask(endpoints, "/page.js").content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(ask(endpoints, "/icon.svg").content_type, "image/svg+xml; charset=utf-8");
  EXPECT_EQ(ask(endpoints, "/api/v1/stats").content_type, "application/json; charset=utf-8");
  const HttpResponse failure = ask(endpoints, "/api/v1/last_failure");
  EXPECT_EQ(failure.content_type, "application/json; charset=utf-8");
  EXPECT_EQ(failure.body, "{\"happened\":false}\n");
}

TEST(EndpointsTest, ThePageHasNoInlineScriptOrStyleAndNoForeignAddress) {
  Endpoints endpoints(good_sources(), access_by({}));
  const std::string html = ask(endpoints, "/").body;
  EXPECT_NE(html.find("<script src=\"/page.js\""), std::string::npos);
  EXPECT_EQ(html.find("<script>"), std::string::npos);
  EXPECT_EQ(html.find("<style"), std::string::npos);
  EXPECT_EQ(html.find(" style="), std::string::npos);
  EXPECT_EQ(html.find(" onclick="), std::string::npos);
  for (const char* path : {"/", "/page.css", "/page.js"}) {
    const std::string body = ask(endpoints, path).body;
    EXPECT_EQ(body.find("https://"), std::string::npos) << path;
    EXPECT_EQ(body.find("//cdn"), std::string::npos) << path;
  }
}

/// Of the plain page, which is embedded where no other can be made.
std::string plain_page_file(const std::string& name) {
  std::ifstream file(std::string(GPUPOOL_SOURCE_DIR "/exporter/page/") + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(EndpointsTest, ThePlainPageCutsNoReasonShortWhereTheScreenIsNarrow) {
  const std::string css = plain_page_file("page.css");
  const std::size_t cut = css.find("\n.row .name { overflow: hidden;");
  const std::size_t whole = css.find("\n.row.is-wide .name { white-space: normal; }");
  ASSERT_NE(cut, std::string::npos);
  ASSERT_NE(whole, std::string::npos);
  EXPECT_GT(whole, cut);
  EXPECT_NE(plain_page_file("page.js").find("'row is-wide'"), std::string::npos);
}

TEST(EndpointsTest, ThePageIsPackedAsItIs) {
  Endpoints endpoints(good_sources(), access_by({}));
  for (const char* path : {"/", "/page.css", "/page.js", "/icon.svg"}) {
    HttpRequest request{.method = "GET", .path = path, .host = "localhost"};
    const std::string plain = endpoints.handle(request).body;
    request.accept_encoding = "gzip";
    const HttpResponse packed = endpoints.handle(request);
    if (plain.size() <= kMinCompressedBytes) {
      EXPECT_EQ(packed.body, plain) << path;
      continue;
    }
    EXPECT_EQ(header(packed, "Content-Encoding"), "gzip") << path;
    EXPECT_EQ(gunzip(packed.body), plain) << path;
  }
}

TEST(EndpointsTest, WhetherARequestWouldFitIsAskedOfThePool) {
  Sources sources = good_sources();
  Endpoints without(sources, access_by({}));
  EXPECT_EQ(ask(without, "/api/v1/would_fit").status, 404);
  sources.would_fit = [](const Query& query) -> Result<Document, std::string> {
    if (query.find("bytes") == nullptr) return std::string("which?");
    return Document{.body = "{\"fit\":\"no\"}\n"};
  };
  Endpoints endpoints(sources, access_by({}));
  HttpRequest request{.method = "GET", .path = "/api/v1/would_fit", .host = "localhost"};
  EXPECT_EQ(endpoints.handle(request).status, 400);
  EXPECT_EQ(endpoints.handle(request).body, "which?\n");
  request.query = "bytes=7&stream=3&pool=a&device=1";
  EXPECT_EQ(endpoints.handle(request).body, "{\"fit\":\"no\"}\n");
  request.query = "size=7";
  EXPECT_EQ(endpoints.handle(request).body,
            "unknown parameter 'size'; known here: pool, device, bytes, stream\n");
  EXPECT_EQ(ask(endpoints, "/api/v1/would_fit", "POST").status, 405);
}

TEST(EndpointsTest, UnknownParametersAreA400ThatNamesThem) {
  Endpoints endpoints(good_sources(), access_by({}));
  HttpRequest request{.method = "GET", .path = "/metrics", .host = "localhost", .query = "name=x"};
  const HttpResponse response = endpoints.handle(request);
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.body, "unknown parameter 'name'; none is known here\n");
  request.path = "/api/v1/history";
  EXPECT_EQ(endpoints.handle(request).body,
            "unknown parameter 'name'; known here: pool, device, since, resolution\n");
  request.path = "/";
  EXPECT_EQ(endpoints.handle(request).status, 200) << "that is for the page's script";
}

TEST(EndpointsTest, WhatAClientHasIsNotSentAgain) {
  Sources sources = good_sources();
  sources.snapshot = [](bool) {
    return Document{.body = std::string(5000, 'x'), .packed_body = "", .version = "17"};
  };
  Endpoints endpoints(sources, access_by({}));
  HttpRequest request{.method = "GET", .path = "/api/v1/snapshot", .host = "localhost"};
  const HttpResponse first = endpoints.handle(request);
  EXPECT_EQ(header(first, "ETag"), "W/\"17\"");
  EXPECT_EQ(header(first, "Cache-Control"), "no-cache");
  for (const char* known : {"W/\"17\"", "\"17\"", "\"16\", W/\"17\"", "*"}) {
    request.if_none_match = known;
    const HttpResponse again = endpoints.handle(request);
    EXPECT_EQ(again.status, 304) << known;
    EXPECT_EQ(again.body, "");
    EXPECT_EQ(header(again, "ETag"), "W/\"17\"");
  }
  for (const char* other : {"", "W/\"1\"", "17", "W/\"18\", \"16\""}) {
    request.if_none_match = other;
    EXPECT_EQ(endpoints.handle(request).status, 200) << other;
  }
  EXPECT_NE(header(ask(endpoints, "/page.js"), "ETag"), header(ask(endpoints, "/"), "ETag"));
  EXPECT_EQ(header(ask(endpoints, "/metrics"), "ETag"), "");
}

TEST(EndpointsTest, EveryAnswerHasTheSecurityHeaders) {
  Endpoints endpoints(good_sources(), access_by({}));
  for (const char* path : {"/", "/metrics", "/api/v1/stats", "/nothing"}) {
    const HttpResponse response = ask(endpoints, path);
    EXPECT_EQ(header(response, "X-Content-Type-Options"), "nosniff") << path;
    EXPECT_EQ(header(response, "Content-Security-Policy").find("default-src 'self'"), 0u) << path;
    EXPECT_EQ(header(response, "Cache-Control"),
              std::string_view(path) == "/" ? "no-cache" : "no-store")
        << path;
  }
}

TEST(EndpointsTest, OnlyWholePathsAreFound) {
  Endpoints endpoints(good_sources(), access_by({}));
  for (const char* path : {"/metricsx", "/metrics/", "/metrics/foo", "/metric", "", "//metrics",
                           "/-/", "/-/healthy/x", "/api/v1/stats2", "/api/v1/", "/index.html"}) {
    const HttpResponse response = ask(endpoints, path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_NE(response.body.find("/metrics              metrics for Prometheus"),
              std::string::npos);
  }
}

TEST(EndpointsTest, OnlyGetAndHead) {
  Endpoints endpoints(good_sources(), access_by({}));
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get", ""}) {
    const HttpResponse response = ask(endpoints, "/metrics", method);
    EXPECT_EQ(response.status, 405) << method;
    EXPECT_EQ(header(response, "Allow"), "GET, HEAD") << method;
  }
  EXPECT_EQ(ask(endpoints, "/metrics", "HEAD").status, 200);
}

TEST(EndpointsTest, ReadyFollowsTheFlagAndHealthyDoesNot) {
  Endpoints endpoints(good_sources(), access_by({}));
  EXPECT_EQ(ask(endpoints, "/-/ready").status, 503);
  EXPECT_EQ(ask(endpoints, "/-/healthy").status, 200);
  endpoints.set_ready(true);
  EXPECT_EQ(ask(endpoints, "/-/ready").status, 200);
}

TEST(EndpointsTest, OnLoopbackTheHostMustBeThisMachine) {
  Endpoints endpoints(good_sources(), access_by(bound_to("127.0.0.1")));
  for (const char* host : {"localhost", "LocalHost:10064", "127.0.0.1", "127.0.0.1:8000",
                           "127.1.2.3", "[::1]", "[::1]:10064"}) {
    EXPECT_EQ(ask(endpoints, "/metrics", "GET", host).status, 200) << host;
  }
  EXPECT_EQ(ask(endpoints, "/metrics", "GET", std::nullopt).status, 200);
  for (const char* host : {"evil.example", "localhost.evil.example", "10.0.0.1", "", "[", "[]",
                           "127.0.0.1.evil.example", "::1", "notlocalh"}) {
    EXPECT_EQ(ask(endpoints, "/metrics", "GET", host).status, 403) << host;
    EXPECT_EQ(ask(endpoints, "/", "GET", host).status, 403) << host;
  }
}

TEST(EndpointsTest, BeyondLoopbackPageAndApiAreOffUnlessAskedFor) {
  for (const char* address : {"0.0.0.0", "10.1.2.3", "::"}) {
    Endpoints closed(good_sources(), access_by(bound_to(address)));
    EXPECT_EQ(ask(closed, "/metrics", "GET", "node7:10064").status, 200) << address;
    EXPECT_EQ(ask(closed, "/-/healthy", "GET", "node7:10064").status, 200) << address;
    for (const char* path : {"/", "/page.js", "/api/v1/stats"}) {
      EXPECT_EQ(ask(closed, path, "GET", "node7:10064").status, 403) << address << path;
    }
    Endpoints open(good_sources(), access_by(bound_to(address, true)));
    EXPECT_EQ(ask(open, "/", "GET", "node7:10064").status, 200) << address;
  }
}

TEST(EndpointsTest, AThrowingSourceIsA500AndIsCounted) {
  int calls = 0;
  Sources sources = good_sources();
  sources.collect = [&]() -> std::vector<prometheus::MetricFamily> {
    ++calls;
    if (calls == 1) throw std::runtime_error("broken on purpose");
    if (calls == 2) throw 7;
    return one_family();
  };
  Endpoints endpoints(sources, access_by({}));
  const HttpResponse broken = ask(endpoints, "/metrics");
  EXPECT_EQ(broken.status, 500);
  EXPECT_NE(broken.body.find("broken on purpose"), std::string::npos);
  EXPECT_EQ(ask(endpoints, "/metrics").status, 500);
  const HttpResponse next = ask(endpoints, "/metrics");
  EXPECT_EQ(next.status, 200);
  EXPECT_NE(next.body.find("gpupool_collect_errors_total 2\n"), std::string::npos) << next.body;
}

}  // namespace
}  // namespace gpupool::internal
