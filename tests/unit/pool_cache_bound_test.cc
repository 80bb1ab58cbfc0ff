// How much caches keep from others: small blocks by thread and stream, runs by the device, and as
// much again, or half of it, handed over. All of it can be had when memory is needed.
#include <algorithm>
#include <atomic>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"
#include "tests/unit/worker.h"

namespace gpupool {
namespace {

constexpr std::uint64_t kSmallLimit = 4 * kMiB;
constexpr std::uint64_t kLargeLimit = 32 * kMiB;

class PoolCacheBoundTest : public PoolFixture {
 protected:
  std::uint64_t cached() const { return pool_->stats().cached_bytes; }

  void fill(std::uint64_t bytes, std::uint64_t blocks, StreamRef stream) {
    std::vector<void*> held;
    for (std::uint64_t i = 0; i < blocks; ++i) held.push_back(allocate(bytes, stream));
    for (void* const block : held) free(block, stream);
  }
  std::vector<StreamRef> make_streams(std::size_t count) {
    std::vector<StreamRef> streams;
    for (std::size_t i = 0; i < count; ++i) {
      streams.push_back(pool_->adopt_stream(device_.create_stream()).value());
    }
    return streams;
  }
  void expect_all_can_be_had() {
    const std::uint64_t limit = pool_->stats().limit_bytes;
    const auto all = pool_->allocate(limit, a_);
    EXPECT_TRUE(all.ok()) << pool_->last_failure().text();
    if (all.ok()) free(all.value());
  }
};

TEST_F(PoolCacheBoundTest, SmallBlocksByThreadAndStream) {
  constexpr std::size_t kCount = 8;
  const std::vector<StreamRef> streams = make_streams(kCount);
  std::vector<std::unique_ptr<Worker>> threads;
  for (std::size_t i = 0; i < kCount; ++i) threads.push_back(std::make_unique<Worker>());
  for (const std::uint64_t bytes : {std::uint64_t{512}, 3 * kKiB, 30 * kKiB, 128 * kKiB}) {
    for (const auto& thread : threads) {
      thread->run([&] {
        for (const StreamRef stream : streams) fill(bytes, 6 * kMiB / bytes, stream);
      });
    }
  }
  EXPECT_GT(cached(), 0u);
  EXPECT_LE(cached(), kCount * kCount * kSmallLimit + kCount * kSmallLimit);
  expect_all_can_be_had();
}

TEST_F(PoolCacheBoundTest, OneThreadAndStreamWhateverTheSizes) {
  for (std::uint64_t bytes = 512; bytes <= 128 * kKiB; bytes += 512) {
    fill(bytes, 70, a_);
    ASSERT_LE(cached(), 2 * kSmallLimit);
  }
  expect_all_can_be_had();
}

// Each cache has an equal share of the device's limit when it is used; one that sleeps keeps what
// its share was when there were fewer, until it is aged.
TEST_F(PoolCacheBoundTest, RunsByTheDevice) {
  constexpr std::size_t kCount = 8;
  const std::vector<StreamRef> streams = make_streams(kCount);
  std::vector<std::unique_ptr<Worker>> threads;
  const auto fill_by = [&](std::size_t i) { threads[i]->run([&] { fill(kMiB, 60, streams[i]); }); };
  std::uint64_t shares = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    threads.push_back(std::make_unique<Worker>());
    fill_by(i);
    shares += kLargeLimit / (i + 1);
    EXPECT_LE(cached(), shares + kLargeLimit / 2) << i + 1 << " threads";
  }
  // In use, each comes down to its share.
  for (std::size_t i = 0; i < kCount; ++i) fill_by(i);
  EXPECT_LE(cached(), kLargeLimit + kLargeLimit / 2);
  expect_all_can_be_had();
}

TEST_F(PoolCacheBoundTest, AConsumerThatSleepsForEverOnTheProducersStream) {
  for (const std::uint64_t bytes : {std::uint64_t{512}, 100 * kKiB, kMiB}) {
    make_pool({});
    Worker consumer;
    for (int round = 0; round < 200; ++round) {
      std::vector<void*> blocks;
      for (std::uint64_t i = 0; i < 40; ++i) blocks.push_back(allocate(bytes));
      consumer.run([&] {
        for (void* const block : blocks) free(block);
      });
      const std::uint64_t bound =
          bytes <= 128 * kKiB ? 3 * kSmallLimit : kLargeLimit + kLargeLimit / 2;
      ASSERT_LE(cached(), bound);
    }
    expect_all_can_be_had();
  }
}

TEST_F(PoolCacheBoundTest, AConsumerThatSleepsForEverOnAStreamOfItsOwn) {
  for (const std::uint64_t bytes : {std::uint64_t{512}, 100 * kKiB, kMiB}) {
    make_pool({});
    Worker consumer;
    for (int round = 0; round < 200; ++round) {
      std::vector<void*> blocks;
      for (std::uint64_t i = 0; i < 40; ++i) blocks.push_back(allocate(bytes, a_));
      consumer.run([&] {
        for (void* const block : blocks) free(block, b_);
      });
      const std::uint64_t bound =
          bytes <= 128 * kKiB ? 4 * kSmallLimit : kLargeLimit + kLargeLimit / 2;
      ASSERT_LE(cached(), bound);
    }
    // The producer never gets them, but by way of the shared tiers: so held does not grow on.
    EXPECT_LE(pool_->stats().held_bytes, 40 * bytes + 8 * kSmallLimit + 2 * kLargeLimit);
    expect_all_can_be_had();
  }
}

TEST_F(PoolCacheBoundTest, WithoutCachesNothingIsKept) {
  PoolOptions options;
  options.cache_small_bytes = 0;
  options.cache_large_bytes = 0;
  make_pool(options);
  for (const std::uint64_t bytes : {std::uint64_t{512}, 100 * kKiB, kMiB}) {
    Worker other;
    other.run([&] { fill(bytes, 10, b_); });
    fill(bytes, 10, a_);
    EXPECT_EQ(cached(), 0u);
  }
  EXPECT_EQ(hits(Tier::cache), 0u);
}

}  // namespace
}  // namespace gpupool
