// Threads that allocate and free on their own and each other's streams, while others look,
// maintain and trim. The simulated device refuses what would be a race on a card.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "gpupool/faulty_backend.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/stress/stress_time.h"
#include "tests/support/basket.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

constexpr int kPoolThreads = 4;

/// A block on its way to a thread that will free it on its own stream.
struct Parcel {
  void* pointer = nullptr;
  std::uint64_t bytes = 0;
  EventHandle event;  // after what its owner gave it to do
};

using Mailbox = Basket<Parcel>;

class PoolThreadsTest : public testing::Test {
 protected:
  void make_pool(std::uint64_t capacity, Backing backing = Backing::vmm) {
    PoolOptions options;
    options.capacity = capacity;
    options.backing = backing;
    options.misuse_handler = [this](const MisuseReport&) { ++misuses_; };
    pool_ = Pool::create(backend_, options).value();
  }

  void launch(RawStream stream, void* pointer, std::uint64_t bytes, std::uint64_t duration_ns) {
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(pointer);
    work.bytes = bytes;
    work.duration_ns = duration_ns;
    if (!device_.launch(stream, work).ok()) ++refused_;
  }

  std::uint64_t any_size(std::mt19937_64& random) {
    switch (random() % 4) {
      case 0: return 1 + random() % (32 << 10);
      case 1: return 1 + random() % (128 << 10);
      case 2: return kMiB;
      default: return 1 + random() % (16 * kMiB);
    }
  }

  // One thread's program: allocates, works, frees or hands on, and frees what is handed to it.
  void run_program(int self, std::chrono::steady_clock::time_point end);
  /// All programs at once, with a watcher, until the time is over.
  void run_programs();
  // Of the numbers that must agree in every snapshot, how often they did not.
  void watch(const std::atomic<bool>& is_over);

  void finish() {
    device_.complete_all();
    pool_->check_invariants();
    const StatsV1 stats = pool_->stats();
    EXPECT_EQ(stats.requests, stats.hits + stats.misses);
    EXPECT_EQ(stats.live_blocks, 0u);
    EXPECT_EQ(stats.live_requested_bytes, 0u);
    EXPECT_EQ(stats.held_bytes, device_.held_bytes());
    EXPECT_EQ(refused_, 0u) << device_.last_violation();
    EXPECT_EQ(contradictions_, 0u);
    EXPECT_EQ(misuses_, 0u);
    pool_->trim(0);
    EXPECT_EQ(device_.held_bytes(), 0u);
    pool_.reset();
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
  }

  SimulatedBackend device_{{.capacity_bytes = std::uint64_t{4} << 30, .charge_costs = false}};
  FaultyBackend backend_{device_};
  std::unique_ptr<Pool> pool_;
  std::array<Mailbox, kPoolThreads> mailboxes_;
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::uint64_t> contradictions_{0};
  std::atomic<std::uint64_t> misuses_{0};
};

void PoolThreadsTest::run_program(int self, std::chrono::steady_clock::time_point end) {
  std::mt19937_64 random(static_cast<std::uint64_t>(self) + 1);
  const RawStream raw = device_.create_stream();
  const StreamRef stream = pool_->adopt_stream(raw).value();
  std::vector<Parcel> own;
  const auto free_one = [&](Parcel parcel) {
    if (parcel.event.value != 0) {
      if (!device_.wait_event(raw, parcel.event).ok()) ++refused_;
      if (!device_.destroy_event(parcel.event).ok()) ++refused_;
    }
    launch(raw, parcel.pointer, parcel.bytes, 1000);
    if (!pool_->deallocate(parcel.pointer, parcel.bytes, stream)) ++refused_;
  };
  while (std::chrono::steady_clock::now() < end) {
    const std::uint64_t bytes = any_size(random);
    if (const auto block = pool_->allocate(bytes, stream); block.ok()) {
      launch(raw, block.value(), bytes, random() % 4 == 0 ? 100'000 : 0);
      own.push_back({block.value(), bytes, {}});
    }
    if (own.size() > 20 || (!own.empty() && random() % 2 == 0)) {
      const std::size_t at = random() % own.size();
      std::swap(own[at], own.back());
      Parcel parcel = own.back();
      own.pop_back();
      if (random() % 2 == 0) {
        free_one(parcel);
      } else {
        parcel.event = device_.create_event().value();
        if (!device_.record_event(parcel.event, raw).ok()) ++refused_;
        mailboxes_[random() % kPoolThreads].put(parcel);
      }
    }
    Parcel parcel;
    if (mailboxes_[static_cast<std::size_t>(self)].take(parcel)) free_one(parcel);
    if (random() % 16 == 0) device_.advance_ns(50'000);
  }
  for (const Parcel& parcel : own) free_one(parcel);
}

void PoolThreadsTest::watch(const std::atomic<bool>& is_over) {
  for (std::uint64_t round = 0; !is_over; ++round) {
    const StatsV1 stats = pool_->stats();
    const bool is_right =
        stats.held_bytes == stats.live_requested_bytes + stats.waste_bytes + stats.cached_bytes +
                                stats.pending_bytes + stats.free_bytes &&
        stats.held_bytes <= stats.limit_bytes && stats.hits + stats.misses <= stats.requests;
    if (!is_right) ++contradictions_;
    pool_->maintain();
    if (round % 8 == 0) pool_->trim(round % 16 * 16 * kMiB);
    if (round % 8 == 4) pool_->drain_caches();
    std::uint64_t bytes = 0;
    pool_->visit_blocks([&](const BlockInfo& info) { bytes += info.bytes; });
    if (bytes > stats.limit_bytes) ++contradictions_;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void PoolThreadsTest::run_programs() {
  const auto end = std::chrono::steady_clock::now() + stress_time(1000ms);
  std::atomic<bool> is_over{false};
  std::thread watcher([&] { watch(is_over); });
  std::vector<std::thread> threads;
  threads.reserve(kPoolThreads);
  for (int i = 0; i < kPoolThreads; ++i) threads.emplace_back([&, i] { run_program(i, end); });
  for (std::thread& thread : threads) thread.join();
  is_over = true;
  watcher.join();
  EXPECT_GT(pool_->stats().requests, 100u);
  // What nobody came to fetch.
  const RawStream raw = device_.create_stream();
  const StreamRef stream = pool_->adopt_stream(raw).value();
  for (Mailbox& mailbox : mailboxes_) {
    for (Parcel parcel; mailbox.take(parcel);) {
      EXPECT_TRUE(device_.wait_event(raw, parcel.event).ok());
      EXPECT_TRUE(device_.destroy_event(parcel.event).ok());
      EXPECT_TRUE(pool_->deallocate(parcel.pointer, stream));
    }
  }
}

class BackingThreadsTest : public PoolThreadsTest, public testing::WithParamInterface<Backing> {};

TEST_P(BackingThreadsTest, OwnAndOthersStreams) {
  make_pool(256 * kMiB, GetParam());
  run_programs();
  finish();
  EXPECT_EQ(device_.object_count(), 0u);
}

// So that others come in between the steps of a close, and of a look at what is complete.
TEST_P(BackingThreadsTest, EventsThatTakeLongAndFail) {
  make_pool(256 * kMiB, GetParam());
  std::atomic<unsigned> turn{0};
  for (const BackendCall call : {BackendCall::stream_id, BackendCall::capture_state,
                                 BackendCall::record_event, BackendCall::query_event}) {
    backend_.before(call, [&turn] {
      if (const unsigned now = turn++; now % 3 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(now % 7 * 20));
      }
    });
  }
  backend_.fail_at_random(BackendCall::record_event, 0.1, Error::backend_failure);
  backend_.fail_at_random(BackendCall::query_event, 0.1, Error::backend_failure);
  backend_.fail_at_random(BackendCall::create_event, 0.1, Error::backend_failure);
  run_programs();
  backend_.clear();
  finish();
  EXPECT_EQ(device_.object_count(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, BackingThreadsTest,
                         testing::Values(Backing::vmm, Backing::cudamalloc),
                         [](const auto& backing) { return to_string(backing.param); });

TEST_F(PoolThreadsTest, EachThreadsOwnDefaultStream) {
  make_pool(64 * kMiB);
  const auto end = std::chrono::steady_clock::now() + stress_time(1000ms);
  const auto program = [&](std::uint64_t seed, std::uint64_t rounds) {
    std::mt19937_64 random(seed);
    const RawStream raw = per_thread_stream();
    for (std::uint64_t i = 0; i < rounds && std::chrono::steady_clock::now() < end; ++i) {
      const std::uint64_t bytes = any_size(random);
      const auto block = pool_->allocate(bytes, raw);
      if (!block.ok()) continue;
      launch(raw, block.value(), bytes, random() % 2 == 0 ? 200'000 : 0);
      if (!pool_->deallocate(block.value(), raw)) ++refused_;
      if (random() % 8 == 0) device_.advance_ns(50'000);
      if (random() % 16 == 0) pool_->maintain();
    }
  };
  // Threads end and others take their place, ids of the system and all, while work still runs.
  std::uint64_t seed = 0;
  while (std::chrono::steady_clock::now() < end) {
    std::vector<std::thread> threads;
    threads.reserve(kPoolThreads);
    for (int i = 0; i < kPoolThreads; ++i) threads.emplace_back(program, ++seed, 50);
    for (std::thread& thread : threads) thread.join();
  }
  device_.complete_all();
  EXPECT_EQ(refused_, 0u) << device_.last_violation();
  EXPECT_EQ(pool_->stats().live_blocks, 0u);
  pool_->check_invariants();
  pool_.reset();
  EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
}

TEST_F(PoolThreadsTest, OfTwoFreesThatRaceOneIsRefused) {
  make_pool(64 * kMiB);
  const StreamRef stream = pool_->adopt_stream(device_.create_stream()).value();
  constexpr std::uint64_t kRounds = 300;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    void* block = pool_->allocate(i % 2 == 0 ? 512 : kMiB, stream).value();
    std::atomic<int> ready{0};
    std::atomic<int> freed{0};
    const auto race = [&] {
      ++ready;
      while (ready < 2) std::this_thread::yield();
      if (pool_->deallocate(block, stream)) ++freed;
    };
    std::thread other(race);
    race();
    other.join();
    ASSERT_EQ(freed, 1);
  }
  EXPECT_EQ(misuses_, kRounds);
  EXPECT_EQ(pool_->stats().misuses[static_cast<std::size_t>(Misuse::double_free)], kRounds);
  misuses_ = 0;
  finish();
}

TEST_F(PoolThreadsTest, StreamsComeAndGo) {
  make_pool(64 * kMiB);
  const auto end = std::chrono::steady_clock::now() + stress_time(1000ms);
  std::vector<std::thread> threads;
  threads.reserve(kPoolThreads);
  for (std::uint64_t i = 0; i < kPoolThreads; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937_64 random(i + 1);
      while (std::chrono::steady_clock::now() < end) {
        const RawStream raw = device_.create_stream();
        const StreamRef stream = pool_->adopt_stream(raw).value();
        for (int k = 0; k < 5; ++k) {
          const std::uint64_t bytes = any_size(random);
          const auto block = pool_->allocate(bytes, stream);
          if (!block.ok()) continue;
          launch(raw, block.value(), bytes, 300'000);
          if (!pool_->deallocate(block.value(), stream)) ++refused_;
        }
        if (!pool_->release_stream(stream)) ++refused_;
        device_.destroy_stream(raw);  // its work still runs
        device_.advance_ns(100'000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  finish();
}

}  // namespace
}  // namespace gpupool
