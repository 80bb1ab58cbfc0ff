// Case D6: what is called a counter only rises, whatever the pool goes through, and is exact once
// all is quiet.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpupool/exporter/exporter.h"
#include "gpupool/simulated_backend.h"
#include "tests/exporter/http_client.h"
#include "tests/exporter/metrics_page.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

using testing_support::CounterWatch;
using testing_support::fetch;
using testing_support::parse_page;

constexpr int kThreads = 16;
constexpr int kCountedScrapes = 1000;

struct Work {
  SimulatedBackend& device;
  Pool& pool;
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> ended_threads{0};
};

/// A thread's life: some blocks on a stream of its own, of all sizes, one request that fails.
void live(Work& work, std::uint64_t seed) {
  const RawStream stream = work.device.create_stream();
  std::uint64_t calls = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint64_t bytes = 512 + (seed * 7919 + i * 104729) % (3 * kMiB);
    const auto block = work.pool.allocate(bytes, stream);
    ++calls;
    if (block.ok()) work.pool.deallocate(block.value(), stream);
  }
  EXPECT_FALSE(work.pool.allocate(std::size_t{1} << 62, stream).ok());
  work.calls += calls + 1;
}

void work_in_turns(Work& work, std::uint64_t seed) {
  while (!work.is_over) {
    std::thread(live, std::ref(work), seed++).join();
    ++work.ended_threads;
  }
}

/// Trims, reloads of the settings that can be reloaded, other pools that come and go.
void disturb(Work& work) {
  RuntimeOptions options = work.pool.runtime_options();
  for (int i = 0; !work.is_over; ++i) {
    work.pool.trim(0);
    work.pool.drain_caches();
    options.recycling = i % 2 == 0 ? Recycling::off : Recycling::eager;
    options.thresholds.fragmentation_ratio = i % 2 == 0 ? 0.3 : 0.6;
    EXPECT_TRUE(work.pool.reconfigure(options).ok());
    work.pool.reset_peaks();
    const auto other = Pool::create(work.device, {.name = "other", .capacity = 16 * kMiB});
    EXPECT_TRUE(other.ok());
  }
}

TEST(CountersTest, CaseD6NoCounterFallsInAThousandScrapes) {
  SimulatedBackend device({.capacity_bytes = 8 * kGiB});
  const auto pool = Pool::create(device, {}).value();
  auto exporter = Exporter::start(*pool, {.port = 0}).value();
  Work work{.device = device, .pool = *pool};
  std::vector<std::thread> threads;
  threads.reserve(kThreads + 1);
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back(work_in_turns, std::ref(work), t * 1'000);
  }
  threads.emplace_back(disturb, std::ref(work));

  CounterWatch watch;
  std::size_t series = 0;
  for (int i = 0; i < kCountedScrapes; ++i) {
    const auto page = parse_page(fetch(exporter->port(), "/metrics").body);
    EXPECT_EQ(watch.look_at(page), "") << "scrape " << i;
    if (i == 0) series = page.size();
    EXPECT_EQ(page.size(), series);
  }
  work.is_over = true;
  for (std::thread& thread : threads) thread.join();

  const auto page = parse_page(fetch(exporter->port(), "/metrics").body);
  EXPECT_EQ(watch.look_at(page), "");
  const std::string labels = "{device=\"0\",pool=\"default\"}";
  double misses = 0;
  for (const auto& [name, value] : page) {
    if (name.starts_with("gpupool_allocation_misses_total{")) misses += value;
  }
  const auto calls = static_cast<double>(work.calls);
  EXPECT_EQ(page.at("gpupool_allocation_requests_total" + labels), calls);
  EXPECT_EQ(page.at("gpupool_allocation_hits_total" + labels) + misses, calls);
  std::printf("  %zu cumulative series over %d scrapes, %.0f requests, %.0f threads ended\n",
              watch.size(), kCountedScrapes, calls, static_cast<double>(work.ended_threads));
  EXPECT_GT(work.ended_threads, std::uint64_t{kThreads});
  exporter->stop();
}

TEST(CounterWatchTest, SeesWhatFalls) {  // the check can fail
  CounterWatch watch;
  EXPECT_EQ(watch.look_at({{"a_total", 5}, {"b_bytes", 5}}), "");
  EXPECT_EQ(watch.look_at({{"a_total", 5}, {"b_bytes", 4}}), "");
  EXPECT_EQ(watch.look_at({{"a_total", 4}}), "a_total\n");
  EXPECT_EQ(watch.look_at({{"a_total", std::nan("")}}), "a_total\n");
}

}  // namespace
}  // namespace gpupool
