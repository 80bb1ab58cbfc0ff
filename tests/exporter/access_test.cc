// Who is answered: by network, by the name asked for, by user and password.
#include "exporter/http/access.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "exporter/http/endpoints.h"

namespace gpupool::internal {
namespace {

constexpr const char* kAnywhere = "0.0.0.0";

HttpRequest get(const std::string& path) {
  return {.method = "GET", .path = path, .host = "localhost", .client = "127.0.0.1"};
}

int status_of(const ExporterOptions& options, const HttpRequest& request) {
  const bool is_health_check = request.path.starts_with("/-/");
  const auto refused = Access::create(options).value().refusal(request, is_health_check);
  return refused ? refused->status : 200;
}

std::string error_of(const ExporterOptions& options) {
  const auto access = Access::create(options);
  return access.ok() ? "" : access.error().message;
}

// Networks.

int status_from(const std::string& client, std::vector<std::string> networks) {
  HttpRequest request = get("/metrics");
  request.client = client;
  return status_of({.bind = kAnywhere, .allow_networks = std::move(networks)}, request);
}

TEST(NetworkTest, OnlyThoseThatAreNamedAreAnswered) {
  for (const char* client : {"10.1.2.3", "10.255.255.255", "192.168.7.9", "fd00::17",
                             "::ffff:10.1.2.3", "fe80::1%eth0", "127.0.0.1", "127.9.9.9", "::1"}) {
    EXPECT_EQ(status_from(client, {"10.0.0.0/8", "192.168.7.9", "fd00::/8", "fe80::/10"}), 200)
        << client;
  }
  for (const char* client : {"11.1.2.3", "192.168.7.8", "fc00::1", "2001:db8::1", "::ffff:11.0.0.1",
                             "", "x", "10.1.2.3.4", "::10.1.2.3"}) {
    EXPECT_EQ(status_from(client, {"10.0.0.0/8", "192.168.7.9", "fd00::/8", "fe80::/10"}), 403)
        << client;
  }
  EXPECT_EQ(status_from("203.0.113.9", {}), 200) << "nothing named: everybody";
  EXPECT_EQ(status_from("203.0.113.9", {"0.0.0.0/0"}), 200);
  EXPECT_EQ(status_from("2001:db8::1", {"0.0.0.0/0"}), 403);
  EXPECT_EQ(status_from("2001:db8::1", {"::/0"}), 200);
  EXPECT_EQ(status_from("172.16.5.129", {"172.16.5.128/25"}), 200);
  EXPECT_EQ(status_from("172.16.5.127", {"172.16.5.128/25"}), 403);
}

TEST(NetworkTest, WhatIsNoNetworkIsRefusedAtTheStart) {
  for (const char* network :
       {"", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0.0/8x", "10/8", "10.0.0.1/8",
        "fd00::1/8", "::/129", "host.example", "10.0.0.0/ 8", "fe80::%eth0/10"}) {
    const std::string error = error_of({.bind = kAnywhere, .allow_networks = {network}});
    EXPECT_EQ(error.find("exporter.allow_networks: '" + std::string(network) + "': "), 0u) << error;
  }
}

TEST(NetworkTest, HealthChecksFromElsewhereAreRefusedToo) {
  HttpRequest request = get("/-/healthy");
  request.client = "203.0.113.9";
  EXPECT_EQ(status_of({.bind = kAnywhere, .allow_networks = {"10.0.0.0/8"}}, request), 403);
}

// Names.

int status_for_host(const ExporterOptions& options, std::optional<std::string> host) {
  HttpRequest request = get("/metrics");
  request.host = std::move(host);
  return status_of(options, request);
}

TEST(HostTest, BeyondLoopbackOneOfTheConfiguredNamesOrAnAddress) {
  const ExporterOptions options = {.bind = kAnywhere,
                                   .host_names = {"node7", "node7.cluster.example"}};
  for (const char* host : {"node7", "NODE7:10064", "node7.cluster.example:10064", "10.1.2.3:10064",
                           "[2001:db8::1]:10064", "localhost:10064", "127.0.0.1"}) {
    EXPECT_EQ(status_for_host(options, host), 200) << host;
  }
  for (const char* host : {"evil.example", "node7.evil.example", "node8", "", "node7x", "[node7]x",
                           "10.1.2.3.evil.example"}) {
    EXPECT_EQ(status_for_host(options, host), 403) << host;
  }
  EXPECT_EQ(status_for_host(options, std::nullopt), 200) << "no browser sends none";
  EXPECT_EQ(status_for_host({.bind = kAnywhere}, "anything.example"), 200)
      << "no name is configured";
}

TEST(HostTest, OnLoopbackAConfiguredNameIsOneMore) {
  const ExporterOptions options = {.host_names = {"tunnel.example"}};
  EXPECT_EQ(status_for_host(options, "tunnel.example:8080"), 200);
  EXPECT_EQ(status_for_host(options, "localhost"), 200);
  EXPECT_EQ(status_for_host(options, "evil.example"), 403);
  EXPECT_EQ(status_for_host(options, "10.1.2.3"), 403);
}

// Users.

int status_with(const BasicAuth& auth, const std::optional<std::string>& authorization,
                const std::string& path = "/metrics") {
  HttpRequest request = get(path);
  request.authorization = authorization;
  return status_of({.auth = auth}, request);
}

TEST(BasicAuthTest, TheEncodingIsThatOfRfc4648) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("Aladdin:open sesame"), "QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
  EXPECT_EQ(base64("\xff\xfe\xfd"), "//79");
}

TEST(BasicAuthTest, OnlyTheRightUserAndPassword) {
  const BasicAuth auth = {.user = "Aladdin", .password = "open sesame"};
  const std::string right = "QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
  EXPECT_EQ(status_with(auth, "Basic " + right), 200);
  EXPECT_EQ(status_with(auth, "basic  " + right + " "), 200);
  for (const std::string& wrong :
       {std::string(), std::string("Basic"), std::string("Basic "), right, "Bearer " + right,
        "Basic " + right + "=", "Basic " + right.substr(0, 20), "Basic " + base64("Aladdin:x"),
        "Basic " + base64("aladdin:open sesame"), "Basic " + base64("Aladdin:open sesame\n"),
        "Basic " + right + right, "Digest " + right}) {
    EXPECT_EQ(status_with(auth, wrong), 401) << wrong;
  }
  EXPECT_EQ(status_with(auth, std::nullopt), 401);
  EXPECT_EQ(status_with({}, std::nullopt), 200) << "none is asked for";
}

TEST(BasicAuthTest, EveryPathButTheHealthChecks) {
  Endpoints endpoints({.collect = [] { return std::vector<prometheus::MetricFamily>(); },
                       .stats_json = [] { return std::string("{}"); },
                       .last_failure_json = [] { return std::string("{}"); }},
                      Access::create({.auth = {.user = "u", .password = "p"}}).value());
  for (const char* path : {"/", "/page.js", "/metrics", "/api/v1/stats", "/api/v1/snapshot",
                           "/api/v1/events", "/nothing", "/-/healthyx"}) {
    const HttpResponse response = endpoints.handle(get(path));
    EXPECT_EQ(response.status, 401) << path;
    const auto header = std::make_pair(std::string("WWW-Authenticate"),
                                       std::string("Basic realm=\"gpupool\", charset=\"UTF-8\""));
    EXPECT_EQ(std::ranges::count(response.headers, header), 1) << path;
  }
  EXPECT_EQ(endpoints.handle(get("/-/healthy")).status, 200);
  HttpRequest allowed = get("/metrics");
  allowed.authorization = "Basic " + base64("u:p");
  EXPECT_EQ(endpoints.handle(allowed).status, 200);
}

TEST(BasicAuthTest, ThePasswordFromAFileOrTheEnvironment) {
  const auto file =
      std::filesystem::temp_directory_path() / ("gpupool-password-" + std::to_string(getpid()));
  std::ofstream(file) << "s3 cret\n";
  const std::string right = "Basic " + base64("u:s3 cret");
  EXPECT_EQ(status_with({.user = "u", .password_file = file.string()}, right), 200);
  std::ofstream(file) << "";
  EXPECT_EQ(error_of({.auth = {.user = "u", .password_file = file.string()}}),
            "exporter.auth.password_file: is empty");
  std::ofstream(file) << std::string(2000, 'x');
  EXPECT_EQ(error_of({.auth = {.user = "u", .password_file = file.string()}}),
            "exporter.auth.password_file: is longer than 1024 bytes");
  std::filesystem::remove(file);
  EXPECT_EQ(error_of({.auth = {.user = "u", .password_file = file.string()}}),
            "exporter.auth.password_file: " + file.string() + ": No such file or directory");
  setenv("GPUPOOL_TEST_PASSWORD", "s3 cret", 1);
  EXPECT_EQ(status_with({.user = "u", .password_env = "GPUPOOL_TEST_PASSWORD"}, right), 200);
  unsetenv("GPUPOOL_TEST_PASSWORD");
  EXPECT_EQ(error_of({.auth = {.user = "u", .password_env = "GPUPOOL_TEST_PASSWORD"}}),
            "exporter.auth.password_env: the environment has no variable GPUPOOL_TEST_PASSWORD");
  EXPECT_EQ(error_of({.auth = {.user = "u"}}), "exporter.auth.password: is empty");
  EXPECT_EQ(error_of({.auth = {.user = "u:v", .password = "p"}}),
            "exporter.auth.user: has a colon");
}

TEST(BasicAuthTest, TextsAreComparedWhole) {
  EXPECT_TRUE(equals_in_constant_time("abc", "abc"));
  EXPECT_TRUE(equals_in_constant_time("", ""));
  for (const char* given : {"", "a", "ab", "abd", "xbc", "abcabc", "abcd"}) {
    EXPECT_FALSE(equals_in_constant_time(given, "abc")) << given;
  }
  EXPECT_FALSE(equals_in_constant_time("a", ""));
}

}  // namespace
}  // namespace gpupool::internal
