// Costs that must not grow with what the pool holds: a hot pair beside many live blocks or after
// many sizes, a block replaced among many, a snapshot of the statistics.
#include <benchmark/benchmark.h>

#include <string>

#include "bench/micro/rows.h"
#include "bench/support/bench_pool.h"
#include "bench/support/live_blocks.h"

namespace gpupool::bench {
namespace {

constexpr std::uint64_t kBatch = 1024;
constexpr std::uint64_t kWarmUp = 64;

void make_pairs(BenchPool& pool, StreamRef stream, std::size_t bytes, std::uint64_t pairs) {
  for (std::uint64_t i = 0; i < pairs; ++i) {
    pool.deallocate(pool.allocate(bytes, stream), stream);
  }
}

void measure_hot_pair(benchmark::State& state, std::uint64_t live) {
  constexpr std::size_t kHotBytes = 4096;
  BenchPool pool;
  const LiveBlocks blocks(pool, live);
  make_pairs(pool, blocks.stream(), kHotBytes, kWarmUp);
  while (state.KeepRunningBatch(kBatch)) make_pairs(pool, blocks.stream(), kHotBytes, kBatch);
}

void measure_replacement(benchmark::State& state, std::uint64_t live) {
  BenchPool pool;
  LiveBlocks blocks(pool, live);
  for (std::uint64_t i = 0; i < kWarmUp; ++i) blocks.replace_one();
  for (auto _ : state) blocks.replace_one();
}

void measure_after_sizes(benchmark::State& state, std::uint64_t sizes) {
  constexpr std::size_t kStepBytes = 4096;  // each of the sizes is one for the large tier, too
  constexpr std::size_t kHotBytes = std::size_t{1} << 20;
  BenchPool pool;
  const StreamRef stream = pool.open_stream();
  for (std::uint64_t n = 1; n <= sizes; ++n) make_pairs(pool, stream, n * kStepBytes, 1);
  make_pairs(pool, stream, kHotBytes, kWarmUp);
  while (state.KeepRunningBatch(kBatch)) make_pairs(pool, stream, kHotBytes, kBatch);
}

void measure_scrape(benchmark::State& state, std::uint64_t live) {
  BenchPool pool;
  const LiveBlocks blocks(pool, live);
  std::uint64_t seen = 0;
  for (auto _ : state) seen += pool->stats().live_blocks;
  if (seen < live) give_up("the pool has lost count of its live blocks");
}

}  // namespace

void register_growth_rows() {
  using Measure = void (*)(benchmark::State&, std::uint64_t);
  const auto add = [](const char* name, std::uint64_t count, Measure measure) {
    const std::string row = std::string(name) + "/" + std::to_string(count);
    benchmark::RegisterBenchmark(row.c_str(), measure, count);
  };
  constexpr std::uint64_t kLive[] = {100, 10'000, 1'000'000};
  for (const std::uint64_t live : kLive) add("live_blocks", live, measure_hot_pair);
  for (const std::uint64_t live : kLive) add("live_blocks_replace", live, measure_replacement);
  for (const std::uint64_t live : kLive) add("scrape", live, measure_scrape);
  add("distinct_sizes", 0, measure_after_sizes);
  add("distinct_sizes", 200'000, measure_after_sizes);
}

}  // namespace gpupool::bench
