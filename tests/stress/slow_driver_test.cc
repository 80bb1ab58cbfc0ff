// A driver call that takes long holds up nobody but the thread that needs it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "gpupool/faulty_backend.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/gate.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

constexpr std::uint64_t kWarmSizes[] = {512, 64 * 1024 + 1, kMiB};

class SlowDriverTest : public testing::Test {
 protected:
  void SetUp() override {
    PoolOptions options;
    options.capacity = 1024 * kMiB;
    pool_ = Pool::create(backend_, options).value();
    slow_ = pool_->adopt_stream(device_.create_stream()).value();
    fast_ = pool_->adopt_stream(device_.create_stream()).value();
    for (const std::uint64_t bytes : kWarmSizes) {
      EXPECT_TRUE(pool_->deallocate(pool_->allocate(bytes, fast_).value(), fast_));
    }
  }

  /// While `slow_call` sits in a driver call of `kind`, another thread's hits and questions go on.
  template <class Call>
  void expect_others_go_on(BackendCall kind, Call slow_call) {
    Gate gate;
    backend_.before(kind, [&gate] { gate.pass(); });
    std::atomic<bool> is_done{false};
    std::thread slow([&] {
      slow_call();
      is_done = true;
    });
    EXPECT_TRUE(gate.wait_until_reached());
    const std::uint64_t hits = pool_->stats().hits;
    for (int i = 0; i < 200; ++i) {
      for (const std::uint64_t bytes : kWarmSizes) {
        EXPECT_TRUE(pool_->deallocate(pool_->allocate(bytes, fast_).value(), fast_));
      }
    }
    const StatsV1 stats = pool_->stats();
    EXPECT_EQ(stats.hits, hits + 600);
    EXPECT_EQ(stats.held_bytes, stats.live_requested_bytes + stats.waste_bytes +
                                    stats.cached_bytes + stats.pending_bytes + stats.free_bytes);
    EXPECT_NE(pool_->would_fit(kMiB, fast_), Fit::no);
    pool_->visit_blocks([](const BlockInfo&) {});
    EXPECT_FALSE(is_done) << "the call was not as slow as it had to be";
    gate.open();
    slow.join();
    backend_.clear();
    pool_->check_invariants();
  }

  SimulatedBackend device_{{.capacity_bytes = std::uint64_t{4} << 30}};
  FaultyBackend backend_{device_};
  std::unique_ptr<Pool> pool_;
  StreamRef slow_;
  StreamRef fast_;
};

TEST_F(SlowDriverTest, WhileMemoryIsCreated) {
  void* block = nullptr;
  expect_others_go_on(BackendCall::create,
                      [&] { block = pool_->allocate(300 * kMiB, slow_).value(); });
  EXPECT_TRUE(pool_->deallocate(block, slow_));
}

TEST_F(SlowDriverTest, WhileMemoryIsMadeAccessible) {
  void* block = nullptr;
  expect_others_go_on(BackendCall::set_access,
                      [&] { block = pool_->allocate(300 * kMiB, slow_).value(); });
  EXPECT_TRUE(pool_->deallocate(block, slow_));
}

TEST_F(SlowDriverTest, WhileAFallbackIsAllocatedAndFreed) {
  AllocationRequest request;
  request.bytes = 10 * kMiB;
  request.allocation_class = AllocationClass::contiguous;
  void* block = nullptr;
  expect_others_go_on(BackendCall::allocate,
                      [&] { block = pool_->allocate(request, slow_).value(); });
  EXPECT_TRUE(pool_->deallocate(block, slow_));
  expect_others_go_on(BackendCall::deallocate, [&] { pool_->maintain(std::chrono::hours(1)); });
}

TEST_F(SlowDriverTest, WhileMemoryIsGivenBack) {
  EXPECT_TRUE(pool_->deallocate(pool_->allocate(300 * kMiB, slow_).value(), slow_));
  // From the arena's end, so that what the other stream lives on stays.
  expect_others_go_on(BackendCall::unmap, [&] { pool_->trim(32 * kMiB); });
  EXPECT_EQ(device_.held_bytes(), pool_->stats().held_bytes);
}

TEST_F(SlowDriverTest, WhileTheDeviceIsAskedForItsMemory) {
  device_.advance_ns(1'000'000'000);
  expect_others_go_on(BackendCall::memory_info, [&] { pool_->maintain(); });
}

}  // namespace
}  // namespace gpupool
