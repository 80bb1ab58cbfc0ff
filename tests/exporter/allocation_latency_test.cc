// What clients do to the server does not reach the threads that allocate: the 99th percentile of an
// allocation's thread CPU time with abusive clients is that without them, and so is that with an
// open page. "Without" is beside the same clients, busy with the server of another process: they
// and it take their share of cores and caches all the same, which is not what is asked about. Other
// work of the machine comes and goes, while what a server costs is there each time: so a comparison
// that fails is made again, up to four times.
//
// Alone with GPUPOOL_LATENCY_RUNS=N it takes N pairs of runs of 0.5 s instead of five short ones.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpupool/exporter/event_log.h"
#include "gpupool/exporter/exporter.h"
#include "gpupool/simulated_backend.h"
#include "tests/exporter/abuse.h"
#include "tests/exporter/http_client.h"
#include "tests/support/kept.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

using testing_support::connect_clients;

constexpr std::size_t kBlockBytes = 4096;
constexpr int kPairsABatch = 128;         // so that reading the clock is a small part
constexpr std::size_t kBlocks = 100'000;  // on an open page
constexpr double kMaxAddedNs = 20;
constexpr double kMaxAddedShare = 0.05;

double thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// Clients in a process of their own, so that their work is not the measured process's.
class Clients {
 public:
  /// `act` is called again and again.
  explicit Clients(const std::function<void()>& act) {
    child_ = fork();
    if (child_ != 0) return;
    alarm(300);  // ends by itself should the test not end it
    for (;;) act();
  }
  ~Clients() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

 private:
  pid_t child_ = -1;
};

/// A pool with so many blocks, and its server.
struct Service {
  SimulatedBackend backend{{.capacity_bytes = 8 * kGiB}};
  EventLog events;
  std::unique_ptr<Pool> pool = Pool::create(backend, {.observer = &events}).value();
  StreamRef stream = pool->adopt_stream(backend.create_stream()).value();
  std::vector<void*> blocks;
  std::unique_ptr<Exporter> exporter;

  explicit Service(std::size_t block_count) {
    for (std::size_t i = 0; i < block_count; ++i) {
      blocks.push_back(pool->allocate(kBlockBytes, stream).value());
    }
    auto started = Exporter::start(*pool, {.port = 0, .events = &events});
    if (started.ok()) exporter = std::move(started).value();
  }
  void pair() const { pool->deallocate(pool->allocate(kBlockBytes, stream).value(), stream); }
};

/// Never stopped, as that takes up to 2 s.
Service& start_service(std::size_t block_count) {
  return testing_support::keep(std::make_unique<Service>(block_count));
}

/// The same in a process of its own. Requires: this process has no threads yet.
class OtherProcess {
 public:
  explicit OtherProcess(std::size_t block_count) {
    int to_test[2];
    if (pipe(to_test) != 0) return;
    child_ = fork();
    if (child_ == 0) {
      alarm(300);  // ends by itself should the test not end it
      const Service service(block_count);
      const std::uint16_t port = service.exporter ? service.exporter->port() : std::uint16_t{0};
      if (write(to_test[1], &port, sizeof(port)) != sizeof(port)) _exit(1);
      for (;;) pause();
    }
    close(to_test[1]);
    if (read(to_test[0], &port_, sizeof(port_)) != sizeof(port_)) port_ = 0;
    close(to_test[0]);
  }
  ~OtherProcess() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  std::uint16_t port() const { return port_; }

 private:
  pid_t child_ = -1;
  std::uint16_t port_ = 0;
};

/// There before the first test has threads.
class OthersServer : public testing::Environment {
 public:
  void SetUp() override { process_.emplace(kBlocks); }
  void TearDown() override { process_.reset(); }
  std::uint16_t port() const { return process_ ? process_->port() : std::uint16_t{0}; }

 private:
  std::optional<OtherProcess> process_;
};
const OthersServer& others_server =
    *static_cast<OthersServer*>(testing::AddGlobalTestEnvironment(new OthersServer()));

void abuse(std::uint16_t port) {
  const auto idle = connect_clients(port, 50, "");
  const auto half = connect_clients(port, 50, "GET /metr");
  const auto silent = connect_clients(port, 50, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const auto loud = connect_clients(port, 1, testing_support::noise(1 << 20));
  testing_support::get_all_at_once(port, 200, "/metrics");
}

/// What the live page asks for each second: of events and history what is new.
void look_at_the_page(std::uint16_t port) {
  constexpr const char* kHeaders = "Host: localhost\r\nAccept-Encoding: gzip\r\n";
  const std::string seconds = std::to_string(time(nullptr) - 1);
  for (const std::string& path :
       {std::string("/api/v1/stats"), "/api/v1/events?since=" + std::to_string(UINT32_MAX),
        "/api/v1/history?since=" + seconds + "000", std::string("/api/v1/snapshot"),
        std::string("/api/v1/would_fit?bytes=1073741824")}) {
    testing_support::fetch(port, path, "GET", kHeaders);
  }
  sleep(1);
}

/// The 99th percentile of batches' means, in nanoseconds a pair of allocation and free.
template <int kPairs, class Pair>
double measure_p99(std::chrono::milliseconds length, const Pair& pair) {
  std::vector<double> batches;
  batches.reserve(1 << 18);
  const auto end = std::chrono::steady_clock::now() + length;
  double before = thread_cpu_ns();
  while (batches.size() < batches.capacity() && std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < kPairs; ++i) pair();
    const double after = thread_cpu_ns();
    batches.push_back((after - before) / kPairs);
    before = after;
  }
  const auto p99 = batches.begin() + static_cast<std::ptrdiff_t>(batches.size() * 99 / 100);
  std::nth_element(batches.begin(), p99, batches.end());
  return *p99;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// How much the median of `measure(true)` is above that of `measure(false)`, beyond what is
/// allowed. In turns, so that what changes slowly is in both.
template <class Measure>
double excess(const std::string& what, const Measure& measure) {
  const char* const runs_text = std::getenv("GPUPOOL_LATENCY_RUNS");
  const int runs = runs_text == nullptr ? 5 : std::atoi(runs_text);
  std::vector<double> without;
  std::vector<double> with;
  for (int i = 0; i < 2 * runs; ++i) {
    const bool is_own = i % 2 == 1;
    (is_own ? with : without).push_back(measure(is_own));
  }
  const double before = median(without);
  const double after = median(with);
  std::printf("  allocate and free, p99 of %s: %.1f ns, %.1f ns without\n", what.c_str(), after,
              before);
  return after - before - std::max(kMaxAddedNs, before * kMaxAddedShare);
}

/// `act` is what clients do to a server.
template <class Measure>
void expect_no_cost(const std::string& what, const Measure& measure,
                    void (*act)(std::uint16_t port), std::uint16_t own, std::uint16_t other) {
  constexpr int kMostTries = 5;
  const auto beside = [&](bool is_own) {
    const Clients clients([=] { act(is_own ? own : other); });
    return measure();
  };
  measure();
  double least = excess(what, beside);
  for (int i = 1; i < kMostTries && least > 0; ++i) least = std::min(least, excess(what, beside));
  EXPECT_LE(least, 0) << "ns beyond what is allowed, each time";
}

std::chrono::milliseconds run_length(int milliseconds) {
  const bool is_alone = std::getenv("GPUPOOL_LATENCY_RUNS") != nullptr;
  return std::chrono::milliseconds(is_alone ? 500 : milliseconds);
}

TEST(AllocationLatencyTest, ForkedAbusiveClientsDoNotReachAllocatingThreads) {
  ASSERT_NE(others_server.port(), 0);
  const Service& own = start_service(0);
  ASSERT_NE(own.exporter, nullptr);
  expect_no_cost(
      "batches beside abusive clients",
      [&] { return measure_p99<kPairsABatch>(run_length(150), [&] { own.pair(); }); }, abuse,
      own.exporter->port(), others_server.port());
}

TEST(AllocationLatencyTest, AnOpenPageOfAForkedBrowserDoesNotReachAllocatingThreads) {
  // A map of so many blocks takes more than a percent of a second, and of a batch's mean one slow
  // pair is the most: so batches are as short as the clock allows.
  constexpr int kFewPairs = 8;
  ASSERT_NE(others_server.port(), 0);
  const Service& own = start_service(kBlocks);
  ASSERT_NE(own.exporter, nullptr);
  expect_no_cost(
      "pairs beside an open page",
      [&] { return measure_p99<kFewPairs>(run_length(400), [&] { own.pair(); }); },
      look_at_the_page, own.exporter->port(), others_server.port());
}

// The test itself: a lock on the way of each pair that somebody else holds a tenth of the time.
TEST(AllocationLatencyTest, ALockThatIsHeldNowAndThenIsSeen) {
  SimulatedBackend backend({.capacity_bytes = kGiB});
  const auto pool = Pool::create(backend, {}).value();
  const StreamRef stream = pool->adopt_stream(backend.create_stream()).value();
  std::atomic_flag lock;
  const auto take = [&lock] {
    while (lock.test_and_set(std::memory_order_acquire)) {
    }
  };
  const auto pair = [&] {
    take();
    pool->deallocate(pool->allocate(kBlockBytes, stream).value(), stream);
    lock.clear(std::memory_order_release);
  };
  const auto measure = [&](bool is_held) {
    std::atomic<bool> is_over{false};
    std::thread holder([&] {
      while (is_held && !is_over) {
        std::this_thread::sleep_for(std::chrono::microseconds(450));
        take();
        const double end = thread_cpu_ns() + 50'000;
        while (thread_cpu_ns() < end) {
        }
        lock.clear(std::memory_order_release);
      }
    });
    const double p99 = measure_p99<kPairsABatch>(run_length(60), pair);
    is_over = true;
    holder.join();
    return p99;
  };
  EXPECT_GT(excess("batches with a lock that is held now and then", measure), 0);
}

}  // namespace
}  // namespace gpupool
