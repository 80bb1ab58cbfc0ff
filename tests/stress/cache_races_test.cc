// Two threads at the same block, and at the end of the same stream: of two frees one is refused,
// and no memory reaches anybody whom it could harm.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/gate.h"
#include "tests/support/rendezvous.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

constexpr std::array<std::uint64_t, 4> kRaceSizes = {512, 20 * kKiB, 100 * kKiB, kMiB};

#ifdef __SANITIZE_THREAD__
constexpr std::uint64_t kRaceRounds = 10'000;
#else
constexpr std::uint64_t kRaceRounds = 100'000;
#endif

class CacheRacesTest : public testing::Test {
 protected:
  void make_pool(PoolOptions options = {}) {
    options.misuse_handler = [this](const MisuseReport& report) {
      ++misuses_;
      if (report.kind != Misuse::double_free) ++other_misuses_;
    };
    pool_ = Pool::create(device_, options).value();
  }
  void TearDown() override {
    device_.complete_all();
    if (pool_ == nullptr) return;
    const StatsV1 stats = pool_->stats();
    EXPECT_EQ(stats.live_blocks, 0u);
    EXPECT_EQ(stats.live_requested_bytes, 0u);
    EXPECT_EQ(other_misuses_, 0u);
    pool_->check_invariants();
    pool_->trim(0);
    EXPECT_EQ(pool_->stats().held_bytes, 0u);
    pool_.reset();
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
    EXPECT_EQ(device_.object_count(), 0u);
  }

  bool launch(RawStream stream, void* block, std::uint64_t bytes) {
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(block);
    work.bytes = bytes;
    work.until_completed = true;
    return device_.launch(stream, work).ok();
  }

  SimulatedBackend device_{{.capacity_bytes = 1024 * kMiB, .charge_costs = false}};
  std::atomic<std::uint64_t> misuses_{0};
  std::atomic<std::uint64_t> other_misuses_{0};
  std::unique_ptr<Pool> pool_;
};

TEST_F(CacheRacesTest, OfTwoFreesThatRaceExactlyOneSucceeds) {
  make_pool();
  const RawStream raw = device_.create_stream();
  const StreamRef stream = pool_->adopt_stream(raw).value();
  // The other frees on a stream of its own; the block is nobody's work, so that is legal.
  const StreamRef others = pool_->adopt_stream(device_.create_stream()).value();
  std::atomic<void*> block{nullptr};
  std::atomic<std::uint64_t> freed{0};
  Rendezvous start;
  Rendezvous end;
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    for (std::uint64_t round = 0; round < kRaceRounds; ++round) {
      start.meet();
      if (is_over) return;
      freed += pool_->deallocate(block, round % 3 == 0 ? others : stream);
      end.meet();
    }
  });
  std::uint64_t rounds = 0;
  bool is_right = true;
  for (std::uint64_t round = 0; round < kRaceRounds && is_right; ++round) {
    const std::uint64_t bytes = kRaceSizes[round % kRaceSizes.size()];
    block = pool_->allocate(bytes, stream).value();
    freed = 0;
    start.meet();
    freed +=
        round % 2 == 0 ? pool_->deallocate(block, stream) : pool_->deallocate(block, bytes, stream);
    end.meet();
    is_right = freed == 1;
    rounds += is_right;
  }
  is_over = true;
  if (rounds < kRaceRounds - 1) start.meet();  // else it has ended
  other.join();
  // What was freed twice is in the caches twice: of no use any more, and no end to it.
  if (!is_right) pool_.release();
  ASSERT_EQ(rounds, kRaceRounds);
  EXPECT_EQ(misuses_, kRaceRounds);
}

TEST_F(CacheRacesTest, OfTwoFreesThatRaceOneSucceedsWhileCachesAreClaimed) {
  make_pool();
  const StreamRef stream = pool_->adopt_stream(device_.create_stream()).value();
  std::atomic<bool> is_over{false};
  std::thread claimer([&] {
    while (!is_over) {
      pool_->drain_caches();
      pool_->maintain();
    }
  });
  std::atomic<void*> block{nullptr};
  std::atomic<std::uint64_t> freed{0};
  Rendezvous start;
  Rendezvous end;
  constexpr std::uint64_t kFewer = kRaceRounds / 10;
  std::thread other([&] {
    for (std::uint64_t round = 0; round < kFewer; ++round) {
      start.meet();
      freed += pool_->deallocate(block, stream);
      end.meet();
    }
  });
  std::uint64_t wrong = 0;
  for (std::uint64_t round = 0; round < kFewer; ++round) {
    block = pool_->allocate(kRaceSizes[round % kRaceSizes.size()], stream).value();
    freed = 0;
    start.meet();
    freed += pool_->deallocate(block, stream);
    end.meet();
    wrong += freed != 1;
  }
  other.join();
  is_over = true;
  claimer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(misuses_, kFewer);
}

// A second free that comes so late that its block is somebody's again is a free like any other;
// but what is counted must be what that block was, whatever it was a moment before.
TEST_F(CacheRacesTest, TheBooksHoldWhoeverFreesWhat) {
  PoolOptions options;
  options.tags = {"even", "odd"};
  make_pool(options);
  const StreamRef stream = pool_->adopt_stream(device_.create_stream()).value();
  std::atomic<void*> last{nullptr};
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over) pool_->deallocate(last, stream);
  });
  std::mt19937 random(1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 1000; ++i) {
      AllocationRequest request;
      request.bytes = (random() % 2 == 0 ? 0 : 200 * kKiB) + 1 + random() % 512;
      request.tag = Tag(static_cast<std::uint8_t>(request.bytes % 2));
      void* const block = pool_->allocate(request, stream).value();
      last = block;
      for (std::uint32_t spin = random() % 32; spin > 0; --spin)
        std::atomic_signal_fence(std::memory_order_seq_cst);
      pool_->deallocate(block, stream);
    }
  }
  is_over = true;
  other.join();
  EXPECT_EQ(pool_->stats().tag_live_bytes[0], 0u);
  EXPECT_EQ(pool_->stats().tag_live_bytes[1], 0u);
  EXPECT_GT(misuses_, 0u);
  other_misuses_ = 0;  // the address may be inside of another block by then
}

// A second free that comes so late that its block's chunk is gone, and the chunk's record, with
// that of the block, serves another place.
TEST_F(CacheRacesTest, AFreeThatComesTooLateTakesNothingElsewhere) {
  make_pool();
  const StreamRef stream = pool_->adopt_stream(device_.create_stream()).value();
  std::atomic<void*> former{nullptr};
  std::atomic<bool> is_over{false};
  std::thread late([&] {
    while (!is_over) pool_->deallocate(former, stream);
  });
  std::uint64_t elsewhere = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(400);
  while (std::chrono::steady_clock::now() < end) {
    // The second of a chunk, since what comes to lie there starts where the first was.
    void* const first = pool_->allocate(512, stream).value();
    void* const block = pool_->allocate(512, stream).value();
    former = block;
    std::this_thread::yield();
    pool_->deallocate(block, stream);  // if the other has not
    EXPECT_TRUE(pool_->deallocate(first, stream));
    pool_->drain_caches();
    // In the chunk's place, which thus comes to lie elsewhere.
    void* const run = pool_->allocate(132 * kKiB, stream).value();
    void* const next_first = pool_->allocate(512, stream).value();
    void* const next = pool_->allocate(512, stream).value();
    const bool is_elsewhere = next != block && next_first != block;
    elsewhere += is_elsewhere;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    for (void* const other : {next_first, next, run}) {
      const bool is_freed = pool_->deallocate(other, stream);
      EXPECT_TRUE(is_freed || !is_elsewhere);
    }
    pool_->drain_caches();
  }
  is_over = true;
  late.join();
  other_misuses_ = 0;
  EXPECT_GT(elsewhere, 0u);
}

// A thread has taken its block back and finds no room in its cache; before it gets the pool's lock
// the stream ends, and its index is another's. The stream's work still runs.
TEST_F(CacheRacesTest, AStreamEndsWhileABlockIsOnItsWayToTheSharedTiers) {
  PoolOptions options;
  options.cache_small_bytes = 0;
  options.cache_large_bytes = 0;
  make_pool(options);
  std::uint64_t late = 0;  // rounds in which the stream had ended before the free began
  for (int round = 0; round < 12; ++round) {
    const std::uint64_t bytes = kRaceSizes[static_cast<std::size_t>(round) % kRaceSizes.size()];
    const RawStream raw = device_.create_stream();
    StreamRef stream;
    void* block = nullptr;
    Gate is_held;
    Gate is_freeing;
    std::atomic<bool> is_ready{false};
    bool is_freed = false;
    std::thread owner([&] {
      stream = pool_->adopt_stream(raw).value();
      block = pool_->allocate(bytes, stream).value();
      // All that the stream freed before is complete, so that its index can be given at once.
      EXPECT_TRUE(pool_->deallocate(pool_->allocate(bytes, stream).value(), stream));
      pool_->maintain();
      pool_->maintain();
      EXPECT_TRUE(launch(raw, block, bytes));
      is_ready = true;
      is_freeing.pass();
      is_freed = pool_->deallocate(block, stream);
    });
    while (!is_ready || !is_freeing.wait_until_reached()) std::this_thread::yield();
    // Whoever looks at the map holds the lock. First the end of the stream waits for it, then the
    // block.
    std::thread holder([&] {
      bool is_first = true;
      pool_->visit_blocks([&](const BlockInfo&) {
        if (is_first) is_held.pass();
        is_first = false;
      });
    });
    ASSERT_TRUE(is_held.wait_until_reached());
    std::thread releaser([&] { EXPECT_TRUE(pool_->release_stream(stream)); });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    is_freeing.open();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    is_held.open();
    for (std::thread* thread : {&holder, &releaser, &owner}) thread->join();
    device_.destroy_stream(raw);

    const RawStream next_raw = device_.create_stream();
    const StreamRef next = pool_->adopt_stream(next_raw).value();
    std::vector<void*> blocks;
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(pool_->allocate(bytes, next).value());
      EXPECT_TRUE(launch(next_raw, blocks.back(), bytes)) << device_.last_violation();
    }
    device_.complete_all();
    if (!is_freed) {
      ++late;
      EXPECT_TRUE(pool_->deallocate(block, next));
    }
    for (void* const other : blocks) EXPECT_TRUE(pool_->deallocate(other, next));
    EXPECT_TRUE(pool_->release_stream(next));
    device_.destroy_stream(next_raw);
    pool_->maintain();
  }
  EXPECT_EQ(misuses_, late);
  other_misuses_ -= late;
  EXPECT_LT(late, 12u) << "the free was never under way";
}

}  // namespace
}  // namespace gpupool
