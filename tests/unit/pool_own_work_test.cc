// Whose work a block waits for, and what that costs; all policies under threads.
#include <thread>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/policy_fixture.h"

namespace gpupool {
namespace {

class OwnWorkTest : public PolicyFixture {};

TEST_F(OwnWorkTest, ABlockWhoseOwnWorkIsDoneIsReusableWhateverWasFreedBesideItLater) {
  make_pool_of(64 * kMiB);
  void* first = allocate(20 * kMiB);
  void* second = allocate(40 * kMiB);
  EXPECT_TRUE(work(raw_a_, first));
  free(first);
  settle();  // an event, after that work
  EXPECT_TRUE(work(raw_a_, second));
  free(second);  // its neighbour, which joins it
  settle();
  EXPECT_TRUE(is_refused(20 * kMiB, b_));
  EXPECT_TRUE(device_.complete_next(raw_a_));
  void* other = allocate(20 * kMiB, b_);
  EXPECT_TRUE(work(raw_b_, other, 20 * kMiB)) << device_.last_violation();
  EXPECT_FALSE(device_.is_idle(raw_a_));
  free(other, b_);
}

TEST_F(OwnWorkTest, OfOneStreamNothingHoldsUpAnother) {
  make_pool_of(64 * kMiB);
  const RawStream raw_c = device_.create_stream();
  const StreamRef c = pool_->adopt_stream(raw_c).value();
  void* first = allocate(20 * kMiB);
  void* second = allocate(40 * kMiB, b_);
  EXPECT_TRUE(work(raw_a_, first));
  EXPECT_TRUE(work(raw_b_, second));
  free(first);
  settle();  // its event is the older one
  free(second, b_);
  settle();
  device_.complete(raw_b_);
  EXPECT_EQ(allocate(40 * kMiB, c), second);
  EXPECT_FALSE(device_.is_idle(raw_a_));
  free(second, c);
}

TEST_F(OwnWorkTest, EventsAreUsedAgain) {
  make_pool_of(64 * kMiB);
  for (int i = 0; i < 500; ++i) {
    void* block = allocate(kMiB);
    EXPECT_TRUE(work(raw_a_, block));
    free(block);
    pool_->drain_caches();
    pool_->maintain();
    device_.complete_all();
    pool_->maintain();
  }
  EXPECT_GE(backend_.call_count(BackendCall::record_event), 400u);
  EXPECT_LE(backend_.call_count(BackendCall::create_event), 4u);
  EXPECT_EQ(backend_.call_count(BackendCall::destroy_event), 0u);
}

TEST_F(OwnWorkTest, AHitAsksNoEvent) {
  make_pool_of(64 * kMiB);
  free(allocate(512));
  free(allocate(kMiB));
  const std::uint64_t calls = backend_.call_count();
  for (int i = 0; i < 1000; ++i) {
    free(allocate(512));
    free(allocate(kMiB));
  }
  EXPECT_EQ(backend_.call_count(), calls);
}

// The device judges each piece of work; each stream is used by one thread, as its order is.
TEST_F(OwnWorkTest, ManyThreadsUnderEachPolicy) {
  for (const auto policy :
       {CrossStreamPolicy::wait, CrossStreamPolicy::never, CrossStreamPolicy::when_done}) {
    make_pool_with(policy, 48 * kMiB);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const RawStream raw = device_.create_stream();
        const StreamRef stream = pool_->adopt_stream(raw).value();
        for (std::uint64_t i = 1; i <= 400; ++i) {
          const std::uint64_t bytes = i * (t + 1) * 7919 % (6 * kMiB) + 1;
          const auto block = pool_->allocate(bytes, stream);
          if (!block.ok()) continue;
          SimulatedWork timed;
          timed.address = reinterpret_cast<DeviceAddress>(block.value());
          timed.bytes = bytes;
          timed.duration_ns = 50'000;
          EXPECT_TRUE(device_.launch(raw, timed).ok()) << device_.last_violation();
          EXPECT_TRUE(pool_->deallocate(block.value(), stream));
          if (i % 50 == 0) {
            order(raw, raw_b_);
            EXPECT_TRUE(pool_->note_dependency(stream, b_));
          }
          if (i % 64 == 0) pool_->maintain();
        }
        EXPECT_TRUE(pool_->release_stream(stream));
      });
    }
    for (std::thread& thread : threads) thread.join();
    pool_->check_invariants();
  }
}

}  // namespace
}  // namespace gpupool
