// What clients do to the server does not reach the threads that allocate: the 99th percentile of an
// allocation's thread CPU time with abusive clients is that without them.
//
// Alone with GPUPOOL_LATENCY_RUNS=N it takes N pairs of runs of 0.5 s instead of five short ones.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gpupool/exporter/exporter.h"
#include "gpupool/simulated_backend.h"
#include "tests/exporter/abuse.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

using testing_support::connect_clients;

constexpr std::size_t kBlockBytes = 4096;
constexpr int kPairsABatch = 128;  // so that reading the clock is a small part
constexpr double kMaxAddedNs = 20;
constexpr double kMaxAddedShare = 0.05;

double thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// Abusive clients in a process of their own, so that their work is not the measured process's.
class Abusers {
 public:
  explicit Abusers(std::uint16_t port) {
    child_ = fork();
    if (child_ != 0) return;
    alarm(300);  // ends by itself should the test not end it
    for (;;) {
      const auto idle = connect_clients(port, 50, "");
      const auto half = connect_clients(port, 50, "GET /metr");
      const auto silent =
          connect_clients(port, 50, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
      const auto loud = connect_clients(port, 1, testing_support::noise(1 << 20));
      testing_support::get_all_at_once(port, 200, "/metrics");
    }
  }
  ~Abusers() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Abusers(const Abusers&) = delete;
  Abusers& operator=(const Abusers&) = delete;

 private:
  pid_t child_ = -1;
};

/// The 99th percentile of batches' means, in nanoseconds a pair of allocation and free.
double measure_p99(Pool& pool, StreamRef stream, std::chrono::milliseconds length) {
  std::vector<double> batches;
  batches.reserve(1 << 18);
  const auto end = std::chrono::steady_clock::now() + length;
  double before = thread_cpu_ns();
  while (batches.size() < batches.capacity() && std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < kPairsABatch; ++i) {
      pool.deallocate(pool.allocate(kBlockBytes, stream).value(), stream);
    }
    const double after = thread_cpu_ns();
    batches.push_back((after - before) / kPairsABatch);
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

TEST(AllocationLatencyTest, ForkedAbusiveClientsDoNotReachAllocatingThreads) {
  const char* const runs_text = std::getenv("GPUPOOL_LATENCY_RUNS");
  const int runs = runs_text == nullptr ? 5 : std::atoi(runs_text);
  const std::chrono::milliseconds length(runs_text == nullptr ? 200 : 500);
  SimulatedBackend backend({.capacity_bytes = 8 * kGiB});
  const auto pool = Pool::create(backend, {}).value();
  const StreamRef stream = pool->adopt_stream(backend.create_stream()).value();
  auto started = Exporter::start(*pool, {.port = 0});
  ASSERT_TRUE(started.ok());
  const std::uint16_t port = started.value()->port();
  measure_p99(*pool, stream, length);
  std::vector<double> alone;
  std::vector<double> abused;
  for (int i = 0; i < runs; ++i) {
    alone.push_back(measure_p99(*pool, stream, length));
    const Abusers abusers(port);
    abused.push_back(measure_p99(*pool, stream, length));
  }
  const double before = median(alone);
  const double after = median(abused);
  std::printf("  allocate and free, p99 of batches: %.1f ns alone, %.1f ns with abusive clients\n",
              before, after);
  EXPECT_LE(after, before + std::max(kMaxAddedNs, before * kMaxAddedShare));
}

}  // namespace
}  // namespace gpupool
