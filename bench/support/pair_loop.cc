#include "bench/support/pair_loop.h"

#include <algorithm>

#include "bench/support/bench_pool.h"

using gpupool::Pool;
using gpupool::RawStream;
using gpupool::Result;
using gpupool::StreamRef;
using gpupool::bench::BenchPool;
using gpupool::bench::give_up;

struct GpupoolPairLoop {
  explicit GpupoolPairLoop(std::size_t block_bytes) : bytes(block_bytes) {}

  BenchPool pool;
  StreamRef stream = pool.open_stream();
  std::size_t bytes = 0;
};

namespace {

/// `Stream` is either way of naming a stream.
template <class Stream>
void run_pairs(Pool& pool, Stream stream, std::size_t bytes, std::uint64_t pairs) {
  for (std::uint64_t i = 0; i < pairs; ++i) {
    const Result<void*> block = pool.allocate(bytes, stream);
    if (!block.ok() || !pool.deallocate(block.value(), stream)) give_up("a pair failed");
  }
}

}  // namespace

GpupoolPairLoop* gpupool_pair_open(std::size_t bytes) {
  constexpr std::uint64_t kWarmUp = 64;
  auto* const loop = new GpupoolPairLoop(bytes);
  gpupool_pair_run(loop, kWarmUp);
  return loop;
}

void gpupool_pair_run(GpupoolPairLoop* loop, std::uint64_t pairs) {
  run_pairs(loop->pool.pool(), loop->stream, loop->bytes, pairs);
}

void gpupool_pair_run_raw(GpupoolPairLoop* loop, std::uint64_t pairs) {
  run_pairs(loop->pool.pool(), BenchPool::raw_stream(0), loop->bytes, pairs);
}

void gpupool_pair_record(GpupoolPairLoop* loop, std::uint64_t pairs) {
  constexpr std::uint64_t kBytesPerPair = 64;
  gpupool::RecordOptions options;
  options.max_file_bytes = ~std::uint64_t{0};
  // Twice, since it is rounded down to a power of two.
  options.buffer_bytes = std::max(options.buffer_bytes, 2 * pairs * kBytesPerPair);
  const auto started = loop->pool->record("/dev/null", options);
  if (!started.ok()) give_up(started.error().message);
}

void gpupool_pair_stop_recording(GpupoolPairLoop* loop) {
  const auto report = loop->pool->stop_recording();
  if (!report.ok()) give_up(report.error().message);
  if (report.value().left_out != 0) give_up("the recording has left something out");
}

void gpupool_pair_close(GpupoolPairLoop* loop) { delete loop; }
