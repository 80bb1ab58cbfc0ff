// Out of memory although enough only waits for work to complete.
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "gpupool/faulty_backend.h"
#include "tests/cases/case_pool.h"
#include "tests/support/gate.h"
#include "tests/support/random.h"
#include "tests/support/units.h"

namespace gpupool::test {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kBlock = 64 * kMiB;

/// Work that reads and writes the block for so long.
SimulatedWork work_on(void* block, std::uint64_t bytes, std::uint64_t duration_ns) {
  SimulatedWork work;
  work.address = reinterpret_cast<DeviceAddress>(block);
  work.bytes = bytes;
  work.duration_ns = duration_ns;
  return work;
}

// pytorch#171771, #68906, #50925, tensorflow#50699 (case C7): the path of shortage waited for all
// pending blocks of all streams though some would do.
class CaseC7 : public testing::TestWithParam<Recycling> {};

/// Ten blocks of 64 MiB, all that there is, each freed on its own stream under work that ends after
/// 1, 2, 5 ... ms, 10 s at last.
class TenPendingBlocks {
 public:
  explicit TenPendingBlocks(Recycling recycling) {
    PoolOptions options;
    options.capacity = 10 * kBlock;
    options.runtime.recycling = recycling;
    pool_ = Pool::create(device_, options).value();
    asking_ = pool_->adopt_stream(device_.create_stream()).value();
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < std::size(kEndMs); ++i) {
      raw_.push_back(device_.create_stream());
      refs_.push_back(pool_->adopt_stream(raw_.back()).value());
      blocks.push_back(pool_->allocate(kBlock, refs_.back()).value());
    }
    start_ns_ = device_.clock().now_ns();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::uint64_t duration = kEndMs[i] * kMillisecond;
      EXPECT_TRUE(device_.launch(raw_[i], work_on(blocks[i], kBlock, duration)).ok());
      EXPECT_TRUE(pool_->deallocate(blocks[i], refs_[i]));
    }
    EXPECT_EQ(pool_->stats().pending_bytes + pool_->stats().cached_bytes, 10 * kBlock);
  }
  ~TenPendingBlocks() {
    device_.complete_all();
    pool_->check_invariants();
    pool_.reset();
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
    EXPECT_EQ(device_.object_count(), 0u);
  }

  static constexpr std::uint64_t kEndMs[] = {1, 2, 5, 20, 50, 200, 500, 2000, 5000, 10'000};
  double gone_ms() const {
    return static_cast<double>(device_.clock().now_ns() - start_ns_) / kMillisecond;
  }
  Pool& pool() { return *pool_; }
  StreamRef asking() const { return asking_; }

 private:
  SimulatedBackend device_{{.capacity_bytes = 2 * kGiB}};
  std::unique_ptr<Pool> pool_;
  StreamRef asking_;
  std::vector<RawStream> raw_;
  std::vector<StreamRef> refs_;
  std::uint64_t start_ns_ = 0;
};

TEST_P(CaseC7, ARequestAtTheCapWaitsForTheFirstOfTenBlocksOnly) {
  TenPendingBlocks blocks(GetParam());
  const auto block = blocks.pool().allocate(kBlock, blocks.asking());
  ASSERT_TRUE(block.ok()) << blocks.pool().last_failure().text();
  EXPECT_GE(blocks.gone_ms(), 1.0);
  EXPECT_LE(blocks.gone_ms(), 1.3);
  const StatsV1 stats = blocks.pool().stats();
  EXPECT_EQ(stats.misses_by_reason[static_cast<std::size_t>(MissReason::pending)], 1u);
  EXPECT_EQ(stats.failures, 0u);
  EXPECT_TRUE(blocks.pool().deallocate(block.value(), blocks.asking()));
}

TEST_P(CaseC7, EachFurtherBlockWaitsForItsOwn) {
  TenPendingBlocks blocks(GetParam());
  std::vector<void*> got;
  for (const std::uint64_t end_ms : TenPendingBlocks::kEndMs) {
    const auto block = blocks.pool().allocate(kBlock, blocks.asking());
    ASSERT_TRUE(block.ok()) << blocks.pool().last_failure().text();
    got.push_back(block.value());
    EXPECT_GE(blocks.gone_ms(), static_cast<double>(end_ms));
    // A sixteenth, and the driver.
    EXPECT_LE(blocks.gone_ms(), static_cast<double>(end_ms) * 1.1 + 2);
  }
  for (void* block : got) EXPECT_TRUE(blocks.pool().deallocate(block, blocks.asking()));
}

TEST_P(CaseC7, WhatNeedsAllOfThemWaitsForAll) {
  TenPendingBlocks blocks(GetParam());
  const auto block = blocks.pool().allocate(10 * kBlock, blocks.asking());
  ASSERT_TRUE(block.ok()) << blocks.pool().last_failure().text();
  EXPECT_GE(blocks.gone_ms(), 10'000.0);
  EXPECT_LE(blocks.gone_ms(), 10'100.0);
  EXPECT_TRUE(blocks.pool().deallocate(block.value(), blocks.asking()));
}

INSTANTIATE_TEST_SUITE_P(All, CaseC7,
                         testing::Values(Recycling::off, Recycling::eager, Recycling::pressure),
                         policy_name);

/// How many of `count` pairs that the thread's cache serves took a millisecond or more. The machine
/// may stop a thread for longer than that, now and then; who waited for the call would wait each
/// time until the gate opens, which is after the last of them.
int count_slow_pairs(Pool& pool, StreamRef stream, int count) {
  int slow = 0;
  for (int i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    void* const block = pool.allocate(kMiB, stream).value();
    EXPECT_TRUE(pool.deallocate(block, stream));
    if (std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(1)) ++slow;
  }
  return slow;
}

TEST(CaseC7, HitsGoOnWhileAnotherThreadSitsInTheDriver) {
  SimulatedBackend device({.capacity_bytes = 2 * kGiB});
  FaultyBackend driver(device);
  const auto pool = Pool::create(driver, {}).value();
  const StreamRef slow = pool->adopt_stream(device.create_stream()).value();
  const StreamRef quick = pool->adopt_stream(device.create_stream()).value();
  EXPECT_TRUE(pool->deallocate(pool->allocate(kMiB, quick).value(), quick));
  for (const BackendCall call : {BackendCall::create, BackendCall::allocate}) {
    Gate gate;
    driver.before(call, [&gate] { gate.pass(); });
    void* block = nullptr;
    std::thread thread([&] {
      AllocationRequest request;
      request.bytes = 300 * kMiB;
      if (call == BackendCall::allocate) request.allocation_class = AllocationClass::contiguous;
      block = pool->allocate(request, slow).value();
    });
    EXPECT_TRUE(gate.wait_until_reached());
    const std::uint64_t hits = pool->stats().hits;
    EXPECT_LE(count_slow_pairs(*pool, quick, 1000), 50);
    EXPECT_EQ(pool->stats().hits, hits + 1000);
    gate.open();
    thread.join();
    driver.clear();
    EXPECT_TRUE(pool->deallocate(block, slow));
  }
}

TEST(CaseC7, HitsAndGrowthGoOnWhileAnotherThreadWaitsForPendingWork) {
  SimulatedBackend device({.capacity_bytes = 2 * kGiB, .time = SimulatedTime::real_time});
  PoolOptions options;
  options.capacity = 512 * kMiB;
  const auto pool = Pool::create(device, options).value();
  const RawStream raw = device.create_stream();
  const StreamRef busy = pool->adopt_stream(raw).value();
  const StreamRef asking = pool->adopt_stream(device.create_stream()).value();
  const StreamRef quick = pool->adopt_stream(device.create_stream()).value();
  EXPECT_TRUE(pool->deallocate(pool->allocate(kMiB, quick).value(), quick));
  void* const pending = pool->allocate(400 * kMiB, busy).value();
  SimulatedWork work = work_on(pending, 400 * kMiB, 0);
  work.until_completed = true;
  ASSERT_TRUE(device.launch(raw, work).ok());
  ASSERT_TRUE(pool->deallocate(pending, busy));

  void* block = nullptr;
  std::thread thread([&] {
    const auto result = pool->allocate(300 * kMiB, asking);
    if (result.ok()) block = result.value();
  });
  while (pool->stats().out_of_memory_wait_ns == 0) std::this_thread::yield();
  EXPECT_LE(count_slow_pairs(*pool, quick, 1000), 50);
  // Who can be served by growing is, and its block may be freed.
  void* const grown = pool->allocate(32 * kMiB, quick).value();
  EXPECT_TRUE(pool->deallocate(grown, quick));
  device.complete(raw);
  thread.join();
  ASSERT_NE(block, nullptr) << pool->last_failure().text();
  EXPECT_TRUE(pool->deallocate(block, asking));
  pool->check_invariants();
}

// rmm#1245 (case A9): "waiting for the stream after a failure and retrying works". It happens
// inside the allocator: 70 % of the operations are of 256 to 512 KiB with a long life, 30 % of 8 to
// 256 MiB, each freed while its work runs, on one of four streams.
class CaseA9 : public PolicyTest {};

TEST_P(CaseA9, ARetryAfterAWaitHappensInsideTheAllocator) {
  constexpr std::uint64_t kCap = 2 * kGiB;
  constexpr std::uint64_t kMostLive = kCap / 10 * 7;
  SimulatedBackend device({.capacity_bytes = kCap});
  PoolOptions options;
  options.runtime.recycling = GetParam();
  const auto pool = Pool::create(device, options).value();
  std::vector<RawStream> raw;
  std::vector<StreamRef> streams;
  for (int i = 0; i < 4; ++i) {
    raw.push_back(device.create_stream());
    streams.push_back(pool->adopt_stream(raw.back()).value());
  }
  struct Live {
    void* block;
    std::uint64_t bytes;
    std::size_t stream;
  };
  std::vector<Live> long_lived;
  std::uint64_t live_bytes = 0;
  Random random{1245};
  const auto free_block = [&](const Live& live) {
    live_bytes -= live.bytes;
    EXPECT_TRUE(pool->deallocate(live.block, streams[live.stream]));
  };
  for (int i = 0; i < 4000; ++i) {
    const bool is_long = random.below(10) < 7;
    const std::uint64_t bytes =
        is_long ? 256 * kKiB + random.below(256 * kKiB) : 8 * kMiB + random.below(248 * kMiB);
    const std::size_t stream = random.below(4);
    while (live_bytes + bytes > kMostLive && !long_lived.empty()) {
      const std::size_t victim = random.below(long_lived.size());
      free_block(long_lived[victim]);
      long_lived[victim] = long_lived.back();
      long_lived.pop_back();
    }
    const auto block = pool->allocate(bytes, streams[stream]);
    ASSERT_TRUE(block.ok()) << i << ": " << pool->last_failure().text();
    live_bytes += bytes;
    const std::uint64_t duration = kMillisecond + random.below(20 * kMillisecond);
    ASSERT_TRUE(device.launch(raw[stream], work_on(block.value(), bytes, duration)).ok())
        << device.last_violation();
    const Live live{block.value(), bytes, stream};
    is_long ? long_lived.push_back(live) : free_block(live);
  }
  const StatsV1 stats = pool->stats();
  EXPECT_GT(stats.ladder_successes[static_cast<std::size_t>(LadderRung::wait)], 100u);
  EXPECT_EQ(stats.failures, 0u);
  EXPECT_LE(device.held_bytes(), kCap);
  for (const Live& live : long_lived) free_block(live);
  device.complete_all();
  pool->check_invariants();
}

INSTANTIATE_TEST_SUITE_P(All, CaseA9, testing::Values(Recycling::eager, Recycling::pressure),
                         policy_name);

// llama.cpp#22107 (case A7): a buffer that is a little larger with every token, while a kernel
// still runs on the former one: what the flush after a failure gives back must be done with.
class CaseA7 : public PolicyTest {};

TEST_P(CaseA7, AGrowingBufferWaitsForTheKernelOnTheFormerAndHoldsNoMoreThanTwo) {
  constexpr std::uint64_t kCap = 160 * kMiB;
  for (const Backing backing : {Backing::vmm, Backing::cudamalloc}) {
    SimulatedBackend device({.capacity_bytes = kGiB});
    PoolOptions options;
    options.capacity = kCap;
    options.backing = backing;
    options.runtime.recycling = GetParam();
    const auto pool = Pool::create(device, options).value();
    // Two streams by turns: what the one still works on is no memory for the other.
    const std::vector<RawStream> raw = {device.create_stream(), device.create_stream()};
    const std::vector<StreamRef> streams = {pool->adopt_stream(raw[0]).value(),
                                            pool->adopt_stream(raw[1]).value()};
    for (std::uint64_t i = 0; i < 400; ++i) {
      const std::uint64_t bytes = 64 * kMiB + i * 40 * kKiB;
      const auto block = pool->allocate(bytes, streams[i % 2]);
      ASSERT_TRUE(block.ok()) << i << ": " << pool->last_failure().text();
      ASSERT_TRUE(device.launch(raw[i % 2], work_on(block.value(), bytes, kMillisecond)).ok());
      EXPECT_TRUE(pool->deallocate(block.value(), streams[i % 2]));
      EXPECT_LE(device.held_bytes(), kCap);
    }
    EXPECT_EQ(pool->stats().failures, 0u);
    device.complete_all();
    EXPECT_EQ(device.violation_count(), 0u) << device.last_violation();
    pool->check_invariants();
  }
}

INSTANTIATE_TEST_SUITE_P(All, CaseA7,
                         testing::Values(Recycling::off, Recycling::eager, Recycling::pressure),
                         policy_name);

}  // namespace
}  // namespace gpupool::test
