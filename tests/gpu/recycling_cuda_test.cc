// Pages that move while blocks are in use, on a card: what is written into a block is in it until
// it is freed, on several streams, in dependent launches, and beside a kernel that never ends.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpupool/cuda_backend.h"
#include "gpupool/pool.h"
#include "tests/gpu/dependent_chain.h"
#include "tests/gpu/kernels.h"
#include "tests/support/units.h"

namespace gpupool::gpu_tests {
namespace {

constexpr int kStreams = 4;

/// Maintains a pool each millisecond, as a service does.
class Maintainer {
 public:
  explicit Maintainer(Pool& pool)
      : thread_([this, &pool] {
          while (!is_ending_.load()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            pool.maintain();
          }
        }) {}
  ~Maintainer() {
    is_ending_ = true;
    thread_.join();
  }
  Maintainer(const Maintainer&) = delete;
  Maintainer& operator=(const Maintainer&) = delete;

 private:
  std::atomic<bool> is_ending_{false};
  std::thread thread_;
};

class Card : public testing::Test {
 protected:
  void SetUp() override {
    auto backend = open_cuda_backend(0);
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    backend_ = std::move(backend).value();
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    auto kernels = Kernels::create();
    ASSERT_TRUE(kernels.ok()) << kernels.error().message;
    kernels_ = std::move(kernels).value();
    for (cudaStream_t& stream : streams_) {
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    }
  }

  void TearDown() override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    pool_.reset();
    EXPECT_EQ(backend_->held_bytes(), 0U);
    for (cudaStream_t stream : streams_) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }

  void make_pool(std::uint64_t capacity, AliasReuse alias_reuse) {
    PoolOptions options;
    options.capacity = capacity;
    options.runtime.recycling = Recycling::eager;
    options.runtime.alias_reuse = alias_reuse;
    options.on_misuse = OnMisuse::abort;
    auto pool = Pool::create(*backend_, options);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    pool_ = std::move(pool).value();
    for (int i = 0; i < kStreams; ++i) refs_[i] = pool_->adopt_stream(streams_[i]).value();
  }

  void expect_no_mismatches(std::size_t counter = 0) {
    const auto found = kernels_->mismatches(counter);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value().words, 0U)
        << "the first at 0x" << std::hex << found.value().first_address << ": expected 0x"
        << found.value().first_expected << ", found 0x" << found.value().first_found;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Kernels> kernels_;
  cudaStream_t streams_[kStreams] = {};
  StreamRef refs_[kStreams];
  std::unique_ptr<Pool> pool_;
};

class RecyclingOnCuda : public Card, public testing::WithParamInterface<AliasReuse> {
 protected:
  struct Held {
    Pattern pattern;
    int stream = 0;
  };

  static std::size_t random_size(std::mt19937_64& random) {
    // Uniform in the logarithm, from 4 KiB to 32 MiB.
    const std::size_t power = std::size_t{1} << (12 + random() % 13);
    return power + random() % power;
  }

  /// Allocates, fills, checks and frees at random on streams `first` and up, without waiting for
  /// the device but where a request fails.
  void churn(int operations, int first, std::uint64_t seed);
  void release(std::vector<Held>& live, std::size_t index);
  void* allocate(std::size_t bytes, int stream);

  int first_stream_ = 0;
};

void* RecyclingOnCuda::allocate(std::size_t bytes, int stream) {
  const auto block = pool_->allocate(bytes, refs_[stream]);
  if (block.ok()) return block.value();
  // Not the whole device: a resident kernel may be on it.
  for (int i = first_stream_; i < kStreams; ++i) {
    EXPECT_EQ(cudaStreamSynchronize(streams_[i]), cudaSuccess);
  }
  pool_->maintain();
  pool_->maintain();
  return pool_->allocate(bytes, refs_[stream]).value();
}

void RecyclingOnCuda::release(std::vector<Held>& live, std::size_t index) {
  const Held held = live[index];
  ASSERT_TRUE(kernels_->check(streams_[held.stream], held.pattern).ok());
  ASSERT_TRUE(pool_->deallocate(reinterpret_cast<void*>(held.pattern.address), refs_[held.stream]));
  live[index] = live.back();
  live.pop_back();
}

void RecyclingOnCuda::churn(int operations, int first, std::uint64_t seed) {
  first_stream_ = first;
  std::mt19937_64 random(seed);
  std::vector<Held> live;
  std::uint64_t blocks = 0;
  for (int i = 0; i < operations; ++i) {
    // Often one stream for a while, which is when a page can move at once.
    const int stream = first + (i / 64) % (kStreams - first);
    if (live.size() < 4 || (live.size() < 48 && random() % 2 == 0)) {
      Held held;
      held.stream = stream;
      held.pattern.bytes = random_size(random);
      held.pattern.seed = seed_of(seed + blocks++);
      void* const block = allocate(held.pattern.bytes, stream);
      if (block == nullptr) {
        ASSERT_FALSE(live.empty());
        release(live, random() % live.size());
        continue;
      }
      held.pattern.address = reinterpret_cast<DeviceAddress>(block);
      ASSERT_TRUE(kernels_->fill(streams_[stream], held.pattern).ok());
      live.push_back(held);
    } else {
      release(live, random() % live.size());
    }
    if (HasFatalFailure()) return;
  }
  while (!live.empty() && !HasFatalFailure()) release(live, live.size() - 1);
}

TEST_F(Card, ACheckCountsEachWrongWordAndKeepsTheFirst) {
  void* memory = nullptr;
  const Pattern pattern{0, 4 * 4096 + 4 * 3 + 2, 77};  // with words behind the last sixteen bytes
  ASSERT_EQ(cudaMalloc(&memory, pattern.bytes), cudaSuccess);
  Pattern placed = pattern;
  placed.address = reinterpret_cast<DeviceAddress>(memory);
  ASSERT_TRUE(kernels_->fill(streams_[0], placed).ok());
  ASSERT_TRUE(kernels_->check(streams_[0], placed).ok());
  expect_no_mismatches();
  std::vector<std::uint32_t> words(placed.words());
  ASSERT_EQ(cudaMemcpy(words.data(), memory, words.size() * 4, cudaMemcpyDeviceToHost),
            cudaSuccess);
  for (std::size_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], placed.word(i)) << i;

  for (const std::uint64_t index : {std::uint64_t{0}, placed.words() / 2, placed.words() - 1}) {
    ASSERT_TRUE(kernels_->fill(streams_[0], placed).ok());
    ASSERT_EQ(cudaStreamSynchronize(streams_[0]), cudaSuccess);
    const std::uint32_t wrong = placed.word(index) + 1;
    ASSERT_EQ(cudaMemcpy(static_cast<std::uint32_t*>(memory) + index, &wrong, sizeof wrong,
                         cudaMemcpyHostToDevice),
              cudaSuccess);
    ASSERT_TRUE(kernels_->clear_mismatches().ok());
    ASSERT_TRUE(kernels_->check(streams_[0], placed).ok());
    const auto found = kernels_->mismatches();
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found.value().words, 1U);
    EXPECT_EQ(found.value().first_address, placed.address + index * 4);
    EXPECT_EQ(found.value().first_expected, placed.word(index));
    EXPECT_EQ(found.value().first_found, wrong);
  }
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_P(RecyclingOnCuda, BlocksOnSeveralStreamsKeepWhatIsWrittenIntoThem) {
  make_pool(768 * kMiB, GetParam());
  {
    const Maintainer maintainer(*pool_);
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      churn(20'000, 0, seed);
      if (HasFatalFailure()) return;
    }
  }
  expect_no_mismatches();
  EXPECT_GT(pool_->stats().pages_recycled, 0U);
  EXPECT_EQ(pool_->stats().live_blocks, 0U);
  EXPECT_EQ(pool_->stats().held_bytes, backend_->held_bytes());
  pool_->check_invariants();
}

TEST_P(RecyclingOnCuda, AChainOfDependentLaunchesReadsWhatItHasWritten) {
  ASSERT_TRUE(kernels_->has_dependent_launch()) << "needs compute capability 9.0";
  make_pool(kChainCapacityBytes, GetParam());
  const auto figures = run_dependent_chain(*pool_, *kernels_, streams_[0], 6000);
  ASSERT_TRUE(figures.ok()) << figures.error().message;
  EXPECT_GT(figures.value().pages_recycled, 0U);
  const Mismatches& found = figures.value().mismatches;
  RecordProperty("wrong_words", std::to_string(found.words));
  if (GetParam() == AliasReuse::wait) {
    EXPECT_EQ(found.words, 0U);
  } else {
    // No promise of CUDA's covers a grid that was there before the write: a figure, not a failure.
    std::printf("same_stream: %llu wrong words, %llu pages moved\n",
                static_cast<unsigned long long>(found.words),
                static_cast<unsigned long long>(figures.value().pages_recycled));
  }
  pool_->check_invariants();
}

TEST_P(RecyclingOnCuda, AResidentKernelAndItsBlockAreLeftAlone) {
  constexpr std::uint64_t kLimitNs = 60'000'000'000;
  constexpr std::size_t kResidentCounter = 1;
  make_pool(512 * kMiB, GetParam());
  // The first words are the kernel's flags, the rest is what it reads and writes.
  const std::uint64_t bytes = 6 * kMiB;
  void* const block = pool_->allocate(bytes, refs_[0]).value();
  ASSERT_NE(block, nullptr);
  const auto control = reinterpret_cast<DeviceAddress>(block);
  const Pattern pattern{control + 512, bytes - 512, 5};
  ASSERT_EQ(cudaMemsetAsync(block, 0, 512, streams_[0]), cudaSuccess);
  ASSERT_TRUE(kernels_->fill(streams_[0], pattern).ok());
  ASSERT_TRUE(kernels_->resident(streams_[0], control, pattern, kLimitNs, kResidentCounter).ok());
  {
    const Maintainer maintainer(*pool_);
    churn(40'000, 1, 9);
  }
  EXPECT_EQ(cudaStreamQuery(streams_[0]), cudaErrorNotReady) << "it ended before the others";
  EXPECT_GT(pool_->stats().pages_recycled, 0U);
  ASSERT_EQ(cudaMemsetAsync(block, 1, 4, streams_[1]), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  std::uint32_t words[4] = {};
  ASSERT_EQ(cudaMemcpy(words, block, sizeof words, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(words[1], 0U) << "its time was over before it was told to end";
  EXPECT_GT(words[2], 10U) << "rounds";
  expect_no_mismatches(kResidentCounter);
  expect_no_mismatches();
  ASSERT_TRUE(pool_->deallocate(block, refs_[0]));
}

INSTANTIATE_TEST_SUITE_P(AliasReuses, RecyclingOnCuda,
                         testing::Values(AliasReuse::wait, AliasReuse::same_stream),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

}  // namespace
}  // namespace gpupool::gpu_tests
