// One thread allocates, another frees what it is handed: the pattern of data loaders and of a
// communication thread.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <thread>

#include "bench/micro/rows.h"
#include "bench/support/bench_pool.h"
#include "bench/support/hand_over_ring.h"

namespace gpupool::bench {
namespace {

enum class FreedOn { stream_of_allocation, own_stream };

void free_until_end(BenchPool& pool, HandOverRing& ring, StreamRef stream) {
  while (void* const block = ring.take()) pool.deallocate(block, stream);
}

void measure_hand_over(benchmark::State& state, std::size_t bytes, FreedOn freed_on) {
  BenchPool pool;
  const StreamRef stream = pool.open_stream(0);
  const StreamRef free_stream = freed_on == FreedOn::own_stream ? pool.open_stream(1) : stream;
  const auto ring = std::make_unique<HandOverRing>();
  std::thread consumer([&] { free_until_end(pool, *ring, free_stream); });
  // Until the blocks have gone round a few times.
  for (std::uint64_t i = 0; i < 4 * HandOverRing::kCapacity; ++i) {
    ring->give(pool.allocate(bytes, stream));
  }
  for (auto _ : state) ring->give(pool.allocate(bytes, stream));
  ring->give(nullptr);
  ring->publish();
  consumer.join();
}

}  // namespace

void register_hand_over_rows() {
  for (const std::size_t bytes : {std::size_t{512}, std::size_t{2} << 20}) {
    const std::string suffix = "/2/" + std::to_string(bytes);
    benchmark::RegisterBenchmark(("producer_consumer" + suffix).c_str(), measure_hand_over, bytes,
                                 FreedOn::stream_of_allocation);
    benchmark::RegisterBenchmark(("producer_consumer_own_stream" + suffix).c_str(),
                                 measure_hand_over, bytes, FreedOn::own_stream);
  }
}

}  // namespace gpupool::bench
