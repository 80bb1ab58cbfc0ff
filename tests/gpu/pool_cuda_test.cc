// The pool on a CUDA device, in both backings: what is written into a block stays in it until it is
// freed, on one stream and across streams, and everything goes back at the end.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpupool/cuda_backend.h"
#include "gpupool/pool.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

struct Held {
  void* pointer = nullptr;
  std::size_t bytes = 0;
  int stream = 0;
  unsigned char byte = 0;
};

class PoolOnCuda : public testing::TestWithParam<Backing> {
 protected:
  static constexpr int kStreams = 3;

  void SetUp() override {
    auto backend = open_cuda_backend(0);
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    backend_ = std::move(backend).value();
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    for (cudaStream_t& stream : streams_) {
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    }
    make_pool(512 * kMiB);
  }

  void TearDown() override {
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    pool_.reset();
    EXPECT_EQ(backend_->held_bytes(), 0U);
    for (cudaStream_t stream : streams_) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }

  void make_pool(std::uint64_t capacity, std::uint64_t wait_ns = OutOfMemoryOptions().wait_ns) {
    PoolOptions options;
    options.runtime.out_of_memory.wait_ns = wait_ns;
    options.capacity = capacity;
    options.backing = GetParam();
    options.on_misuse = OnMisuse::abort;
    auto pool = Pool::create(*backend_, options);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    pool_ = std::move(pool).value();
    for (int i = 0; i < kStreams; ++i) refs_[i] = pool_->adopt_stream(streams_[i]).value();
  }

  // Fills the block in its stream's order and says so in the record that check() reads.
  void fill(Held& held, unsigned char byte) {
    held.byte = byte;
    ASSERT_EQ(cudaMemsetAsync(held.pointer, byte, held.bytes, streams_[held.stream]), cudaSuccess);
  }

  // First, middle and last bytes: whole blocks would make the test a copy benchmark.
  void check(const Held& held) {
    ASSERT_EQ(cudaStreamSynchronize(streams_[held.stream]), cudaSuccess);
    const std::size_t at[] = {0, held.bytes / 2, held.bytes - 1};
    for (const std::size_t offset : at) {
      unsigned char byte = 0;
      ASSERT_EQ(
          cudaMemcpy(&byte, static_cast<char*>(held.pointer) + offset, 1, cudaMemcpyDeviceToHost),
          cudaSuccess);
      ASSERT_EQ(byte, held.byte) << held.bytes << " bytes at " << held.pointer;
    }
  }

  std::unique_ptr<Backend> backend_;
  cudaStream_t streams_[kStreams] = {};
  StreamRef refs_[kStreams];
  std::unique_ptr<Pool> pool_;
};

std::size_t random_size(std::mt19937_64& random) {
  // Uniform in the logarithm, from a slot to many pages.
  const auto log2 = static_cast<unsigned>(random() % 17 + 8);
  return (std::size_t{1} << log2) + random() % (std::size_t{1} << log2);
}

TEST_P(PoolOnCuda, BlocksKeepWhatIsWrittenIntoThem) {
  std::mt19937_64 random(20);
  std::vector<Held> live;
  for (int i = 0; i < 3000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      Held held;
      held.bytes = random_size(random);
      held.stream = static_cast<int>(random() % kStreams);
      const auto block = pool_->allocate(held.bytes, refs_[held.stream]);
      if (block.ok()) {
        held.pointer = block.value();
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(held.pointer) % kDefaultAlignment, 0U);
        fill(held, static_cast<unsigned char>(random()));
        live.push_back(held);
      }
    } else {
      const std::size_t i_free = random() % live.size();
      if (random() % 4 == 0) check(live[i_free]);
      ASSERT_TRUE(pool_->deallocate(live[i_free].pointer, refs_[live[i_free].stream]));
      live[i_free] = live.back();
      live.pop_back();
    }
    if (i % 100 == 0) {
      pool_->maintain();
      pool_->check_invariants();
      ASSERT_EQ(pool_->stats().held_bytes, backend_->held_bytes());
    }
  }
  for (const Held& held : live) {
    check(held);
    ASSERT_TRUE(pool_->deallocate(held.pointer, refs_[held.stream]));
  }
  EXPECT_GT(pool_->stats().hits, 0U);
}

TEST_P(PoolOnCuda, TrimGivesEverythingBackAndThePoolWorksOn) {
  void* block = pool_->allocate(100 * kMiB, refs_[0]).value();
  ASSERT_TRUE(pool_->deallocate(block, refs_[0]));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_GE(pool_->trim(0), 100 * kMiB);
  EXPECT_EQ(pool_->stats().held_bytes, 0U);
  EXPECT_EQ(backend_->held_bytes(), 0U);
  Held held{pool_->allocate(10 * kMiB, refs_[1]).value(), 10 * kMiB, 1, 0};
  fill(held, 0x5a);
  check(held);
  ASSERT_TRUE(pool_->deallocate(held.pointer, refs_[1]));
}

TEST_P(PoolOnCuda, MemoryWithUnfinishedWorkIsNotGivenToAnotherStream) {
  make_pool(64 * kMiB, 0);
  // Work that takes long enough to still run when the other stream asks: many passes over a block.
  Held first{pool_->allocate(60 * kMiB, refs_[0]).value(), 60 * kMiB, 0, 0};
  for (int i = 0; i < 2000; ++i) fill(first, static_cast<unsigned char>(i));
  ASSERT_TRUE(pool_->deallocate(first.pointer, refs_[0]));
  const auto refused = pool_->allocate(60 * kMiB, refs_[1]);
  const bool was_running = cudaStreamQuery(streams_[0]) == cudaErrorNotReady;
  ASSERT_TRUE(was_running) << "the work was over before the question was asked";
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(pool_->last_failure().reason, MissReason::pending);
  ASSERT_EQ(cudaStreamSynchronize(streams_[0]), cudaSuccess);
  const auto served = pool_->allocate(60 * kMiB, refs_[1]);
  ASSERT_TRUE(served.ok());
  ASSERT_TRUE(pool_->deallocate(served.value(), refs_[1]));
}

TEST_P(PoolOnCuda, ARequestThatWouldFailWaitsForTheDevice) {
  make_pool(64 * kMiB);
  Held first{pool_->allocate(60 * kMiB, refs_[0]).value(), 60 * kMiB, 0, 0};
  for (int i = 0; i < 2000; ++i) fill(first, static_cast<unsigned char>(i));
  ASSERT_TRUE(pool_->deallocate(first.pointer, refs_[0]));
  const auto served = pool_->allocate(60 * kMiB, refs_[1]);
  ASSERT_TRUE(served.ok());
  EXPECT_EQ(cudaStreamQuery(streams_[0]), cudaSuccess);
  EXPECT_GT(pool_->stats().out_of_memory_wait_ns, 0U);
  ASSERT_TRUE(pool_->deallocate(served.value(), refs_[1]));
}

TEST_P(PoolOnCuda, ContiguousBlocksAreDriverAllocations) {
  AllocationRequest request;
  request.bytes = 8 * kMiB;
  request.allocation_class = AllocationClass::contiguous;
  void* block = pool_->allocate(request, refs_[0]).value();
  cudaIpcMemHandle_t handle;
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, block), cudaSuccess);
  ASSERT_TRUE(pool_->deallocate(block, refs_[0]));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  pool_->maintain();  // closes the epoch of the free
  pool_->maintain();
  EXPECT_EQ(pool_->stats().fallback_bytes, 0U);
  EXPECT_EQ(pool_->stats().fallbacks, 1U);
}

TEST_P(PoolOnCuda, RawHandlesOfDestroyedStreamsAreNotMistaken) {
  cudaStream_t stream = nullptr;
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    void* block = pool_->allocate(kMiB, stream).value();
    ASSERT_EQ(cudaMemsetAsync(block, i, kMiB, stream), cudaSuccess);
    ASSERT_TRUE(pool_->deallocate(block, stream));
    ASSERT_TRUE(pool_->release_stream(pool_->adopt_stream(stream).value()));
    ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  pool_->maintain();
  EXPECT_EQ(pool_->stats().pending_bytes, 0U);
  pool_->check_invariants();
}

INSTANTIATE_TEST_SUITE_P(Backings, PoolOnCuda, testing::Values(Backing::vmm, Backing::cudamalloc),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

}  // namespace
}  // namespace gpupool
