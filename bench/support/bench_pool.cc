#include "bench/support/bench_pool.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace gpupool::bench {

void give_up(std::string_view reason) {
  std::fprintf(stderr, "benchmark: %.*s\n", static_cast<int>(reason.size()), reason.data());
  std::exit(1);
}

BenchPool::BenchPool(const Clock& clock, Recycling recycling) : backend_(clock) {
  PoolOptions options;
  options.runtime.recycling = recycling;
  options.misuse_handler = [](const MisuseReport&) { give_up("the pool saw a misuse"); };
  auto pool = Pool::create(backend_, std::move(options));
  if (!pool.ok()) give_up(pool.error().message);
  pool_ = std::move(pool).value();
}

RawStream BenchPool::raw_stream(std::uint64_t number) {
  // Far from the values that have a meaning for the driver.
  constexpr std::uint64_t kFirst = 0x10000;
  constexpr std::uint64_t kStep = 0x100;
  return reinterpret_cast<RawStream>(std::uintptr_t{kFirst + number * kStep});
}

StreamRef BenchPool::open_stream(std::uint64_t number) {
  const Result<StreamRef> stream = pool_->adopt_stream(raw_stream(number));
  if (!stream.ok()) give_up("the pool did not take a stream");
  return stream.value();
}

void BenchPool::give_up_on(std::size_t bytes, Error error) {
  give_up("an allocation of " + std::to_string(bytes) + " bytes failed: " + to_string(error));
}

}  // namespace gpupool::bench
