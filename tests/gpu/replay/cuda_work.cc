#include <cuda_runtime_api.h>

#include <utility>

#include "tests/gpu/kernels.h"
#include "tests/gpu/replay/block_work.h"

namespace gpupool::gpu_tests {
namespace {

class CudaWork final : public BlockWork {
 public:
  CudaWork(std::unique_ptr<Kernels> kernels, std::vector<RawStream> streams)
      : kernels_(std::move(kernels)), streams_(std::move(streams)) {}

  Result<void, Status> fill(std::uint16_t stream, const Pattern& pattern) override {
    return kernels_->fill(streams_[stream], pattern);
  }
  Result<void, Status> check(std::uint16_t stream, const Pattern& pattern) override {
    return kernels_->check(streams_[stream], pattern);
  }
  Result<void, Status> stall(std::uint16_t stream, std::uint64_t ns) override {
    return kernels_->spin(streams_[stream], ns);
  }
  Result<void, Status> wait_for_all() override {
    return check_cuda(cudaDeviceSynchronize(), "the device failed");
  }
  Result<Mismatches, Status> mismatches() override { return kernels_->mismatches(); }

 private:
  std::unique_ptr<Kernels> kernels_;
  std::vector<RawStream> streams_;
};

}  // namespace

Result<std::unique_ptr<BlockWork>, Status> make_cuda_work(const std::vector<RawStream>& streams) {
  auto kernels = Kernels::create();
  if (!kernels.ok()) return kernels.error();
  return std::unique_ptr<BlockWork>(
      std::make_unique<CudaWork>(std::move(kernels).value(), streams));
}

}  // namespace gpupool::gpu_tests
