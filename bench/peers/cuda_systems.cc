#include "bench/peers/cuda_systems.h"

#include <limits>

namespace gpupool::bench {

Result<std::unique_ptr<CudaMallocSystem>, Status> CudaMallocSystem::open(
    const SystemSetting& setting) {
  std::unique_ptr<CudaMallocSystem> system(new CudaMallocSystem());
  if (const auto made = system->streams_.create(setting.streams); !made.ok()) return made.error();
  std::size_t total = 0;
  const auto read =
      check_cuda(cudaMemGetInfo(&system->free_at_start_, &total), "cannot read free memory");
  if (!read.ok()) return read.error();
  return system;
}

Usage CudaMallocSystem::usage() const {
  Usage usage;
  std::size_t free = 0;
  std::size_t total = 0;
  // What the device has lost since the start: the runtime does not say what a block really takes.
  if (cudaMemGetInfo(&free, &total) == cudaSuccess && free <= free_at_start_) {
    usage.held_bytes = free_at_start_ - free;
  }
  usage.driver_allocations = allocations_.load();
  return usage;
}

Result<std::unique_ptr<CudaMallocAsyncSystem>, Status> CudaMallocAsyncSystem::open(
    const SystemSetting& setting) {
  std::unique_ptr<CudaMallocAsyncSystem> system(new CudaMallocAsyncSystem());
  if (const auto made = system->streams_.create(setting.streams); !made.ok()) return made.error();
  const auto found =
      check_cuda(cudaDeviceGetDefaultMemPool(&system->pool_, 0), "no default memory pool");
  if (!found.ok()) return found.error();
  std::uint64_t threshold = std::numeric_limits<std::uint64_t>::max();
  const auto set = check_cuda(
      cudaMemPoolSetAttribute(system->pool_, cudaMemPoolAttrReleaseThreshold, &threshold),
      "cannot let the memory pool keep what it has");
  if (!set.ok()) return set.error();
  return system;
}

CudaMallocAsyncSystem::~CudaMallocAsyncSystem() {
  if (pool_ != nullptr) empty();
}

Usage CudaMallocAsyncSystem::usage() const {
  Usage usage;
  std::uint64_t bytes = 0;
  if (cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &bytes) == cudaSuccess) {
    usage.held_bytes = bytes;
  }
  if (cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &bytes) == cudaSuccess) {
    usage.peak_held_bytes = bytes;
  }
  return usage;
}

void CudaMallocAsyncSystem::reset_peak() {
  std::uint64_t zero = 0;  // the only value that may be set
  static_cast<void>(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &zero));
}

void CudaMallocAsyncSystem::empty() {
  // Frees are in stream order: the pool can give back only what is past them.
  static_cast<void>(cudaDeviceSynchronize());
  static_cast<void>(cudaMemPoolTrimTo(pool_, 0));
}

}  // namespace gpupool::bench
