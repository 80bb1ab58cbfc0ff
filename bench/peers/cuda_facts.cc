#include "bench/peers/cuda_facts.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "bench/peers/cuda_streams.h"
#include "bench/peers/long_job.h"
#include "bench/peers/timing.h"

namespace gpupool::bench {
namespace {

constexpr unsigned char kPattern = 0xA5;
constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kGiB = 1024 * kMiB;
constexpr std::uint64_t kLookedAtOnce = 64 * kMiB;

struct Counts {
  std::uint64_t pattern = 0;
  std::uint64_t other = 0;
};

Counts count_bytes(const unsigned char* bytes, std::uint64_t size) {
  constexpr std::uint64_t kWord = sizeof(std::uint64_t);
  Counts counts;
  std::uint64_t at = 0;
  for (; at + kWord <= size; at += kWord) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, kWord);
    if (word == 0) continue;  // nearly all of them, mostly
    for (std::uint64_t i = at; i < at + kWord; ++i) {
      if (bytes[i] == kPattern) ++counts.pattern;
      if (bytes[i] != kPattern && bytes[i] != 0) ++counts.other;
    }
  }
  for (; at < size; ++at) {
    if (bytes[at] == kPattern) ++counts.pattern;
    if (bytes[at] != kPattern && bytes[at] != 0) ++counts.other;
  }
  return counts;
}

/// Pinned host memory to look at device memory in.
class Mirror {
 public:
  Mirror() {
    if (cudaMallocHost(&data_, kLookedAtOnce) != cudaSuccess) data_ = nullptr;
  }
  ~Mirror() { static_cast<void>(cudaFreeHost(data_)); }
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  Result<Counts, Status> look_at(const void* block, std::uint64_t bytes) const {
    if (data_ == nullptr) return Status{Error::out_of_memory, "no pinned memory"};
    const auto copied =
        check_cuda(cudaMemcpy(data_, block, std::min(bytes, kLookedAtOnce), cudaMemcpyDeviceToHost),
                   "cannot read device memory");
    if (!copied.ok()) return copied.error();
    return count_bytes(static_cast<const unsigned char*>(data_), std::min(bytes, kLookedAtOnce));
  }

 private:
  void* data_ = nullptr;
};

/// Blocks that are freed at the end.
class Blocks {
 public:
  Blocks() = default;
  ~Blocks() {
    for (void* block : blocks_) static_cast<void>(cudaFree(block));
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  Result<void*, Status> add(std::uint64_t bytes) {
    void* block = nullptr;
    const auto made = check_cuda(cudaMalloc(&block, bytes), "cudaMalloc");
    if (!made.ok()) return made.error();
    blocks_.push_back(block);
    return block;
  }

 private:
  std::vector<void*> blocks_;
};

/// Runs this program once more to fill memory and end. The number of bytes it filled.
Result<std::uint64_t, Status> let_a_stranger_fill() {
  const std::string command = std::string("exec /proc/$PPID/exe ") + kFillArgument;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  unsigned long long filled = 0;
  if (pipe == nullptr || std::fscanf(pipe.get(), "%llu", &filled) != 1) {
    return Status{Error::backend_failure, "the process that fills memory did not say how much"};
  }
  return std::uint64_t{filled};
}

Result<StrangerTrial, Status> try_stranger() {
  constexpr std::uint64_t kMostLookedAt = 4 * kGiB;
  StrangerTrial trial;
  const auto filled = let_a_stranger_fill();
  if (!filled.ok()) return filled.error();
  trial.filled_bytes = filled.value();
  const Mirror mirror;
  Blocks blocks;
  while (trial.looked_at_bytes < kMostLookedAt) {
    const auto block = blocks.add(kLookedAtOnce);
    if (!block.ok()) break;  // a small device: what was looked at so far is the answer
    const auto counts = mirror.look_at(block.value(), kLookedAtOnce);
    if (!counts.ok()) return counts.error();
    trial.looked_at_bytes += kLookedAtOnce;
    trial.pattern_bytes += counts.value().pattern;
    trial.other_bytes += counts.value().other;
  }
  return trial;
}

Result<ReuseTrial, Status> try_reuse(const Mirror& mirror, std::uint64_t bytes, bool has_neighbour,
                                     std::uint64_t rounds) {
  ReuseTrial trial;
  trial.bytes = bytes;
  trial.has_neighbour = has_neighbour;
  Blocks neighbours;
  if (has_neighbour) {
    if (const auto made = neighbours.add(bytes); !made.ok()) return made.error();
  }
  const void* last = nullptr;
  for (std::uint64_t round = 0; round <= rounds; ++round) {
    void* block = nullptr;
    auto done = check_cuda(cudaMalloc(&block, bytes), "cudaMalloc");
    if (!done.ok()) return done.error();
    if (round > 0) {  // the first block is nobody's
      const auto counts = mirror.look_at(block, bytes);
      if (!counts.ok()) return counts.error();
      ++trial.rounds;
      if (counts.value().pattern != 0) ++trial.rounds_with_pattern;
      if (counts.value().other != 0) ++trial.rounds_with_other;
      if (block == last) ++trial.rounds_at_same_address;
    }
    last = block;
    done = check_cuda(cudaMemset(block, kPattern, bytes), "cannot fill memory");
    if (done.ok()) done = check_cuda(cudaDeviceSynchronize(), "cannot fill memory");
    if (done.ok()) done = check_cuda(cudaFree(block), "cudaFree");
    if (!done.ok()) return done.error();
  }
  return trial;
}

/// Times one call, which may find the device busy or idle.
class StallBench {
 public:
  StallBench(LongJob& job, cudaStream_t stream, std::chrono::nanoseconds job_time)
      : job_(job), stream_(stream), job_time_(job_time) {}

  Result<StallTrial, Status> measure(bool is_free, std::uint64_t bytes, std::uint64_t rounds) {
    StallTrial trial;
    trial.call = is_free ? "cudaFree" : "cudaMalloc";
    trial.bytes = bytes;
    trial.rounds = rounds;
    std::vector<double> idle;
    std::vector<double> busy;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      for (const bool is_busy : {false, true}) {
        bool was_over = false;
        const auto us = time_one(is_free, bytes, is_busy, was_over);
        if (!us.ok()) return us.error();
        (is_busy ? busy : idle).push_back(us.value());
        if (is_busy && was_over) ++trial.waited;
      }
    }
    trial.idle_us = median(idle);
    trial.busy_us = median(busy);
    return trial;
  }

 private:
  Result<double, Status> time_one(bool is_free, std::uint64_t bytes, bool is_busy, bool& was_over) {
    void* block = nullptr;
    auto done = check_cuda(is_free ? cudaMalloc(&block, bytes) : cudaSuccess, "cudaMalloc");
    if (done.ok()) done = check_cuda(cudaDeviceSynchronize(), "the device failed");
    if (done.ok() && is_busy) done = job_.start(stream_, job_time_);
    if (!done.ok()) return done.error();
    // Long enough for the work to have begun, short beside it.
    if (is_busy) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Time start = now();
    const cudaError_t called = is_free ? cudaFree(block) : cudaMalloc(&block, bytes);
    constexpr double kNsPerUs = 1e3;
    const double us = ns_since(start) / kNsPerUs;
    was_over = cudaStreamQuery(stream_) != cudaErrorNotReady;
    static_cast<void>(cudaGetLastError());  // "not ready" is an answer
    done = check_cuda(called, is_free ? "cudaFree" : "cudaMalloc");
    if (done.ok()) done = check_cuda(cudaDeviceSynchronize(), "the device failed");
    if (done.ok() && !is_free) done = check_cuda(cudaFree(block), "cudaFree");
    if (!done.ok()) return done.error();
    return us;
  }

  LongJob& job_;
  cudaStream_t stream_;
  std::chrono::nanoseconds job_time_;
};

Result<void, Status> measure_stalls(CudaMallocFacts& facts) {
  constexpr std::chrono::milliseconds kJobTime{20};
  constexpr std::uint64_t kRounds = 11;
  CudaStreams streams;
  if (const auto made = streams.create({1}); !made.ok()) return made.error();
  const auto job = LongJob::create();
  if (!job.ok()) return job.error();
  facts.job_kind = job.value()->kind();
  facts.job_ms = static_cast<double>(kJobTime.count());
  StallBench bench(*job.value(), streams.handles().front(), kJobTime);
  for (const std::uint64_t bytes : {64 * kKiB, 16 * kMiB, 256 * kMiB}) {
    for (const bool is_free : {false, true}) {
      const auto trial = bench.measure(is_free, bytes, kRounds);
      if (!trial.ok()) return trial.error();
      facts.stalls.push_back(trial.value());
    }
  }
  return {};
}

}  // namespace

Result<CudaMallocFacts, Status> measure_cuda_malloc_facts() {
  CudaMallocFacts facts;
  if (const auto set = check_cuda(cudaSetDevice(0), "no CUDA device"); !set.ok()) {
    return set.error();
  }
  const auto stranger = try_stranger();
  if (!stranger.ok()) return stranger.error();
  facts.stranger = stranger.value();
  {
    const Mirror mirror;
    for (const std::uint64_t bytes : {std::uint64_t{512}, 64 * kKiB, kMiB, 16 * kMiB, 256 * kMiB}) {
      for (const bool has_neighbour : {false, true}) {
        const std::uint64_t rounds = bytes > 16 * kMiB ? 20 : 100;
        const auto trial = try_reuse(mirror, bytes, has_neighbour, rounds);
        if (!trial.ok()) return trial.error();
        facts.reuse.push_back(trial.value());
      }
    }
  }
  if (const auto done = measure_stalls(facts); !done.ok()) return done.error();
  return facts;
}

int fill_and_end() {
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaSetDevice(0) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) return 1;
  constexpr std::uint64_t kPiece = 256 * kMiB;
  std::uint64_t filled = 0;
  while (filled + kPiece <= free / 2) {
    void* block = nullptr;
    if (cudaMalloc(&block, kPiece) != cudaSuccess) break;
    if (cudaMemset(block, kPattern, kPiece) != cudaSuccess) break;
    filled += kPiece;
  }
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  std::printf("%llu\n", static_cast<unsigned long long>(filled));
  return 0;
}

}  // namespace gpupool::bench
