// Eight threads on four streams that they share, with record_stream, record_use and frees on other
// streams, on a card: kernels write a pattern into each block and look for it at each later use.
//
// GPUPOOL_GPU_SECONDS: how long in sum (default 9).
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <utility>

#include "gpupool/cuda_backend.h"
#include "tests/gpu/kernels.h"
#include "tests/support/shared_streams.h"
#include "tests/support/units.h"

namespace gpupool::gpu_tests {
namespace {

class Card {
 public:
  explicit Card(Kernels& kernels) : kernels_(kernels) {
    for (cudaStream_t& stream : streams_) {
      is_right_ &= cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;
    }
  }
  ~Card() {
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  bool is_right() const { return is_right_; }
  RawStream stream(int number) const { return streams_[static_cast<std::size_t>(number)]; }
  bool fill(RawStream stream, void* pointer, std::uint64_t bytes, std::uint32_t seed) {
    return kernels_.fill(stream, pattern_of(pointer, bytes, seed)).ok();
  }
  bool check(RawStream stream, void* pointer, std::uint64_t bytes, std::uint32_t seed) {
    return kernels_.check(stream, pattern_of(pointer, bytes, seed)).ok();
  }
  bool order(RawStream earlier, RawStream later) {
    cudaEvent_t event = nullptr;
    const bool is_done = cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess &&
                         cudaEventRecord(event, earlier) == cudaSuccess &&
                         cudaStreamWaitEvent(later, event) == cudaSuccess;
    return cudaEventDestroy(event) == cudaSuccess && is_done;
  }

 private:
  static Pattern pattern_of(void* pointer, std::uint64_t bytes, std::uint32_t seed) {
    return {reinterpret_cast<DeviceAddress>(pointer), bytes, seed};
  }

  Kernels& kernels_;
  std::array<cudaStream_t, SharedStreams<Card>::kStreams> streams_{};
  bool is_right_ = true;
};

struct Kind {
  const char* name;
  Recycling recycling;
  Backing backing;
  friend std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }
};

std::chrono::milliseconds duration() {
  const char* const seconds = std::getenv("GPUPOOL_GPU_SECONDS");
  return std::chrono::milliseconds(1000 * (seconds != nullptr ? std::atoi(seconds) : 9) / 3);
}

class SharedStreamsOnCuda : public testing::TestWithParam<Kind> {};

TEST_P(SharedStreamsOnCuda, NobodyGetsWhatAnotherStillUses) {
  auto backend = open_cuda_backend(0);
  ASSERT_TRUE(backend.ok()) << backend.error().message;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  auto kernels = Kernels::create();
  ASSERT_TRUE(kernels.ok()) << kernels.error().message;
  Card card(*kernels.value());
  ASSERT_TRUE(card.is_right());
  PoolOptions options;
  options.capacity = 1024 * kMiB;
  options.backing = GetParam().backing;
  options.runtime.recycling = GetParam().recycling;
  std::atomic<std::uint64_t> misuses{0};
  options.misuse_handler = [&](const MisuseReport&) { ++misuses; };
  auto pool = Pool::create(*backend.value(), options).value();

  SharedStreams program(*pool, card);
  program.run(duration());

  const auto wrong = kernels.value()->mismatches();
  ASSERT_TRUE(wrong.ok()) << wrong.error().message;
  EXPECT_EQ(wrong.value().words, 0u);
  EXPECT_EQ(program.failures(), 0u);
  EXPECT_EQ(misuses, 0u);
  EXPECT_GT(program.used_elsewhere(), 100u);
  EXPECT_GT(program.freed_elsewhere(), 100u);
  EXPECT_EQ(pool->stats().live_blocks, 0u);
  pool->check_invariants();
  RecordProperty("served", static_cast<int>(program.served()));
  pool.reset();
  EXPECT_EQ(backend.value()->held_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, SharedStreamsOnCuda,
                         testing::Values(Kind{"eager", Recycling::eager, Backing::vmm},
                                         Kind{"off", Recycling::off, Backing::vmm},
                                         Kind{"cudamalloc", Recycling::eager, Backing::cudamalloc}),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace gpupool::gpu_tests
