// gpupool_peers_torch: PyTorch's caching allocator, called as libtorch calls it, without Python.
//
// Only c10 is linked: the allocator lives there, and the rest of libtorch would take seconds to
// load. PYTORCH_CUDA_ALLOC_CONF chooses the mode, as in any program with PyTorch; it is read once
// in a process, so each mode is a run of its own.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#if __has_include(<c10/cuda/PeerToPeerAccess.h>)
#include <c10/cuda/PeerToPeerAccess.h>
#define GPUPOOL_BENCH_TORCH_HAS_PEER_CACHE 1
#else
#define GPUPOOL_BENCH_TORCH_HAS_PEER_CACHE 0
#endif

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "bench/peers/cuda_streams.h"
#include "bench/peers/measure.h"
#include "bench/peers/program.h"

namespace gpupool::bench {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

/// Once a process, as libtorch does it when it first meets CUDA.
void start_torch() {
  static const bool is_started = [] {
    const auto devices = c10::cuda::device_count();
    // The context that everything else takes for granted.
    c10::cuda::set_device(0);
    cudaFree(nullptr);
#if GPUPOOL_BENCH_TORCH_HAS_PEER_CACHE
    c10::cuda::detail::init_p2p_access_cache(devices);
#endif
    allocator::init(devices);
    return true;
  }();
  static_cast<void>(is_started);
}

/// num_device_alloc came with PyTorch 2.3; before that only segments were counted.
template <class Stats>
std::uint64_t driver_allocations(const Stats& stats) {
  if constexpr (requires { stats.num_device_alloc; }) {
    return static_cast<std::uint64_t>(stats.num_device_alloc);
  } else {
    return static_cast<std::uint64_t>(stats.segment[0].allocated);
  }
}

template <class Stats>
std::optional<std::uint64_t> driver_calls(const Stats& stats) {
  if constexpr (requires { stats.num_device_alloc + stats.num_device_free; }) {
    return static_cast<std::uint64_t>(stats.num_device_alloc + stats.num_device_free);
  } else {
    return std::nullopt;
  }
}

class TorchSystem {
 public:
  using Stream = cudaStream_t;
  static constexpr bool kIsMaintained = false;
  static constexpr std::uint64_t kMaxTraceSteps = kWholeTrace;

  static Result<std::unique_ptr<TorchSystem>, Status> open(const SystemSetting& setting) {
    std::unique_ptr<TorchSystem> system(new TorchSystem());
    if (const auto made = system->streams_.create(setting.streams); !made.ok()) {
      return made.error();
    }
    start_torch();
    system->empty();
    return system;
  }

  const std::vector<Stream>& streams() const { return streams_.handles(); }
  void* allocate(std::size_t bytes, Stream stream) {
    try {
      return allocator::raw_alloc_with_stream(bytes, stream);
    } catch (const std::exception&) {  // out of memory; counted by the caller
      return nullptr;
    }
  }
  bool deallocate(void* pointer, std::size_t /*bytes*/, Stream /*stream*/) {
    if (pointer != nullptr) allocator::raw_delete(pointer);
    return true;
  }
  Usage usage() const {
    constexpr std::size_t kAllPools = 0;  // StatType::AGGREGATE
    const auto stats = allocator::getDeviceStats(0);
    Usage usage;
    usage.held_bytes = static_cast<std::uint64_t>(stats.reserved_bytes[kAllPools].current);
    usage.peak_held_bytes = static_cast<std::uint64_t>(stats.reserved_bytes[kAllPools].peak);
    usage.driver_allocations = driver_allocations(stats);
    usage.driver_calls = driver_calls(stats);
    return usage;
  }
  void reset_peak() { allocator::resetPeakStats(0); }
  void advance(std::uint64_t /*ns*/) {}
  void end_pass() {}
  void empty() {
    static_cast<void>(cudaDeviceSynchronize());
    allocator::emptyCache();
  }

 private:
  TorchSystem() = default;

  // Never destroyed, as PyTorch's own: expandable segments belong to a stream, and are still
  // synchronised with it when they are unmapped, which may be in a later measurement.
  CudaStreams& streams_ = *new CudaStreams;
};

/// The mode that the environment asks for, under either of the variable's two names.
std::string system_name() {
  for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    if (std::string(value).find("expandable_segments:True") != std::string::npos) {
      return "PyTorch, expandable segments";
    }
  }
  return "PyTorch";
}

}  // namespace
}  // namespace gpupool::bench

int main(int argc, char** argv) {
  using namespace gpupool::bench;
  Program program;
  program.name = "gpupool_peers_torch";
  program.systems = {{system_name(), [](const Plan& plan) {
                        return measure_system<TorchSystem>(system_name(), plan);
                      }}};
  return run_program(argc, argv, program);
}
