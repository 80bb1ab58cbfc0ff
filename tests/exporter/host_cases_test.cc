// Named cases of exporters that harmed their hosts, or were wrong in what they said, with a whole
// exporter in this process.
#include <gtest/gtest.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <locale>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpupool/exporter/exporter.h"
#include "gpupool/faulty_backend.h"
#include "gpupool/simulated_backend.h"
#include "tests/exporter/abuse.h"
#include "tests/exporter/http_client.h"
#include "tests/exporter/metrics_page.h"
#include "tests/exporter/openmetrics_parser.h"
#include "tests/exporter/promtool.h"
#include "tests/support/gate.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

using testing_support::check_metrics;
using testing_support::fetch;
using testing_support::parse_page;

bool is_working(Pool& pool) {
  const auto block = pool.allocate(kMiB, RawStream{});
  return block.ok() && pool.deallocate(block.value(), RawStream{});
}

// One device, pool and exporter for all cases, never stopped, as that takes up to 2 s.
struct Service {
  SimulatedBackend device{
      {.capacity_bytes = 8 * kGiB, .time = SimulatedTime::real_time, .charge_costs = false}};
  FaultyBackend backend{device};
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Exporter> exporter;

  Service() {
    auto created = Pool::create(backend, {});
    if (!created.ok()) return;
    pool = std::move(created).value();
    auto started = Exporter::start(*pool, {.port = 0}, std::chrono::milliseconds(5));
    if (started.ok()) exporter = std::move(started).value();
  }
};

Service& service() {
  static auto* const instance = new Service();
  return *instance;
}

class HostCasesTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(service().exporter, nullptr); }
  static Pool& pool() { return *service().pool; }
  static std::uint16_t port() { return service().exporter->port(); }
};

TEST_F(HostCasesTest, CaseD2WhateverIsToBeBoundThePoolWorksOn) {
  struct Odd {
    const char* bind;
    std::uint16_t port;
    const char* named;  // by the error
  };
  const std::uint16_t taken = port();
  const Odd odd[] = {
      {"127.0.0.1", taken, "Address already in use"},
      {"9400", 0, "'9400'"},
      {"0", 0, "'0'"},
      {"70000", 0, "'70000'"},
      {"abc", 0, "'abc'"},
      {"127.0.0.1:9400", 0, "'127.0.0.1:9400'"},
      {"[::1]:9400", 0, "'[::1]:9400'"},
      {"0.0.0.0:9400,[::]:9400", 0, "'0.0.0.0:9400,[::]:9400'"},
      {"node7.example", 0, "'node7.example'"},
      {"", 0, "''"},
      {"192.0.2.1", 0, "Cannot assign requested address"},
      {"127.0.0.1\n0", 0, "not an IPv4 or IPv6 address"},
  };
  const auto before = testing_support::footprint();
  for (const auto& [bind, bind_port, named] : odd) {
    SCOPED_TRACE(bind);
    const auto exporter =
        Exporter::start(pool(), {.bind = bind, .port = bind_port, .port_count = 1});
    ASSERT_FALSE(exporter.ok());
    EXPECT_NE(exporter.error().message.find(named), std::string::npos) << exporter.error().message;
    EXPECT_EQ(exporter.error().message.find('\n'), std::string::npos) << "one line for a log";
    EXPECT_TRUE(is_working(pool()));
  }
  EXPECT_TRUE(testing_support::returns_to(before));
}

TEST_F(HostCasesTest, CaseD2APortThatIsNotAllowedNeedsAForkedProcess) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    if (getuid() == 0 && setuid(65534) != 0) _exit(3);
    SimulatedBackend device({.capacity_bytes = kGiB});
    auto own = Pool::create(device, {});
    if (!own.ok()) _exit(4);
    auto exporter = Exporter::start(*own.value(), {.port = 80, .port_count = 1});
    // Some systems let anybody have port 80.
    if (!exporter.ok() &&
        exporter.error().message.find("127.0.0.1:80: Permission denied") == std::string::npos) {
      _exit(5);
    }
    if (exporter.ok()) static_cast<void>(exporter.value().release());  // quicker than stopping
    _exit(is_working(*own.value()) ? 0 : 6);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(HostCasesTest, CaseD8AScrapeWaitsForNoDriverAndSaysHowOldANumberIs) {
  static Gate gate;  // the thread that waits at it may be the last to leave
  service().backend.before(BackendCall::memory_info, [] { gate.pass(); });
  ASSERT_TRUE(gate.wait_until_reached());  // the thread that maintains hangs in the driver now
  const std::string read = "gpupool_device_memory_read_timestamp_seconds{device=\"0\"}";
  const double first_read = parse_page(fetch(port(), "/metrics").body).at(read);
  const auto start = std::chrono::steady_clock::now();
  const auto reply = fetch(port(), "/metrics");
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("  a scrape while the driver hangs: %.4f s\n", taken.count());
  EXPECT_LT(taken.count(), 1);
  EXPECT_EQ(parse_page(reply.body).at(read), first_read);
  EXPECT_NEAR(first_read, static_cast<double>(std::time(nullptr)), 60);
  EXPECT_TRUE(is_working(pool()));
  gate.open();
  service().backend.clear();
}

double process_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST_F(HostCasesTest, CaseD8AScrapeASecondTakesFarLessThanFivePercentOfACore) {
  constexpr int kScrapes = 100;
  const double before = process_cpu_seconds();
  for (int i = 0; i < kScrapes; ++i) EXPECT_EQ(fetch(port(), "/metrics").status, 200);
  const double each = (process_cpu_seconds() - before) / kScrapes;
  std::printf("  CPU time of a scrape, client and upkeep included: %.2f ms\n", each * 1e3);
  EXPECT_LT(each, 0.05);
}

/// The language of C and C++ of the whole program, that of a country for the time of a scope.
class HostLocale {
 public:
  /// "de_DE"
  explicit HostLocale(const std::string& country) {
    const std::string name = country + ".UTF-8";
    char folder[] = "/tmp/gpupool-locale-XXXXXX";
    if (mkdtemp(folder) == nullptr) return;
    folder_ = folder;
    const std::string command =
        "localedef -f UTF-8 -i " + country + " '" + folder_ + "/" + name + "' 2>&1";
    if (std::system(command.c_str()) != 0) return;
    setenv("LOCPATH", folder, 1);
    is_set_ = std::setlocale(LC_ALL, name.c_str()) != nullptr;
    if (is_set_) before_ = std::locale::global(std::locale(name));
  }
  ~HostLocale() {
    if (is_set_) std::locale::global(before_);
    std::setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  HostLocale(const HostLocale&) = delete;
  HostLocale& operator=(const HostLocale&) = delete;
  bool is_set() const noexcept { return is_set_; }

 private:
  std::string folder_;
  std::locale before_;
  bool is_set_ = false;
};

TEST_F(HostCasesTest, CaseD10AGermanHostChangesNoNumber) {
  const auto before = parse_page(fetch(port(), "/metrics").body);
  const HostLocale german("de_DE");
  ASSERT_TRUE(german.is_set()) << "the package locales is missing";
  char number[16];
  std::snprintf(number, sizeof(number), "%.1f", 1.5);
  ASSERT_STREQ(number, "1,5") << "the locale does not do what it is here for";
  const auto text = fetch(port(), "/metrics");
  EXPECT_EQ(check_metrics(text.body), "");
  const auto open = fetch(port(), "/metrics", "GET",
                          "Host: localhost\r\nAccept: application/openmetrics-text;q=0.9\r\n");
  EXPECT_EQ(testing_support::parse_openmetrics(open.body).verdict(), "");
  EXPECT_TRUE(open.body.ends_with("# EOF\n"));
  for (const char* name : {"gpupool_limit_bytes{device=\"0\",pool=\"default\"}",
                           "gpupool_slack_ratio{device=\"0\",pool=\"default\"}"}) {
    EXPECT_NE(before.at(name), 0);
    EXPECT_EQ(parse_page(text.body).at(name), before.at(name));
    EXPECT_EQ(parse_page(open.body).at(name), before.at(name));
  }
  const auto json = fetch(port(), "/api/v1/stats");
  EXPECT_NE(json.body.find("\"slack\":0.005,"), std::string::npos) << json.body;
}

TEST_F(HostCasesTest, CaseD10ATurkishHostKnowsNamesInCapitals) {
  const HostLocale turkish("tr_TR");
  ASSERT_TRUE(turkish.is_set()) << "the package locales is missing";
#ifndef __SANITIZE_ADDRESS__  // which has a strcasecmp of its own
  ASSERT_NE(strcasecmp("GZIP", "gzip"), 0) << "the locale does not do what it is here for";
#endif
  const auto packed =
      fetch(port(), "/metrics", "GET", "Host: localhost\r\nAccept-Encoding: GZIP\r\n");
  EXPECT_EQ(packed.headers.at("Content-Encoding"), "gzip");
}

TEST_F(HostCasesTest, CaseD10TheRatiosOfAnUnusedPoolAreZero) {
  SimulatedBackend device({.capacity_bytes = kGiB});
  const auto unused = Pool::create(device, {}).value();
  const StatsV1 stats = unused->stats();
  EXPECT_EQ(stats.fragmentation_ratio, 0);
  EXPECT_EQ(stats.raw_fragmentation_ratio, 0);
}

}  // namespace
}  // namespace gpupool
