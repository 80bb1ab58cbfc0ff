// No pool at all: each request is one cudaMalloc, each free one cudaFree.
//
// Streams: cudaFree waits for the device, so that what it gave back nobody uses any more.
// Cost: 41 us for 2 MiB and less, 1 ms for 1 GiB, each way, on an idle device; the wait for running
// work comes on top and is not modelled.
#ifndef GPUPOOL_BENCH_BASELINES_DRIVER_ONLY_H_
#define GPUPOOL_BENCH_BASELINES_DRIVER_ONLY_H_

#include "bench/baselines/allocation_system.h"
#include "gpupool/backend.h"

namespace gpupool::baselines {

class DriverOnly final : public AllocationSystem {
 public:
  /// Requires: `backend` outlives the system.
  explicit DriverOnly(Backend& backend) : backend_(backend) {}

  Result<void*> allocate(std::uint64_t bytes, StreamIndex stream) override;
  bool deallocate(void* pointer, StreamIndex stream) override;

 private:
  Backend& backend_;
};

}  // namespace gpupool::baselines

#endif  // GPUPOOL_BENCH_BASELINES_DRIVER_ONLY_H_
