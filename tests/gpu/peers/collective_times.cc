// How long collectives take on blocks of pools beside the same on memory of cudaMalloc.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/gpu/peers/collectives.h"
#include "tests/gpu/peers/communicators.h"
#include "tests/support/units.h"

namespace gpupool::gpu_tests {
namespace {

struct Size {
  std::uint64_t bytes = 0;
  int operations = 0;  // a run
};
// Runs of some tens of milliseconds, so that a late launch weighs little.
constexpr std::uint64_t kLargest = 256 * kMiB;
constexpr Size kSizes[] = {{1 * kMiB, 3000}, {16 * kMiB, 300}, {kLargest, 40}};
constexpr int kWarmUps = 5;
constexpr int kMostSeries = 5;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Two events on each device, around what is timed.
class Stopwatch {
 public:
  explicit Stopwatch(const std::vector<std::unique_ptr<PoolStream>>& streams)
      : streams_(streams), starts_(streams.size()), ends_(streams.size()) {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const OnDevice on(streams_[i]->device());
      must(cudaEventCreate(&starts_[i]), "cudaEventCreate");
      must(cudaEventCreate(&ends_[i]), "cudaEventCreate");
    }
  }
  ~Stopwatch() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      // Nothing could be done about an error.
      static_cast<void>(cudaEventDestroy(starts_[i]));
      static_cast<void>(cudaEventDestroy(ends_[i]));
    }
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void start() { record(starts_); }
  /// Of the slowest device, once it is done.
  double stop_us() {
    record(ends_);
    float slowest_ms = 0;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const OnDevice on(streams_[i]->device());
      streams_[i]->synchronize();
      float ms = 0;
      must(cudaEventElapsedTime(&ms, starts_[i], ends_[i]), "cudaEventElapsedTime");
      slowest_ms = std::max(slowest_ms, ms);
    }
    return 1000.0 * slowest_ms;
  }

 private:
  void record(const std::vector<cudaEvent_t>& events) {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const OnDevice on(streams_[i]->device());
      must(cudaEventRecord(events[i], streams_[i]->raw()), "cudaEventRecord");
    }
  }

  const std::vector<std::unique_ptr<PoolStream>>& streams_;
  std::vector<cudaEvent_t> starts_;
  std::vector<cudaEvent_t> ends_;
};

/// Buffers of one kind of memory for every rank, filled, and freed at the end.
class Buffers {
 public:
  using Streams = std::vector<std::unique_ptr<PoolStream>>;
  Buffers(Streams& streams, std::uint64_t bytes, bool is_of_pool)
      : streams_(streams), is_of_pool_(is_of_pool) {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      PoolStream& stream = *streams_[i];
      RankBuffers rank{stream.raw(), get(stream, bytes), get(stream, bytes),
                       get(stream, bytes * streams_.size())};
      ranks_.push_back(rank);
      // No zeros, which move faster than data.
      const OnDevice on(stream.device());
      stream.ramps().fill(stream.raw(), rank.sent, bytes, ramp_of(bytes, i));
    }
  }
  ~Buffers() {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      for (void* block : {ranks_[i].sent, ranks_[i].received, ranks_[i].gathered}) {
        free(*streams_[i], block);
      }
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  const std::vector<RankBuffers>& ranks() const { return ranks_; }

 private:
  void* get(PoolStream& stream, std::uint64_t bytes) const {
    if (is_of_pool_) return stream.get_block(bytes, AllocationClass::contiguous);
    const OnDevice on(stream.device());
    void* memory = nullptr;
    must(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
  }
  void free(PoolStream& stream, void* memory) const {
    try {
      if (is_of_pool_) {
        stream.free_block(memory);
      } else {
        stream.synchronize();
        must(cudaFree(memory), "cudaFree");
      }
    } catch (const Broken&) {
      // The pool's end reports what was not freed; of the driver's the process's end frees it.
    }
  }

  Streams& streams_;
  const bool is_of_pool_;
  std::vector<RankBuffers> ranks_;
};

/// Microseconds an operation.
double run(Communicators& communicators, Stopwatch& stopwatch, Operation operation,
           const Buffers& buffers, const Size& size, Watch& watch) {
  for (int i = 0; i < kWarmUps; ++i) {
    communicators.launch(operation, buffers.ranks(), size.bytes, watch);
  }
  stopwatch.start();
  for (int i = 0; i < size.operations; ++i) {
    communicators.launch(operation, buffers.ranks(), size.bytes, watch);
  }
  return stopwatch.stop_us() / size.operations;
}

void compare(const std::vector<double>& of_plain, const std::vector<double>& of_pool,
             Timing& timing) {
  timing.pool_us = median(of_pool);
  timing.plain_us = median(of_plain);
  const auto [fastest, slowest] = std::minmax_element(of_plain.begin(), of_plain.end());
  timing.plain_spread = (*slowest - *fastest) / timing.plain_us;
}

}  // namespace

void time_collectives(Communicators& communicators, Task& task, bool is_registered, int runs) {
  // What a rank gives, its sum, and what all give; and some more.
  Fleet fleet(task.cards, task.mode, kLargest * (task.cards.size() + 3), task.watch);
  Buffers::Streams streams;
  for (std::size_t i = 0; i < fleet.count(); ++i) {
    streams.push_back(std::make_unique<PoolStream>(fleet, i));
  }
  Stopwatch stopwatch(streams);
  task.row.wanted_rounds = 2 * std::size(kSizes);
  for (const Size& size : kSizes) {
    const Buffers plain(streams, size.bytes, false);
    const Buffers pooled(streams, size.bytes, true);
    std::optional<Registration> registered_plain;
    std::optional<Registration> registered_pooled;
    if (is_registered) {
      registered_plain.emplace(communicators, plain.ranks(), size.bytes);
      registered_pooled.emplace(communicators, pooled.ranks(), size.bytes);
    }
    for (const Operation operation : {Operation::all_reduce, Operation::all_gather}) {
      Timing timing{task.mode.name, to_string(operation), is_registered, size.bytes};
      // Where cudaMalloc's own runs differ by more than is asked, it was the host that was timed:
      // small operations take about as long as their launches. Such a series decides nothing.
      int series = 0;
      do {
        std::vector<double> of_plain;
        std::vector<double> of_pool;
        for (int i = 0; i < runs; ++i) {
          of_plain.push_back(run(communicators, stopwatch, operation, plain, size, task.watch));
          of_pool.push_back(run(communicators, stopwatch, operation, pooled, size, task.watch));
        }
        compare(of_plain, of_pool, timing);
      } while (timing.plain_spread > kMostSlower && ++series < kMostSeries);
      if (timing.ratio() > 1 + kMostSlower) {
        task.watch.report().fault(
            timing.operation + " of " + std::to_string(size.bytes) + " bytes, " + task.mode.name,
            "takes " + std::to_string(timing.ratio()) + " times as long on the pool's blocks");
      }
      task.watch.report().add(timing);
      task.watch.report().progress = ++task.row.rounds;
    }
  }
}

}  // namespace gpupool::gpu_tests
