// gpupool itself, by its public interface, with its default options: thread caches, statistics,
// misuse checks and all.
//
// Streams: adopted once, as a program does (StreamRef). Cost: gpupool/pool.h.
#ifndef GPUPOOL_BENCH_BASELINES_POOL_SYSTEM_H_
#define GPUPOOL_BENCH_BASELINES_POOL_SYSTEM_H_

#include <memory>
#include <vector>

#include "bench/baselines/allocation_system.h"
#include "gpupool/clock.h"
#include "gpupool/pool.h"

namespace gpupool::baselines {

class PoolSystem final : public AllocationSystem {
 public:
  /// Requires: `backend` and the streams outlive the system.
  static Result<std::unique_ptr<AllocationSystem>, Status> create(
      Backend& backend, const std::vector<RawStream>& streams);
  ~PoolSystem() override;

  Result<void*> allocate(std::uint64_t bytes, StreamIndex stream) override;
  bool deallocate(void* pointer, StreamIndex stream) override;
  void pass_time(std::uint64_t ns) override;
  void empty_caches() override;
  std::string find_fault() const override;

 private:
  explicit PoolSystem(Backend& backend) : backend_(backend) {}

  Backend& backend_;
  VirtualClock clock_;  // the program's time alone: what the driver takes ages no cache
  std::unique_ptr<Pool> pool_;
  std::vector<StreamRef> streams_;
};

}  // namespace gpupool::baselines

#endif  // GPUPOOL_BENCH_BASELINES_POOL_SYSTEM_H_
