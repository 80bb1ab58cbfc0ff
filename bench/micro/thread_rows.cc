// Pairs of 1 MiB from several threads at once, each on a stream of its own, all in one pool.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/micro/rows.h"
#include "bench/support/bench_pool.h"

namespace gpupool::bench {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr std::uint64_t kThreadBatch = 1024;

/// Makes pairs until it is told to stop. The first batch is its warm-up.
class Worker {
 public:
  Worker(BenchPool& pool, std::uint64_t number)
      : pool_(pool), stream_(pool.open_stream(number)), thread_([this] { run(); }) {}
  ~Worker() { join(); }

  std::uint64_t pairs() const { return pairs_.load(std::memory_order_relaxed); }
  void join() {
    stop_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run();

  BenchPool& pool_;
  StreamRef stream_;
  // On a line of its own: the main thread reads it while others run.
  alignas(64) std::atomic<std::uint64_t> pairs_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it starts when the others are there
};

void make_pairs(BenchPool& pool, StreamRef stream) {
  for (std::uint64_t i = 0; i < kThreadBatch; ++i) {
    pool.deallocate(pool.allocate(kBytes, stream), stream);
  }
}

void Worker::run() {
  std::uint64_t pairs = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    make_pairs(pool_, stream_);
    pairs += kThreadBatch;
    pairs_.store(pairs, std::memory_order_relaxed);
  }
}

std::uint64_t sum_of_pairs(const std::vector<std::unique_ptr<Worker>>& workers) {
  std::uint64_t sum = 0;
  for (const auto& worker : workers) sum += worker->pairs();
  return sum;
}

void measure_threads(benchmark::State& state, std::uint64_t thread_count) {
  BenchPool pool;
  const StreamRef stream = pool.open_stream(0);
  std::vector<std::unique_ptr<Worker>> others;
  for (std::uint64_t n = 1; n < thread_count; ++n) {
    others.push_back(std::make_unique<Worker>(pool, n));
  }
  make_pairs(pool, stream);
  for (const auto& worker : others) {
    while (worker->pairs() == 0) std::this_thread::yield();
  }

  const std::uint64_t others_before = sum_of_pairs(others);
  const auto start = std::chrono::steady_clock::now();
  while (state.KeepRunningBatch(kThreadBatch)) make_pairs(pool, stream);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const std::uint64_t pairs =
      sum_of_pairs(others) - others_before + static_cast<std::uint64_t>(state.iterations());
  state.counters["million_pairs_per_s"] = static_cast<double>(pairs) / elapsed.count() / 1e6;
}

}  // namespace

void register_thread_rows() {
  const std::uint64_t cores = std::max(1U, std::thread::hardware_concurrency());
  for (const std::uint64_t threads : {1, 2, 4, 8, 16}) {
    if (threads > cores) break;
    const std::string name = "pair_threads/" + std::to_string(threads);
    benchmark::RegisterBenchmark(name.c_str(), measure_threads, threads);
  }
}

}  // namespace gpupool::bench
