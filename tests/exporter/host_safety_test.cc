// Whatever clients do, the process that serves is none the worse: a scrape comes within 2 s, no
// thread and no descriptor is left, signals are what they were.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "exporter/http/endpoints.h"
#include "exporter/http/http_server.h"
#include "gpupool/exporter/exporter.h"
#include "gpupool/simulated_backend.h"
#include "tests/exporter/abuse.h"
#include "tests/support/kept.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

using testing_support::connect_clients;
using testing_support::Connection;
using testing_support::fetch;
using testing_support::footprint;
using testing_support::Footprint;
using testing_support::get_all_at_once;
using testing_support::noise;
using testing_support::returns_to;
using testing_support::seconds_to_get;

constexpr double kScrapeSeconds = 2;

// One service for all cases, never stopped, as that takes up to 2 s.
struct Service {
  SimulatedBackend backend{{.capacity_bytes = 8 * kGiB}};
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Exporter> exporter;

  Service() {
    auto created = Pool::create(backend, {});
    if (!created.ok()) return;
    pool = std::move(created).value();
    auto started = Exporter::start(*pool, {.port = 0});
    if (started.ok()) exporter = std::move(started).value();
  }
};

Service& service() {
  static auto* const instance = new Service();
  return *instance;
}

class HostSafetyTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(service().exporter, nullptr);
    ASSERT_TRUE(testing_support::allow_descriptors(4096));
    ASSERT_TRUE(is_pool_working());
    before_ = footprint();
    sigaction(SIGPIPE, nullptr, &sigpipe_before_);
    pthread_sigmask(SIG_SETMASK, nullptr, &mask_before_);
  }
  void TearDown() override {
    EXPECT_TRUE(returns_to(before_))
        << footprint().threads << " threads and " << footprint().descriptors
        << " descriptors, there were " << before_.threads << " and " << before_.descriptors;
    struct sigaction sigpipe_after {};
    sigaction(SIGPIPE, nullptr, &sigpipe_after);
    EXPECT_EQ(sigpipe_after.sa_handler, sigpipe_before_.sa_handler);
    sigset_t mask_after;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask_after);
    for (int signal = 1; signal < SIGRTMAX; ++signal) {
      EXPECT_EQ(sigismember(&mask_after, signal), sigismember(&mask_before_, signal)) << signal;
    }
    EXPECT_TRUE(is_pool_working());
  }

  static bool is_pool_working() {
    const auto block = service().pool->allocate(kMiB, RawStream{});
    return block.ok() && service().pool->deallocate(block.value(), RawStream{});
  }
  static std::uint16_t port() { return service().exporter->port(); }
  /// How long a scrape takes now; printed, as it is what the case is about.
  static double scrape(const char* meanwhile) {
    const double seconds = seconds_to_get(port(), "/metrics");
    std::printf("  a scrape with %s: %.3f s\n", meanwhile, seconds);
    return seconds;
  }

 private:
  Footprint before_;
  struct sigaction sigpipe_before_ {};
  sigset_t mask_before_{};
};

TEST_F(HostSafetyTest, CaseD4FiftyIdleClients) {
  const auto clients = connect_clients(port(), 50, "");
  EXPECT_LE(scrape("50 idle clients"), kScrapeSeconds);
}

TEST_F(HostSafetyTest, CaseD4FiftyIdleAndFiftyHalfRequests) {
  const auto idle = connect_clients(port(), 50, "");
  const auto half = connect_clients(port(), 50, "GET /metr");
  EXPECT_LE(scrape("50 idle clients and 50 half requests"), kScrapeSeconds);
}

TEST_F(HostSafetyTest, CaseD4HeadersThatNeverEnd) {
  const auto clients =
      connect_clients(port(), 50, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nA: ");
  EXPECT_LE(scrape("50 clients whose headers never end"), kScrapeSeconds);
}

TEST_F(HostSafetyTest, CaseD4BodiesThatNeverCome) {
  const auto clients = connect_clients(
      port(), 50, "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n");
  EXPECT_LE(scrape("50 clients whose bodies never come"), kScrapeSeconds);
}

TEST_F(HostSafetyTest, ClientsThatNeverReadTheirAnswers) {
  const auto clients =
      connect_clients(port(), 200, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_LE(scrape("200 clients that never read"), kScrapeSeconds);
}

TEST_F(HostSafetyTest, AThousandScrapesAtOnce) {
  const auto crowd = get_all_at_once(port(), 1000, "/metrics");
  std::printf("  1000 scrapes at once: %d answered in %.3f s\n", crowd.answered, crowd.seconds);
  EXPECT_EQ(crowd.answered, 1000);
  EXPECT_LE(scrape("nobody else"), kScrapeSeconds);
}

TEST_F(HostSafetyTest, WaitingConnectionsHoldFewOfTheHostsDescriptors) {
  const std::size_t before = footprint().descriptors;
  const auto clients = connect_clients(port(), 800, "");
  const std::size_t taken = footprint().descriptors - before - clients.size();
  std::printf("  800 idle clients hold %zu descriptors of the server's\n", taken);
  EXPECT_LE(taken, 110u);
}

TEST_F(HostSafetyTest, AMegabyteOfNoise) {
  const std::string text = noise(kMiB);
  for (std::size_t part : {kMiB, kMiB / 2, kMiB / 64}) {
    testing_support::Connection client(port());
    client.send(text.substr(kMiB - part));
    EXPECT_FALSE(client.receive().starts_with("HTTP/1.1 200 "));
  }
  testing_support::Connection client(port());
  client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + text + "\r\n\r\n");
  EXPECT_FALSE(client.receive().starts_with("HTTP/1.1 200 "));
  EXPECT_LE(scrape("1 MB of noise behind"), kScrapeSeconds);
}

TEST_F(HostSafetyTest, HeadersThatAreTooLargeOrTooMany) {
  const std::string large = "X-Large: " + std::string(20'000, 'a') + "\r\n";
  std::string many;
  for (int i = 0; i < 5'000; ++i) many += "X-" + std::to_string(i) + ": y\r\n";
  for (const std::string& headers : {large, many}) {
    const auto reply = fetch(port(), "/metrics", "GET", "Host: localhost\r\n" + headers);
    EXPECT_TRUE(reply.status == 0 || (reply.status >= 400 && reply.status < 500)) << reply.status;
  }
  EXPECT_LE(scrape("oversized headers behind"), kScrapeSeconds);
}

TEST_F(HostSafetyTest, ClientsThatGoAwayWhileTheyAreAnswered) {
  for (int i = 0; i < 200; ++i) {
    testing_support::Connection client(port());
    client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  EXPECT_LE(scrape("200 clients gone"), kScrapeSeconds);
}

// Answers larger than what the kernel takes, and sources that fail, need servers of their own;
// never stopped, either.

std::uint16_t serve_for_good(const internal::HttpHandler& handler) {
  auto started = internal::HttpServer::start({.address = "127.0.0.1", .port = 0}, handler);
  return started.ok() ? testing_support::keep(std::move(started).value()).port() : std::uint16_t{0};
}

constexpr std::size_t kLargeBytes = 4 * kMiB;
constexpr int kSmallBuffer = 4096;  // so that the kernel takes little of it for a client

class LargeAnswersTest : public testing::Test {
 protected:
  static std::uint16_t port() {
    static const std::uint16_t port = serve_for_good([](const internal::HttpRequest& request) {
      internal::HttpResponse response;
      if (request.path == "/large") response.body.assign(kLargeBytes, 'x');
      return response;
    });
    return port;
  }
};

TEST_F(LargeAnswersTest, NobodyWaitsForClientsThatNeverRead) {
  ASSERT_NE(port(), 0);
  const Footprint before = footprint();
  {
    const auto clients =
        connect_clients(port(), 50, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n", kSmallBuffer);
    const double seconds = seconds_to_get(port(), "/small");
    std::printf("  an answer with 50 clients that do not read 4 MiB: %.3f s\n", seconds);
    EXPECT_LE(seconds, kScrapeSeconds);
  }
  EXPECT_TRUE(returns_to(before));
  EXPECT_EQ(fetch(port(), "/large").body.size(),
            kLargeBytes);  // for who reads it, once they are gone
}

TEST_F(LargeAnswersTest, BeyondEightAtATimeIsA503AtOnce) {
  auto clients =
      connect_clients(port(), 24, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n", kSmallBuffer);
  int refused = 0;
  for (auto& client : clients) {
    const std::string text = client.receive();
    if (!text.starts_with("HTTP/1.1 503 ")) continue;
    EXPECT_NE(text.find("\r\nRetry-After: 1\r\n"), std::string::npos);
    ++refused;
  }
  std::printf("  24 large answers at once: %d refused\n", refused);
  EXPECT_GE(refused, 1);
  EXPECT_LE(refused, 16);
}

TEST(ThrowingCollectorTest, EveryScrapeGetsAnAnswerAndTheProcessLives) {
  static int calls = 0;
  internal::Sources sources;
  sources.collect = []() -> std::vector<prometheus::MetricFamily> {
    if (++calls % 2 == 1) throw std::runtime_error("broken on purpose");
    return {};
  };
  static internal::Endpoints endpoints(sources, internal::Access::create({}).value());
  const std::uint16_t port = serve_for_good(
      [](const internal::HttpRequest& request) { return endpoints.handle(request); });
  ASSERT_NE(port, 0);
  EXPECT_EQ(fetch(port, "/metrics").status, 500);
  EXPECT_EQ(fetch(port, "/metrics").status, 200);
  EXPECT_EQ(fetch(port, "/metrics").status, 500);
  const auto page = fetch(port, "/metrics");
  EXPECT_NE(page.body.find("gpupool_collect_errors_total 2\n"), std::string::npos) << page.body;
}

TEST(HostSafetyEndTest, WhoIsNotServedAnyMoreIsToldAndNoDescriptorIsLeft) {
  SimulatedBackend device({.capacity_bytes = kGiB});
  const auto pool = Pool::create(device, {}).value();
  const Footprint before = footprint();
  {
    auto exporter = Exporter::start(*pool, {.port = 0}).value();
    // More than there are workers: the others have been accepted, and wait for one.
    std::vector<Connection> clients = connect_clients(exporter->port(), 60, "");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    exporter.reset();
    const auto start = std::chrono::steady_clock::now();
    for (Connection& client : clients) {
      static_cast<void>(client.receive(std::chrono::milliseconds(200)));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  }
  EXPECT_TRUE(returns_to(before, std::chrono::seconds(3)));
}

}  // namespace
}  // namespace gpupool
