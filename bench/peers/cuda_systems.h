// What the CUDA runtime itself offers as systems under test: cudaMalloc with cudaFree, and
// cudaMallocAsync with cudaFreeAsync on the device's default pool, which keeps all it has.
//
// Thread safety: as system.h says.
#ifndef GPUPOOL_BENCH_PEERS_CUDA_SYSTEMS_H_
#define GPUPOOL_BENCH_PEERS_CUDA_SYSTEMS_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <vector>

#include "bench/peers/cuda_streams.h"
#include "bench/peers/system.h"

namespace gpupool::bench {

class CudaMallocSystem {
 public:
  using Stream = cudaStream_t;
  static constexpr bool kIsMaintained = false;
  // At some 80 us a pair, a second and a half.
  static constexpr std::uint64_t kMaxTraceSteps = 20'000;

  static Result<std::unique_ptr<CudaMallocSystem>, Status> open(const SystemSetting& setting);

  const std::vector<Stream>& streams() const { return streams_.handles(); }
  void* allocate(std::size_t bytes, Stream /*stream*/) {
    allocations_.fetch_add(1, std::memory_order_relaxed);
    void* block = nullptr;
    if (cudaMalloc(&block, bytes) == cudaSuccess) return block;
    static_cast<void>(cudaGetLastError());  // reported as nullptr; not to be met again later
    return nullptr;
  }
  bool deallocate(void* pointer, std::size_t /*bytes*/, Stream /*stream*/) {
    return cudaFree(pointer) == cudaSuccess;
  }
  Usage usage() const;
  void reset_peak() {}
  void advance(std::uint64_t /*ns*/) {}
  void end_pass() {}
  void empty() {}

 private:
  CudaMallocSystem() = default;

  CudaStreams streams_;
  std::size_t free_at_start_ = 0;
  std::atomic<std::uint64_t> allocations_{0};
};

class CudaMallocAsyncSystem {
 public:
  using Stream = cudaStream_t;
  static constexpr bool kIsMaintained = false;
  static constexpr std::uint64_t kMaxTraceSteps = kWholeTrace;

  static Result<std::unique_ptr<CudaMallocAsyncSystem>, Status> open(const SystemSetting& setting);
  ~CudaMallocAsyncSystem();
  CudaMallocAsyncSystem(const CudaMallocAsyncSystem&) = delete;
  CudaMallocAsyncSystem& operator=(const CudaMallocAsyncSystem&) = delete;

  const std::vector<Stream>& streams() const { return streams_.handles(); }
  void* allocate(std::size_t bytes, Stream stream) {
    void* block = nullptr;
    if (cudaMallocAsync(&block, bytes, stream) == cudaSuccess) return block;
    static_cast<void>(cudaGetLastError());  // reported as nullptr; not to be met again later
    return nullptr;
  }
  bool deallocate(void* pointer, std::size_t /*bytes*/, Stream stream) {
    return pointer == nullptr || cudaFreeAsync(pointer, stream) == cudaSuccess;
  }
  Usage usage() const;
  void reset_peak();
  void advance(std::uint64_t /*ns*/) {}
  void end_pass() {}
  void empty();

 private:
  CudaMallocAsyncSystem() = default;

  CudaStreams streams_;
  cudaMemPool_t pool_ = nullptr;
};

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_CUDA_SYSTEMS_H_
