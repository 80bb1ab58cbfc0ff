// One pool as a program would have it - default options, so statistics, tags and misuse detection
// are on - over a device that does nothing, and streams to use it with.
//
// Whatever goes wrong ends the program with a line on stderr: a benchmark that goes on after a
// failed allocation measures something else than it says.
//
// Thread safety: as Pool; open_stream() by one thread at a time. Cost: a pool's start.
#ifndef GPUPOOL_BENCH_SUPPORT_BENCH_POOL_H_
#define GPUPOOL_BENCH_SUPPORT_BENCH_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "bench/support/noop_backend.h"
#include "gpupool/clock.h"
#include "gpupool/pool.h"

namespace gpupool::bench {

/// Ends the program, saying why.
[[noreturn]] void give_up(std::string_view reason);

class BenchPool {
 public:
  explicit BenchPool(const Clock& clock = steady_clock(), Recycling recycling = Recycling::eager);

  Pool& pool() { return *pool_; }
  Pool* operator->() { return pool_.get(); }
  /// A stream of the driver, by number; numbers name the same stream each time.
  static RawStream raw_stream(std::uint64_t number);
  /// Adopts it.
  StreamRef open_stream(std::uint64_t number = 0);

  void* allocate(std::size_t bytes, StreamRef stream) {
    const Result<void*> block = pool_->allocate(bytes, stream);
    if (!block.ok()) give_up_on(bytes, block.error());
    return block.value();
  }
  void deallocate(void* block, StreamRef stream) {
    if (!pool_->deallocate(block, stream)) give_up("the pool refused to take a block back");
  }

 private:
  [[noreturn]] static void give_up_on(std::size_t bytes, Error error);

  NoopBackend backend_;
  std::unique_ptr<Pool> pool_;
};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_SUPPORT_BENCH_POOL_H_
