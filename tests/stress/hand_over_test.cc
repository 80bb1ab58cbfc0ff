// One thread allocates, another frees on the same stream, while a third claims what is cached and
// streams end: every block has one holder at a time, and none is lost.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/basket.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr int kHandedBlocks = 20'000;
#else
constexpr int kHandedBlocks = 100'000;
#endif

struct Handed {
  void* block = nullptr;
  std::uint64_t bytes = 0;
};

class HandOverThreadsTest : public testing::Test {
 protected:
  HandOverThreadsTest() {
    PoolOptions options;
    options.capacity = 512 * kMiB;
    options.misuse_handler = [this](const MisuseReport&) { ++faults_; };
    pool_ = Pool::create(device_, options).value();
    stream_ = pool_->adopt_stream(device_.create_stream()).value();
  }
  void TearDown() override {
    pool_->check_invariants();
    EXPECT_EQ(faults_, 0u);
    EXPECT_EQ(pool_->stats().live_blocks, 0u);
    pool_->trim(0);
    EXPECT_EQ(pool_->stats().held_bytes, 0u);
    EXPECT_EQ(device_.held_bytes(), 0u);
  }

  void allocate_and_hand_on() {
    constexpr std::array<std::uint64_t, 5> kSizes = {512, 2 * kMiB, 40 << 10, 512, kMiB};
    for (int i = 0; i < kHandedBlocks; ++i) {
      const std::uint64_t bytes = kSizes[static_cast<std::size_t>(i / 64) % kSizes.size()];
      const auto block = pool_->allocate(bytes, stream_);
      if (!block.ok()) continue;
      // Nobody else has it, or its mark would be set.
      if (mark(block.value()).exchange(true, std::memory_order_acq_rel)) ++faults_;
      ++in_flight_;
      basket_.put({block.value(), bytes});
      while (in_flight_ > 100) std::this_thread::yield();
    }
    is_over_ = true;
  }
  void free_what_comes() {
    Handed handed;
    while (basket_.take(handed) || !is_over_ || in_flight_ > 0) {
      if (handed.block == nullptr) continue;
      if (!mark(handed.block).exchange(false, std::memory_order_acq_rel)) ++faults_;
      if (!pool_->deallocate(handed.block, handed.bytes, stream_)) ++faults_;
      handed = {};
      --in_flight_;
    }
  }
  std::atomic<bool>& mark(const void* block) {
    const auto granule = reinterpret_cast<std::uintptr_t>(block) / 512;
    return marks_[granule % marks_.size()];
  }

  SimulatedBackend device_{{.capacity_bytes = 1024 * kMiB, .charge_costs = false}};
  std::unique_ptr<Pool> pool_;
  StreamRef stream_;
  Basket<Handed> basket_;
  std::atomic<int> in_flight_{0};
  std::atomic<bool> is_over_{false};
  std::atomic<std::uint64_t> faults_{0};

 private:
  // As many granules as the arena's addresses have, so that no two blocks share a mark.
  static constexpr std::size_t kGranules = 8 * 512 * kMiB / 512;
  struct Marks : std::array<std::atomic<bool>, kGranules> {};
  std::unique_ptr<Marks> owned_marks_ = std::make_unique<Marks>();
  Marks& marks_ = *owned_marks_;
};

TEST_F(HandOverThreadsTest, EveryBlockHasOneHolder) {
  std::thread consumer([&] { free_what_comes(); });
  allocate_and_hand_on();
  consumer.join();
}

TEST_F(HandOverThreadsTest, EveryBlockHasOneHolderWhileOthersClaim) {
  std::thread consumer([&] { free_what_comes(); });
  std::thread claimer([&] {
    for (int round = 0; !is_over_; ++round) {
      device_.advance_ns(round % 4 == 0 ? 2'100'000'000 : 10'000);
      if (round % 3 == 0) {
        pool_->drain_caches();
      } else {
        pool_->maintain();
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  allocate_and_hand_on();
  consumer.join();
  claimer.join();
}

}  // namespace
}  // namespace gpupool
