// Memory that is taken from the driver and never used again.
#include <algorithm>
#include <tuple>
#include <vector>

#include "tests/cases/case_pool.h"
#include "tests/support/units.h"

namespace gpupool::test {
namespace {

// rmm#35 (case A5): pairs of growing requests, both freed at once, never more than 4 GB live. Each
// round took a new chunk and none of the earlier ones was used again: 24 GB in the end.
class Rmm35 : public PolicyTest {};

TEST_P(Rmm35, EarlierMemoryIsUsedAgainForSlightlyLargerRequests) {
  constexpr std::uint64_t kStep = 170 * kMiB;
  constexpr std::uint64_t kPeakLive = 2 * 12 * kStep;
  PoolOptions options = CasePool::with_recycling(GetParam());
  options.reserve_bytes = 2 * kGiB;
  CasePool pool(32 * kGiB, options);
  ASSERT_TRUE(pool.is_started());
  EXPECT_EQ(pool.held_bytes(), 2 * kGiB);
  const auto pass = [&] {
    for (std::uint64_t k = 1; k <= 12; ++k) {
      void* const first = pool.allocate(k * kStep);
      void* const second = pool.allocate(k * kStep);
      pool.free(first);
      pool.free(second);
    }
  };
  pass();
  EXPECT_LE(pool.stats().peak_held_bytes, kPeakLive + 32 * kMiB);
  EXPECT_EQ(pool.stats().fallbacks, 0u);
  const std::uint64_t calls = pool.stats().driver_calls;
  pass();
  EXPECT_EQ(pool.stats().driver_calls, calls);
  EXPECT_LE(pool.stats().peak_held_bytes, kPeakLive + 32 * kMiB);
}

INSTANTIATE_TEST_SUITE_P(All, Rmm35,
                         testing::Values(Recycling::off, Recycling::eager, Recycling::pressure),
                         policy_name);

// llama.cpp#22107 (case A7): a buffer grows a little with every token, so that each request is
// slightly larger than all that is cached; the card fills up with buffers that nobody can use. The
// first fix gave them all back, those included that kernels still used.
class LlamaCpp22107 : public testing::TestWithParam<std::tuple<Recycling, bool>> {};

TEST_P(LlamaCpp22107, ABufferThatGrowsWithEveryTokenLeavesNothingBehind) {
  const auto [recycling, is_running] = GetParam();
  CasePool pool(16'368 * kMiB, recycling);
  ASSERT_TRUE(pool.is_started());
  std::uint64_t most_cached = 0;
  for (std::uint64_t token = 0; token < 4'000; ++token) {
    const std::uint64_t bytes = 64 * kMiB + token * 4 * kKiB;
    void* const buffer = pool.allocate(bytes);
    if (is_running) pool.work(buffer, bytes, 100'000);
    pool.free(buffer);
    ASSERT_LE(pool.held_bytes(), 2 * bytes + 2 * kPage) << "token " << token;
    most_cached = std::max(most_cached, pool.stats().cached_bytes);
    pool.device().advance_ns(10'000);
  }
  EXPECT_LE(most_cached, 2 * (64 * kMiB + 4'000 * 4 * kKiB));
  EXPECT_EQ(pool.stats().failures, 0u);
  // With everything free, a trim gives back what no kernel uses, and that alone.
  void* const last = pool.allocate(64 * kMiB);
  pool.work(last, 64 * kMiB);
  pool.free(last);
  pool.pool().trim(0);
  EXPECT_GE(pool.held_bytes(), 64 * kMiB);
  pool.device().complete_all();
  pool.pool().trim(0);
  EXPECT_EQ(pool.held_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, LlamaCpp22107,
                         testing::Combine(testing::Values(Recycling::off, Recycling::eager,
                                                          Recycling::pressure),
                                          testing::Bool()),
                         [](const auto& param) {
                           return std::string(to_string(std::get<0>(param.param))) +
                                  (std::get<1>(param.param) ? "_running" : "_idle");
                         });

// The same on the cards that it was reported from, which have no VMM: segments that are too short
// for anybody go back, before a request is refused, or at once.
class LlamaCpp22107WithoutVmm : public PolicyTest {};

TEST_P(LlamaCpp22107WithoutVmm, SegmentsThatAreTooShortGoBack) {
  constexpr std::uint64_t kLimit = 256 * kMiB;
  PoolOptions options = CasePool::with_recycling(GetParam());
  options.backing = Backing::cudamalloc;
  CasePool pool(kLimit, options);
  ASSERT_TRUE(pool.is_started());
  for (std::uint64_t token = 0; token < 4'000; ++token) {
    const std::uint64_t bytes = 64 * kMiB + token * 4 * kKiB;
    void* const buffer = pool.try_allocate(bytes);
    ASSERT_NE(buffer, nullptr) << "token " << token << ": " << pool.why();
    pool.free(buffer);
    const std::uint64_t bound = GetParam() == Recycling::eager ? 2 * bytes + 2 * kPage : kLimit;
    ASSERT_LE(pool.held_bytes(), bound) << "token " << token;
  }
}

INSTANTIATE_TEST_SUITE_P(Recycling, LlamaCpp22107WithoutVmm,
                         testing::Values(Recycling::eager, Recycling::pressure), policy_name);

}  // namespace
}  // namespace gpupool::test
