// Caches of many threads at once: own streams and shared ones, threads and streams that come and
// go, others that claim what is cached, in an arena that is too small for all of it.
//
// Every program is a correct one, so what the simulated device refuses, or what is left at the end,
// is the pool's fault.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/heavy_fence.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/stress/stress_time.h"
#include "tests/support/basket.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

constexpr int kCacheThreads = 4;

struct Stream {
  RawStream raw = nullptr;
  StreamRef ref;
};

struct Block {
  void* pointer = nullptr;
  std::uint64_t bytes = 0;
  Stream stream;  // whose work uses it
};

class CacheThreadsTest : public testing::TestWithParam<Backing> {
 protected:
  void SetUp() override {
    PoolOptions options;
    options.capacity = 96 * kMiB;
    options.backing = GetParam();
    options.misuse_handler = [this](const MisuseReport& report) {
      // Threads may still use a shared stream that has just been released.
      if (report.kind != Misuse::unknown_stream) ++misuses_;
    };
    pool_ = Pool::create(device_, options).value();
    for (Stream& stream : shared_) stream = make_stream();
  }
  void TearDown() override {
    device_.complete_all();
    Stream last = make_stream();
    for (Block block; handed_on_.take(block);) free_on(block, last);
    device_.complete_all();
    pool_->maintain();
    pool_->check_invariants();
    const StatsV1 stats = pool_->stats();
    EXPECT_EQ(stats.live_blocks, 0u);
    EXPECT_EQ(stats.live_requested_bytes, 0u);
    EXPECT_EQ(stats.requests - stats.failures, stats.frees);
    EXPECT_EQ(stats.has_asymmetric_claims, internal::has_heavy_fence() ? 1 : 0);
    EXPECT_EQ(refused_, 0u) << device_.last_violation();
    EXPECT_EQ(misuses_, 0u);
    pool_->trim(0);
    EXPECT_EQ(pool_->stats().held_bytes, 0u);
    EXPECT_EQ(device_.held_bytes(), 0u);
    pool_.reset();
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
    EXPECT_EQ(device_.object_count(), 0u);
  }

  Stream make_stream() {
    const RawStream raw = device_.create_stream();
    return {raw, pool_->adopt_stream(raw).value()};
  }
  Stream shared(std::uint64_t number) {
    const std::lock_guard lock(shared_mutex_);
    return shared_[number % shared_.size()];
  }
  void launch(const Block& block, std::uint64_t duration_ns) {
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(block.pointer);
    work.bytes = block.bytes;
    work.duration_ns = duration_ns;
    if (!device_.launch(block.stream.raw, work).ok()) ++refused_;
  }
  /// Frees a block on another stream than the one that used it.
  void free_on(const Block& block, const Stream& stream) {
    const EventHandle event = device_.create_event().value();
    bool is_right = device_.record_event(event, block.stream.raw).ok();
    is_right = device_.wait_event(stream.raw, event).ok() && is_right;
    is_right = device_.destroy_event(event).ok() && is_right;
    if (!is_right || !pool_->deallocate(block.pointer, stream.ref)) ++refused_;
  }
  /// Where its own stream has ended meanwhile, on `other`.
  void free(const Block& block, const Stream& other, bool is_sized) {
    const bool is_freed = is_sized ? pool_->deallocate(block.pointer, block.bytes, block.stream.ref)
                                   : pool_->deallocate(block.pointer, block.stream.ref);
    if (!is_freed) free_on(block, other);
  }
  static std::uint64_t any_size(std::mt19937_64& random) {
    switch (random() % 8) {
      case 0:
      case 1:
      case 2: return 1 + random() % (4 * kKiB);
      case 3: return 1 + random() % (32 * kKiB);
      case 4: return 1 + random() % (128 * kKiB);
      case 5: return 512;
      case 6: return (1 + random() % 4) * kMiB;
      default: return 1 + random() % (8 * kMiB);
    }
  }

  void run_program(std::uint64_t seed, std::uint64_t rounds);
  void claim(std::uint64_t round);
  void replace_shared(std::uint64_t round);

  SimulatedBackend device_{{.capacity_bytes = std::uint64_t{1} << 30, .charge_costs = false}};
  std::unique_ptr<Pool> pool_;
  std::mutex shared_mutex_;
  std::array<Stream, 3> shared_;
  Basket<Block> handed_on_;
  std::atomic<bool> is_over_{false};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::uint64_t> misuses_{0};
};

void CacheThreadsTest::run_program(std::uint64_t seed, std::uint64_t rounds) {
  std::mt19937_64 random(seed);
  Stream own = make_stream();
  std::vector<Block> blocks;
  const auto free_all = [&] {
    for (const Block& block : blocks) free(block, own, random() % 2 == 0);
    blocks.clear();
  };
  for (std::uint64_t i = 0; i < rounds && !is_over_; ++i) {
    const std::uint64_t bytes = any_size(random);
    const Stream stream = random() % 2 == 0 ? own : shared(random());
    if (blocks.size() < 30) {
      if (const auto pointer = pool_->allocate(bytes, stream.ref); pointer.ok()) {
        blocks.push_back({pointer.value(), bytes, stream});
        launch(blocks.back(), random() % 4 == 0 ? 50'000 : 0);
      }
    }
    while (!blocks.empty() && random() % 2 == 0) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      // To another thread, which frees it on the stream that used it: nothing has to wait.
      if (random() % 4 == 0) {
        handed_on_.put(blocks.back());
      } else {
        free(blocks.back(), own, random() % 2 == 0);
      }
      blocks.pop_back();
    }
    if (Block block; random() % 2 == 0 && handed_on_.take(block)) free(block, own, false);
    if (random() % 200 == 0) {
      // The stream ends with its work still running; the next may get its index.
      free_all();
      if (!pool_->release_stream(own.ref)) ++refused_;
      own = make_stream();
    }
  }
  free_all();
}

void CacheThreadsTest::claim(std::uint64_t round) {
  device_.advance_ns(round % 8 == 0 ? 600'000'000 : 30'000);  // blocks in caches age
  switch (round % 4) {
    case 0:
    case 1: pool_->maintain(); break;
    case 2: pool_->drain_caches(); break;
    case 3: pool_->trim(round % 32 * kMiB); break;
  }
}

void CacheThreadsTest::replace_shared(std::uint64_t round) {
  const Stream next = make_stream();
  Stream former;
  {
    const std::lock_guard lock(shared_mutex_);
    former = std::exchange(shared_[round % shared_.size()], next);
  }
  if (!pool_->release_stream(former.ref)) ++refused_;
}

TEST_P(CacheThreadsTest, ThreadsAndStreamsComeAndGoWhileOthersClaim) {
  std::atomic<std::uint64_t> seed{0};
  std::vector<std::thread> threads;
  // Some that stay, and some in the place of which others come.
  for (int i = 0; i < kCacheThreads; ++i) {
    threads.emplace_back([&, i] {
      while (!is_over_) {
        std::thread([&] { run_program(++seed, i % 2 == 0 ? ~std::uint64_t{0} : 100); }).join();
      }
    });
  }
  const auto end = std::chrono::steady_clock::now() + stress_time(700ms);
  for (std::uint64_t round = 0; std::chrono::steady_clock::now() < end; ++round) {
    claim(round);
    if (round % 16 == 0 && round / 16 < 1000) replace_shared(round / 16);
    const StatsV1 stats = pool_->stats();
    EXPECT_EQ(stats.held_bytes, stats.live_requested_bytes + stats.waste_bytes +
                                    stats.cached_bytes + stats.pending_bytes + stats.free_bytes);
    std::this_thread::yield();
  }
  is_over_ = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(pool_->stats().hits_by_tier[0], 100u);
}

// One stream for all: what one thread frees another allocates, by way of what is handed over.
TEST_P(CacheThreadsTest, ProducersAndConsumersOfOneStream) {
  const Stream stream = shared(0);
  std::atomic<std::uint64_t> in_flight{0};
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937_64 random(i);
      constexpr std::array<std::uint64_t, 4> kSizes = {512, 20 * kKiB, 100 * kKiB, 300 * kKiB};
      while (!is_over_) {
        if (in_flight >= 200) {
          std::this_thread::yield();
          continue;
        }
        const std::uint64_t bytes = kSizes[random() % kSizes.size()];
        const auto pointer = pool_->allocate(bytes, stream.ref);
        if (!pointer.ok()) continue;
        const Block block{pointer.value(), bytes, stream};
        launch(block, 0);
        ++in_flight;
        handed_on_.put(block);
      }
    });
    threads.emplace_back([&] {
      while (!is_over_) {
        Block block;
        if (!handed_on_.take(block)) {
          std::this_thread::yield();
          continue;
        }
        --in_flight;
        if (!pool_->deallocate(block.pointer, stream.ref)) ++refused_;
      }
    });
  }
  const auto end = std::chrono::steady_clock::now() + stress_time(700ms);
  for (std::uint64_t round = 0; std::chrono::steady_clock::now() < end; ++round) {
    if (round % 4 == 0) claim(round);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  is_over_ = true;
  for (std::thread& thread : threads) thread.join();
}

// Streams known by their handles alone, which the pool names anew whenever it is asked.
TEST_P(CacheThreadsTest, HandlesThatEachThreadNamesForItself) {
  std::vector<RawStream> raws;
  for (int i = 0; i < 6; ++i) raws.push_back(device_.create_stream());
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kCacheThreads; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937_64 random(i);
      while (!is_over_) {
        const RawStream raw = raws[random() % raws.size()];
        const std::uint64_t bytes = 1 + random() % (256 * kKiB);
        const auto pointer = pool_->allocate(bytes, raw);
        if (pointer.ok()) {
          launch({pointer.value(), bytes, {raw, {}}}, 0);
          // Refused where the stream was released just then.
          while (!pool_->deallocate(pointer.value(), raw)) std::this_thread::yield();
        }
        // What is released here is adopted anew by whoever comes next.
        if (random() % 64 == 0) pool_->release_stream(pool_->adopt_stream(raw).value());
      }
    });
  }
  const auto end = std::chrono::steady_clock::now() + stress_time(700ms);
  for (std::uint64_t round = 0; std::chrono::steady_clock::now() < end; ++round) {
    claim(round);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  is_over_ = true;
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(All, CacheThreadsTest, testing::Values(Backing::vmm, Backing::cudamalloc),
                         [](const auto& backing) { return to_string(backing.param); });

}  // namespace
}  // namespace gpupool
