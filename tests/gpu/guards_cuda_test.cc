// Guards, the contiguous class and the current device, on a card.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpupool/cuda_backend.h"
#include "gpupool/pool.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

class GuardsOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    auto backend = open_cuda_backend(0);
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    backend_ = std::move(backend).value();
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&raw_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    pool_.reset();
    EXPECT_EQ(backend_->held_bytes(), 0U);
    EXPECT_EQ(cudaStreamDestroy(raw_), cudaSuccess);
  }
  void make_pool(PoolOptions options) {
    options.capacity = 512 * kMiB;
    auto pool = Pool::create(*backend_, options);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    pool_ = std::move(pool).value();
    stream_ = pool_->adopt_stream(raw_).value();
  }
  std::vector<unsigned char> read(const void* block, std::size_t bytes) {
    std::vector<unsigned char> found(bytes);
    EXPECT_EQ(cudaStreamSynchronize(raw_), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(found.data(), block, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    return found;
  }
  static bool is_all(const std::vector<unsigned char>& bytes, unsigned char value) {
    return std::all_of(bytes.begin(), bytes.end(), [=](unsigned char c) { return c == value; });
  }
  Result<void*> contiguous(std::uint64_t bytes) {
    AllocationRequest request;
    request.bytes = bytes;
    request.allocation_class = AllocationClass::contiguous;
    return pool_->allocate(request, stream_);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Pool> pool_;
  cudaStream_t raw_ = nullptr;
  StreamRef stream_;
};

TEST_F(GuardsOnCuda, ScrubPoisonAndCanaryAreThereOnTheDevice) {
  PoolOptions options;
  options.debug.scrub = true;
  make_pool(options);
  void* block = pool_->allocate(kMiB, stream_).value();
  ASSERT_EQ(cudaMemsetAsync(block, 0x5e, kMiB, raw_), cudaSuccess);
  ASSERT_TRUE(pool_->deallocate(block, stream_));
  ASSERT_EQ(pool_->allocate(kMiB, stream_).value(), block);
  EXPECT_TRUE(is_all(read(block, kMiB), 0));
  ASSERT_TRUE(pool_->deallocate(block, stream_));
  pool_.reset();

  options.debug = {.poison = true, .canary = true};
  make_pool(options);
  block = pool_->allocate(kMiB, stream_).value();
  EXPECT_TRUE(is_all(read(block, kMiB), kPoisonByte));
  EXPECT_EQ(pool_->check_canaries(), 0U);
  ASSERT_EQ(cudaMemsetAsync(block, 0, kMiB + 1, raw_), cudaSuccess);
  EXPECT_TRUE(pool_->deallocate(block, stream_));
  EXPECT_EQ(pool_->stats().misuses[static_cast<std::size_t>(Misuse::canary)], 1U);
}

TEST_F(GuardsOnCuda, LegacyIpcTakesACudaMallocAndRefusesPages) {
  make_pool({});
  void* const block = contiguous(8 * kMiB).value();
  cudaIpcMemHandle_t handle;
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, block), cudaSuccess);
  EXPECT_EQ(pool_->find_export(block).value().kind, ExportInfo::Kind::cudamalloc);
  void* const pages = pool_->allocate(8 * kMiB, stream_).value();
  EXPECT_NE(cudaIpcGetMemHandle(&handle, pages), cudaSuccess);
  (void)cudaGetLastError();
  EXPECT_FALSE(pool_->find_export(pages).ok());
  ASSERT_TRUE(pool_->deallocate(block, stream_));
  ASSERT_TRUE(pool_->deallocate(pages, stream_));
}

TEST_F(GuardsOnCuda, AHandleIsUsableMemory) {
  if (!backend_->info().supports_shareable_handles) FAIL() << "the device has none";
  PoolOptions options;
  options.contiguous = ContiguousBacking::handle;
  make_pool(options);
  void* const block = contiguous(3 * kMiB).value();
  ASSERT_EQ(cudaMemsetAsync(block, 0x5e, 3 * kMiB, raw_), cudaSuccess);
  EXPECT_TRUE(is_all(read(block, 3 * kMiB), 0x5e));
  ASSERT_TRUE(pool_->deallocate(block, stream_));
}

TEST_F(GuardsOnCuda, EveryCallLeavesTheCurrentDeviceAsItWas) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  const int current = count - 1;  // another than the pool's where there are several
  make_pool({});
  ASSERT_EQ(cudaSetDevice(current), cudaSuccess);
  const auto expect_current = [&](const char* after) {
    int device = -1;
    ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, current) << after;
  };
  void* const block = pool_->allocate(40 * kMiB, stream_).value();
  expect_current("allocate");
  void* const own = contiguous(3 * kMiB).value();
  expect_current("contiguous");
  EXPECT_TRUE(pool_->record_use(block, stream_));
  EXPECT_TRUE(pool_->deallocate(block, stream_));
  EXPECT_TRUE(pool_->deallocate(own, stream_));
  expect_current("deallocate");
  pool_->drain_caches();
  pool_->maintain();
  pool_->trim(0);
  expect_current("trim");
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

}  // namespace
}  // namespace gpupool
