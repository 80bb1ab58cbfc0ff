// What maintenance gives back by itself: memory that nobody has needed for a while, at its rate,
// and what others on the device need; and how that is changed while the pool runs.
#include <limits>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolTrimTest : public PoolFixture {
 protected:
  static PoolOptions with_trim(TrimOptions trim) {
    PoolOptions options;
    options.runtime.trim = trim;
    return options;
  }
  /// So much is held, and empty.
  void hold_empty(std::uint64_t bytes) {
    std::vector<void*> blocks;
    for (std::uint64_t i = 0; i < bytes / (2 * kMiB); ++i) blocks.push_back(allocate(2 * kMiB));
    for (void* block : blocks) free(block);
    settle();
    EXPECT_GE(device_.held_bytes(), bytes);
  }
  void maintain_for(std::uint64_t seconds) {
    for (std::uint64_t i = 0; i < 4 * seconds; ++i) {
      device_.advance_ns(kSecondNs / 4);
      pool_->maintain(std::chrono::seconds(1));
    }
  }
  std::uint64_t trims(TrimReason reason) const {
    return pool_->stats().trims_by_reason[static_cast<std::size_t>(reason)];
  }
};

TEST_F(PoolTrimTest, NothingGoesBackByItselfUnlessAskedFor) {
  hold_empty(64 * kMiB);
  maintain_for(100);
  EXPECT_EQ(device_.held_bytes(), 64 * kMiB);
}

TEST_F(PoolTrimTest, WhatWasEmptyForTheTimeGoesBackAtTheRate) {
  make_pool(with_trim({.idle_after_ns = 16 * kSecondNs, .idle_bytes_per_second = 8 * kMiB}));
  hold_empty(64 * kMiB);
  maintain_for(14);
  EXPECT_EQ(device_.held_bytes(), 64 * kMiB);
  maintain_for(6);
  EXPECT_LT(device_.held_bytes(), 64 * kMiB);
  EXPECT_GE(device_.held_bytes(), 16 * kMiB);
  maintain_for(10);
  EXPECT_EQ(device_.held_bytes(), 0u);
  EXPECT_GE(trims(TrimReason::idle), 8u);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.trimmed_bytes_by_reason[static_cast<std::size_t>(TrimReason::idle)], 64 * kMiB);
  EXPECT_EQ(stats.pages_unmapped, 32u);
}

TEST_F(PoolTrimTest, ARateBelowAPageASecondIsKept) {
  make_pool(with_trim({.idle_after_ns = 8 * kSecondNs, .idle_bytes_per_second = kMiB / 2}));
  hold_empty(64 * kMiB);
  maintain_for(50);
  EXPECT_LE(device_.held_bytes(), (64 - 16) * kMiB);
  EXPECT_GE(device_.held_bytes(), (64 - 24) * kMiB);
}

/// Shows what it is told to, as a thread sees time that read it and then waited for a lock.
class ToldClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override { return now_ns_; }
  void set(std::uint64_t now_ns) noexcept { now_ns_ = now_ns; }

 private:
  std::uint64_t now_ns_ = 0;
};

TEST_F(PoolTrimTest, TheRateIsKeptByAThreadWhoseTimeIsOld) {
  ToldClock clock;
  PoolOptions options =
      with_trim({.idle_after_ns = 8 * kSecondNs, .idle_bytes_per_second = 4 * kMiB});
  options.clock = &clock;
  make_pool(options);
  hold_empty(128 * kMiB);
  std::uint64_t now_ns = 0;
  for (; now_ns <= 10 * kSecondNs; now_ns += kSecondNs / 4) {
    clock.set(now_ns);
    pool_->maintain(std::chrono::seconds(1));
  }
  const std::uint64_t held = device_.held_bytes();
  EXPECT_LT(held, 128 * kMiB);
  // Two threads, of which one always comes to the lock with a time of just before the other's.
  for (int i = 0; i < 1000; ++i) {
    clock.set(now_ns + kSecondNs / 1000);
    pool_->maintain(std::chrono::seconds(1));
    clock.set(now_ns);
    pool_->maintain(std::chrono::seconds(1));
    now_ns += kSecondNs / 1000;
  }
  EXPECT_GE(device_.held_bytes(), held - 6 * kMiB);
  EXPECT_LE(device_.held_bytes(), held - 2 * kMiB);
  const StatsV1 stats = pool_->stats();
  EXPECT_LE(stats.device_read_time_ns, stats.time_ns);
  end_pool();  // before its clock
}

TEST_F(PoolTrimTest, TheRateIsKeptWhereHandlesAreLarge) {
  PoolOptions options =
      with_trim({.idle_after_ns = 8 * kSecondNs, .idle_bytes_per_second = 2 * kMiB});
  options.runtime.recycling = Recycling::off;  // handles of 32 MiB
  make_pool(options);
  free(allocate(256 * kMiB));
  settle();
  maintain_for(8 + 40);
  EXPECT_LE(device_.held_bytes(), (256 - 64) * kMiB);
  EXPECT_GE(device_.held_bytes(), (256 - 128) * kMiB);
}

TEST_F(PoolTrimTest, SmallFreesBesideItDoNotKeepIdleMemory) {
  make_pool(with_trim({.idle_after_ns = 8 * kSecondNs}));
  void* small = allocate(256 * kKiB);
  hold_empty(64 * kMiB - 2 * kMiB);
  for (int i = 0; i < 40; ++i) {
    // Each joins what is empty as it is freed.
    free(small);
    settle();
    small = allocate(256 * kKiB);
    maintain_for(1);
  }
  EXPECT_EQ(device_.held_bytes(), 2 * kMiB);
  free(small);
}

TEST_F(PoolTrimTest, WhatIsNeededNowAndThenStays) {
  make_pool(with_trim({.idle_after_ns = 16 * kSecondNs}));
  hold_empty(64 * kMiB);
  for (int i = 0; i < 10; ++i) {
    maintain_for(5);
    free(allocate(40 * kMiB));
    settle();
  }
  EXPECT_EQ(device_.held_bytes(), 40 * kMiB);
}

TEST_F(PoolTrimTest, ANewTimeStartsAnew) {
  const TrimOptions brief{.idle_after_ns = 8 * kSecondNs, .idle_bytes_per_second = 2 * kMiB};
  make_pool(with_trim(brief));
  hold_empty(64 * kMiB);
  maintain_for(10);
  const std::uint64_t held = device_.held_bytes();
  EXPECT_LT(held, 64 * kMiB);
  RuntimeOptions options = pool_->runtime_options();
  options.trim.idle_after_ns = 80 * kSecondNs;
  ASSERT_TRUE(pool_->reconfigure(options).ok());
  maintain_for(75);
  EXPECT_EQ(device_.held_bytes(), held);
  maintain_for(50);
  EXPECT_EQ(device_.held_bytes(), 0u);
}

TEST_F(PoolTrimTest, OthersOnTheDeviceGetWhatIsEmpty) {
  make_pool(with_trim({.keep_device_free_bytes = 128 * kMiB}));
  hold_empty(64 * kMiB);
  maintain_for(1);
  EXPECT_EQ(device_.held_bytes(), 64 * kMiB);
  ASSERT_TRUE(device_.set_taken_by_others((1024 - 64 - 100) * kMiB).ok());
  maintain_for(1);
  EXPECT_EQ(device_.held_bytes(), 36 * kMiB);
  EXPECT_EQ(trims(TrimReason::pressure), 1u);
  RuntimeOptions options = pool_->runtime_options();
  options.trim.keep_device_free_bytes = kMaxTrimBytes;
  ASSERT_TRUE(pool_->reconfigure(options).ok());
  maintain_for(1);
  EXPECT_EQ(device_.held_bytes(), 0u);
}

TEST_F(PoolTrimTest, WhatContradictsItselfOrOverflowsIsRefused) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const auto refuse = [&](TrimOptions trim, const std::string& named) {
    RuntimeOptions options = pool_->runtime_options();
    options.trim = trim;
    const auto changed = pool_->reconfigure(options);
    ASSERT_FALSE(changed.ok()) << named;
    EXPECT_EQ(changed.error().code, Error::invalid_argument);
    EXPECT_NE(changed.error().message.find(named), std::string::npos) << changed.error().message;
    EXPECT_FALSE(Pool::create(backend_, with_trim(trim)).ok());
  };
  refuse({.idle_after_ns = 1, .idle_bytes_per_second = 0}, "trim.idle_bytes_per_second");
  refuse({.idle_bytes_per_second = kMost}, "trim.idle_bytes_per_second");
  refuse({.keep_device_free_bytes = kMost}, "trim.keep_device_free_bytes");
  EXPECT_EQ(pool_->stats().reconfigurations, 0u);
  RuntimeOptions options = pool_->runtime_options();
  options.trim = {.idle_after_ns = kMost, .idle_bytes_per_second = kMaxTrimBytes};
  EXPECT_TRUE(pool_->reconfigure(options).ok());
  options.trim = {.idle_after_ns = 0, .idle_bytes_per_second = 0};
  EXPECT_TRUE(pool_->reconfigure(options).ok());
}

}  // namespace
}  // namespace gpupool
