// gpupool_peers_rmm: RMM's pool and arena over cudaMalloc. Takes both forms of its interface: the
// stream as the last argument with the alignment left out, and CCCL's with the stream first.
#include <exception>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <type_traits>
#include <vector>

#include "bench/peers/cuda_streams.h"
#include "bench/peers/measure.h"
#include "bench/peers/program.h"

namespace gpupool::bench {
namespace {

constexpr std::size_t kAlignment = 256;  // RMM's own

// Templates, so that the form which this version of RMM does not have is never looked at.
template <class Resource>
void* allocate_from(Resource& resource, rmm::cuda_stream_view stream, std::size_t bytes) {
  if constexpr (requires { resource.allocate(stream, bytes, kAlignment); }) {
    return resource.allocate(stream, bytes, kAlignment);
  } else {
    return resource.allocate(bytes, stream);
  }
}

template <class Resource>
void give_back(Resource& resource, rmm::cuda_stream_view stream, void* pointer, std::size_t bytes) {
  if constexpr (requires { resource.deallocate(stream, pointer, bytes, kAlignment); }) {
    resource.deallocate(stream, pointer, bytes, kAlignment);
  } else {
    resource.deallocate(pointer, bytes, stream);
  }
}

/// `Resource` over cudaMalloc, as it starts by default but for the pool, which has to be told how
/// much to take at first.
template <class Resource>
struct Holder;

template <>
struct Holder<rmm::mr::pool_memory_resource> {
  rmm::mr::cuda_memory_resource upstream;
  rmm::mr::pool_memory_resource resource{upstream, std::size_t{1} << 20};
  std::optional<std::uint64_t> held_bytes() const { return resource.pool_size(); }
};

template <>
struct Holder<rmm::mr::arena_memory_resource> {
  rmm::mr::cuda_memory_resource upstream;
  rmm::mr::arena_memory_resource resource{upstream};
  std::optional<std::uint64_t> held_bytes() const { return std::nullopt; }
};

template <class Resource>
class RmmSystem {
 public:
  using Stream = cudaStream_t;
  static constexpr bool kIsMaintained = false;
  static constexpr std::uint64_t kMaxTraceSteps = kWholeTrace;

  static Result<std::unique_ptr<RmmSystem>, Status> open(const SystemSetting& setting) {
    std::unique_ptr<RmmSystem> system(new RmmSystem());
    if (const auto made = system->streams_.create(setting.streams); !made.ok()) {
      return made.error();
    }
    system->empty();
    return system;
  }

  const std::vector<Stream>& streams() const { return streams_.handles(); }
  void* allocate(std::size_t bytes, Stream stream) {
    try {
      return allocate_from(holder_->resource, rmm::cuda_stream_view(stream), bytes);
    } catch (const std::exception&) {  // out of memory; counted by the caller
      return nullptr;
    }
  }
  bool deallocate(void* pointer, std::size_t bytes, Stream stream) {
    if (pointer != nullptr) {
      give_back(holder_->resource, rmm::cuda_stream_view(stream), pointer, bytes);
    }
    return true;
  }
  Usage usage() const {
    Usage usage;
    usage.held_bytes = holder_->held_bytes();
    usage.peak_held_bytes = usage.held_bytes;  // it never gives back while it lives
    return usage;
  }
  void reset_peak() {}
  void advance(std::uint64_t /*ns*/) {}
  void end_pass() {}
  /// It has no way to give back what it holds but to end.
  void empty() {
    static_cast<void>(cudaDeviceSynchronize());
    holder_.reset();
    holder_ = std::make_unique<Holder<Resource>>();
  }

 private:
  RmmSystem() = default;

  CudaStreams streams_;
  std::unique_ptr<Holder<Resource>> holder_;
};

using RmmPool = RmmSystem<rmm::mr::pool_memory_resource>;
using RmmArena = RmmSystem<rmm::mr::arena_memory_resource>;

}  // namespace
}  // namespace gpupool::bench

int main(int argc, char** argv) {
  using namespace gpupool::bench;
  Program program;
  program.name = "gpupool_peers_rmm";
  program.systems = {
      {"RMM pool", [](const Plan& plan) { return measure_system<RmmPool>("RMM pool", plan); }},
      {"RMM arena", [](const Plan& plan) { return measure_system<RmmArena>("RMM arena", plan); }}};
  return run_program(argc, argv, program);
}
