#include "gpupool/faulty_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gpupool/forwarding_backend.h"
#include "gpupool/simulated_backend.h"

namespace gpupool {
namespace {

class FaultyBackendTest : public testing::Test {
 protected:
  SimulatedBackend inner_;
  FaultyBackend faulty_{inner_};
  const std::size_t page_ = inner_.granularity_bytes();
};

TEST_F(FaultyBackendTest, FailsTheNthCallOfAKindOnce) {
  faulty_.fail_nth(BackendCall::create, 2, Error::out_of_memory);
  EXPECT_TRUE(faulty_.create(page_));
  EXPECT_TRUE(faulty_.allocate(512));  // another kind is not counted
  const auto failed = faulty_.create(page_);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error(), Error::out_of_memory);
  EXPECT_TRUE(faulty_.create(page_));
  EXPECT_EQ(inner_.held_bytes(), 2 * page_ + 512);  // the failed call was not passed on
  EXPECT_EQ(faulty_.call_count(BackendCall::create), 3u);
  EXPECT_EQ(faulty_.call_count(), 4u);
  EXPECT_EQ(faulty_.failed_count(), 1u);
}

TEST_F(FaultyBackendTest, CountsFromNowOn) {
  EXPECT_TRUE(faulty_.memory_info());
  faulty_.fail_nth(BackendCall::memory_info, 1, Error::backend_failure);
  const auto failed = faulty_.memory_info();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error(), Error::backend_failure);
}

TEST_F(FaultyBackendTest, FailsTheNthCallOfAll) {
  faulty_.fail_nth_of_all(3, Error::backend_failure);
  EXPECT_TRUE(faulty_.memory_info());
  EXPECT_TRUE(faulty_.create_event());
  EXPECT_FALSE(faulty_.stream_id(nullptr));
  EXPECT_TRUE(faulty_.stream_id(nullptr));
}

TEST_F(FaultyBackendTest, SeveralPlansStandSideBySide) {
  faulty_.fail_nth(BackendCall::create, 1, Error::out_of_memory);
  faulty_.fail_nth(BackendCall::create, 3, Error::not_supported);
  EXPECT_EQ(faulty_.create(page_).error(), Error::out_of_memory);
  EXPECT_TRUE(faulty_.create(page_));
  EXPECT_EQ(faulty_.create(page_).error(), Error::not_supported);
}

std::string failures_of(Backend& inner, std::uint64_t seed) {
  FaultyBackend faulty(inner, seed);
  faulty.fail_at_random(BackendCall::memory_info, 0.3, Error::backend_failure);
  std::string outcome;
  for (int i = 0; i < 200; ++i) outcome += faulty.memory_info() ? '.' : 'x';
  return outcome;
}

TEST_F(FaultyBackendTest, FailsAtRandomAsTheSeedSays) {
  const std::string first = failures_of(inner_, 1);
  EXPECT_EQ(failures_of(inner_, 1), first);
  EXPECT_NE(failures_of(inner_, 2), first);
  const auto failed = std::count(first.begin(), first.end(), 'x');
  EXPECT_GT(failed, 30);
  EXPECT_LT(failed, 90);
}

TEST_F(FaultyBackendTest, ClearTakesAllPlansBack) {
  int hook_runs = 0;
  faulty_.fail_nth(BackendCall::create, 1, Error::out_of_memory);
  faulty_.fail_nth_of_all(1, Error::out_of_memory);
  faulty_.fail_at_random(BackendCall::create, 1.0, Error::out_of_memory);
  faulty_.before(BackendCall::create, [&] { ++hook_runs; });
  faulty_.clear();
  EXPECT_TRUE(faulty_.create(page_));
  EXPECT_EQ(hook_runs, 0);
}

TEST_F(FaultyBackendTest, HookRunsBeforeACallIsPassedOn) {
  std::uint64_t held_in_hook = ~std::uint64_t{0};
  int runs = 0;
  faulty_.before(BackendCall::create, [&] {
    held_in_hook = inner_.held_bytes();
    ++runs;
  });
  faulty_.fail_nth(BackendCall::create, 2, Error::out_of_memory);
  EXPECT_TRUE(faulty_.create(page_));
  EXPECT_EQ(held_in_hook, 0u);
  EXPECT_FALSE(faulty_.create(page_));  // not passed on, so no hook
  EXPECT_EQ(runs, 1);
}

// A hook that blocks must not keep other threads out.
TEST_F(FaultyBackendTest, HookMayWaitForAnotherThreadsCall) {
  std::atomic<bool> is_inside{false};
  std::atomic<bool> may_go{false};
  faulty_.before(BackendCall::create, [&] {
    is_inside.store(true);
    while (!may_go.load()) std::this_thread::yield();
  });
  std::thread blocked([&] { EXPECT_TRUE(faulty_.create(page_)); });
  while (!is_inside.load()) std::this_thread::yield();
  EXPECT_TRUE(faulty_.memory_info());
  may_go.store(true);
  blocked.join();
  EXPECT_EQ(faulty_.held_bytes(), page_);
}

TEST(BackendCallNames, AreAllThereAndDistinct) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kBackendCallCount; ++i) {
    names.emplace_back(to_string(static_cast<BackendCall>(i)));
    EXPECT_NE(names.back(), "unknown");
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
  EXPECT_STREQ(to_string(static_cast<BackendCall>(kBackendCallCount)), "unknown");
}

// A decorator that forgot one of them would say that the device cannot do it.
TEST(ForwardingBackendTest, WhatABackendNeedNotHaveIsPassedOn) {
  SimulatedBackend inner({.memory = SimulatedMemory::real});
  ForwardingBackend forwarding(inner);
  const std::size_t page = inner.granularity_bytes();
  const auto handle = forwarding.create_shareable(page);
  ASSERT_TRUE(handle.ok());
  EXPECT_TRUE(forwarding.release(handle.value()).ok());
  EXPECT_EQ(forwarding.can_share_with(1).ok(), inner.can_share_with(1).ok());
  EXPECT_EQ(forwarding.block_notes(), inner.block_notes());
  const DeviceAddress block = forwarding.allocate(512).value();
  EXPECT_TRUE(forwarding.fill(block, 512, 0x5a, nullptr).ok());
  std::array<unsigned char, 512> bytes{};
  EXPECT_TRUE(forwarding.read(block, bytes.size(), bytes.data(), nullptr).ok());
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0x5a), 512);
  EXPECT_EQ(&forwarding.clock(), &inner.clock());
  forwarding.wait_until(1'000'000);
  EXPECT_GE(inner.clock().now_ns(), 1'000'000u);
  EXPECT_TRUE(forwarding.has_passed(1'000'000));
  EXPECT_TRUE(forwarding.deallocate(block).ok());
}

}  // namespace
}  // namespace gpupool
