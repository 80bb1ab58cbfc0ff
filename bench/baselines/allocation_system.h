// What every system that is compared has to offer: memory of one device for a few streams.
//
// A system takes its memory from a Backend and gives all of it back when it ends. What it costs is
// counted there (metered_backend.h), the same for everyone.
//
// Stream order, as gpupool has it: what a stream freed that stream may have back at once; another
// one only when the work before the free is known to be complete. deallocate() says that every use
// of the block is ordered before later work of the stream it names.
//
// Invariants: live blocks do not overlap and are aligned to 512 bytes; a call that fails leaves
// every block as it was. Requires: all blocks are freed before the system ends.
// Thread safety: one thread, so that the textbook forms are as fast as they get; only gpupool's own
// has what a program of several threads needs. Cost: each header says its own.
#ifndef GPUPOOL_BENCH_BASELINES_ALLOCATION_SYSTEM_H_
#define GPUPOOL_BENCH_BASELINES_ALLOCATION_SYSTEM_H_

#include <cstdint>
#include <string>

#include "gpupool/status.h"

namespace gpupool::baselines {

/// A stream by its place in the list that the system was made for.
using StreamIndex = std::uint16_t;

/// The smallest block, and what every block is aligned to: as cudaMalloc has it.
inline constexpr std::uint64_t kGranuleBytes = 512;

class AllocationSystem {
 public:
  AllocationSystem() = default;
  virtual ~AllocationSystem() = default;
  AllocationSystem(const AllocationSystem&) = delete;
  AllocationSystem& operator=(const AllocationSystem&) = delete;

  /// 0 bytes: nullptr.
  virtual Result<void*> allocate(std::uint64_t bytes, StreamIndex stream) = 0;
  /// False where `pointer` is no live block of this system. nullptr is valid and does nothing.
  virtual bool deallocate(void* pointer, StreamIndex stream) = 0;

  /// So much time of the program has passed: what the system wants done now and then, away from the
  /// requests.
  virtual void pass_time(std::uint64_t /*ns*/) {}
  /// Puts what was freed where everybody finds it, as at the end of a program's phase.
  virtual void empty_caches() {}
  /// What contradicts itself in the system's structures, or with what its backend holds; empty
  /// where all is well. Slow: for tests. Requires: the backend serves this system alone.
  virtual std::string find_fault() const { return {}; }
};

}  // namespace gpupool::baselines

#endif  // GPUPOOL_BENCH_BASELINES_ALLOCATION_SYSTEM_H_
