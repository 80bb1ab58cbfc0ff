// Threads that allocate and free at a tight limit while pages move under them, memory goes back and
// the policy changes: on real memory, so that a page that moved too early, or to two places, shows
// in what the blocks hold.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/stress/stress_time.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

constexpr std::uint64_t kPages = 48;
constexpr std::uint64_t kRecyclingThreads = 4;

/// A block and what its owner wrote: a word at each page's begin and end, and at its own.
struct WrittenBlock {
  char* pointer = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t pattern = 0;
};

template <class Visit>
void for_each_word(const WrittenBlock& block, Visit visit) {
  const auto at = [&](std::uint64_t offset) { visit(block.pointer + offset, offset); };
  at(0);
  for (std::uint64_t offset = kPage - sizeof(std::uint64_t); offset + kMiB < block.bytes;
       offset += kPage) {
    at(offset);
    at(offset + 2 * sizeof(std::uint64_t));
  }
  at((block.bytes - sizeof(std::uint64_t)) / sizeof(std::uint64_t) * sizeof(std::uint64_t));
}

class RecyclingThreadsTest : public testing::TestWithParam<AliasReuse> {
 protected:
  void SetUp() override {
    PoolOptions options;
    options.capacity = kPages * kPage;
    options.cache_small_bytes = 256 << 10;
    options.cache_large_bytes = 8 * kMiB;
    options.runtime.alias_reuse = GetParam();
    options.runtime.slack = 0;
    options.runtime.trim.idle_after_ns = 50'000'000;
    options.misuse_handler = [this](const MisuseReport&) { ++misuses_; };
    pool_ = Pool::create(device_, options).value();
  }

  static std::uint64_t any_size(std::mt19937_64& random) {
    switch (random() % 8) {
      case 0: return 8 + random() % (32 << 10);
      case 1: return 8 + random() % (128 << 10);
      case 2: return kPage;
      case 3: return kPage * (1 + random() % 8);
      default: return 8 + random() % (5 * kPage);
    }
  }
  /// Work that writes the block, or finds it as it was; in the order of the stream.
  void launch(RawStream stream, const WrittenBlock& block, bool writes, std::uint64_t duration_ns) {
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(block.pointer);
    work.bytes = block.bytes;
    work.duration_ns = duration_ns;
    work.body = [this, block, writes] {
      for_each_word(block, [&](char* word, std::uint64_t offset) {
        const std::uint64_t value = block.pattern ^ offset;
        if (writes) {
          std::memcpy(word, &value, sizeof value);
        } else if (std::memcmp(word, &value, sizeof value) != 0) {
          ++corrupted_;
        }
      });
    };
    if (!device_.launch(stream, work).ok()) ++refused_;
  }
  void run_program(std::uint64_t self);
  /// Changes everything that may be changed meanwhile.
  void tend();
  /// Looks at everything that may be looked at.
  void watch();

  SimulatedBackend device_{
      {.capacity_bytes = 256 * kMiB, .memory = SimulatedMemory::real, .charge_costs = false}};
  std::unique_ptr<Pool> pool_;
  std::atomic<std::uint64_t> misuses_{0};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::uint64_t> corrupted_{0};
  std::atomic<std::uint64_t> contradictions_{0};
  std::atomic<std::uint64_t> served_{0};
  std::atomic<bool> is_over_{false};
};

void RecyclingThreadsTest::run_program(std::uint64_t self) {
  std::mt19937_64 random(self + 1);
  const RawStream raw = device_.create_stream();
  const StreamRef stream = pool_->adopt_stream(raw).value();
  constexpr std::uint64_t kShare = kPages * kPage / kRecyclingThreads * 3 / 4;
  std::vector<WrittenBlock> own;
  std::uint64_t own_bytes = 0;
  const auto free_at = [&](std::size_t at) {
    const WrittenBlock block = own[at];
    own.erase(own.begin() + static_cast<std::ptrdiff_t>(at));
    own_bytes -= block.bytes;
    launch(raw, block, false, random() % 5 == 0 ? 30'000 : 0);
    if (!pool_->deallocate(block.pointer, block.bytes, stream)) ++refused_;
  };
  const auto allocate = [&](std::uint64_t bytes) {
    // Together they have most of what there is, in whole or in pieces.
    while (!own.empty() && own_bytes + bytes > kShare) free_at(random() % own.size());
    const auto pointer = pool_->allocate(bytes, stream);
    if (!pointer.ok()) return false;
    own.push_back({static_cast<char*>(pointer.value()), bytes, random()});
    own_bytes += bytes;
    ++served_;
    launch(raw, own.back(), true, random() % 8 == 0 ? 50'000 : 0);
    return true;
  };
  while (!is_over_) {
    for (std::uint64_t i = 0; i < 20; ++i) {
      allocate(any_size(random));
      if (!own.empty() && random() % 3 == 0) free_at(random() % own.size());
      if (random() % 4 == 0) device_.advance_ns(20'000);
    }
    // Pages by turns taken and empty, and then something that fits between no two of them.
    while (own_bytes + kPage <= kShare && allocate(kPage)) {
    }
    for (std::size_t i = own.size(); i-- > 0;) {
      if (i % 2 == 0) free_at(i);
    }
    device_.advance_ns(100'000);
    allocate(kPage * (2 + random() % 6));
  }
  while (!own.empty()) free_at(own.size() - 1);
}

void RecyclingThreadsTest::tend() {
  std::mt19937_64 random(99);
  RuntimeOptions options = pool_->runtime_options();
  while (!is_over_) {
    switch (random() % 32) {
      case 0: pool_->trim(random() % kPages * kPage); break;
      case 1:
      case 2: pool_->drain_caches(); break;
      // The device catches up.
      case 3: device_.advance_ns(2'000'000); break;
      case 4: {
        // Mostly eager.
        constexpr std::array kPolicies{Recycling::off, Recycling::pressure, Recycling::eager,
                                       Recycling::eager, Recycling::eager};
        options.recycling = kPolicies[random() % kPolicies.size()];
        options.trim.keep_device_free_bytes = random() % 4 == 0 ? 200 * kMiB : 0;
        if (!pool_->reconfigure(options).ok()) ++refused_;
        break;
      }
      default: pool_->maintain(std::chrono::microseconds(random() % 200));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
}

void RecyclingThreadsTest::watch() {
  while (!is_over_) {
    const StatsV1 stats = pool_->stats();
    const bool is_right =
        stats.held_bytes == stats.live_requested_bytes + stats.waste_bytes + stats.cached_bytes +
                                stats.pending_bytes + stats.free_bytes &&
        stats.held_bytes <= stats.limit_bytes && stats.hits + stats.misses <= stats.requests;
    if (!is_right) ++contradictions_;
    static_cast<void>(pool_->would_fit(kPage * 20));
    std::uint64_t bytes = 0;
    pool_->visit_blocks([&](const BlockInfo& info) { bytes += info.bytes; });
    if (bytes > stats.limit_bytes) ++contradictions_;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST_P(RecyclingThreadsTest, NobodysDataIsTouchedAndTheBooksAreRight) {
  std::vector<std::thread> threads;
  threads.reserve(kRecyclingThreads + 2);
  for (std::uint64_t i = 0; i < kRecyclingThreads; ++i)
    threads.emplace_back([this, i] { run_program(i); });
  threads.emplace_back([this] { tend(); });
  threads.emplace_back([this] { watch(); });
  // As long as it takes until pages have moved, where a sanitizer makes all of it slow.
  constexpr std::uint64_t kMoves = 20;
  std::this_thread::sleep_for(stress_time(1500ms));
  for (int i = 0; i < 600 && pool_->stats().pages_recycled < kMoves; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  is_over_ = true;
  for (std::thread& thread : threads) thread.join();
  device_.complete_all();
  pool_->check_invariants();
  EXPECT_EQ(corrupted_, 0u);
  EXPECT_EQ(refused_, 0u) << device_.last_violation();
  EXPECT_EQ(contradictions_, 0u);
  EXPECT_EQ(misuses_, 0u);
  const StatsV1 stats = pool_->stats();
  EXPECT_GT(served_, 200u);
  EXPECT_GE(stats.pages_recycled, kMoves);
  EXPECT_EQ(stats.live_blocks, 0u);
  EXPECT_EQ(stats.held_bytes, device_.held_bytes());
  pool_->trim(0);
  EXPECT_EQ(device_.held_bytes(), 0u);
  EXPECT_EQ(pool_->stats().held_bytes, 0u);
  pool_.reset();
  EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
  EXPECT_EQ(device_.object_count(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, RecyclingThreadsTest,
                         testing::Values(AliasReuse::wait, AliasReuse::same_stream),
                         [](const auto& reuse) { return to_string(reuse.param); });

}  // namespace
}  // namespace gpupool
