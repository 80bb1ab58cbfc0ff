// What one thread counts, and what becomes of it when it is summed.
#include "cache/thread_counters.h"

#include <gtest/gtest.h>

#include <numeric>

namespace gpupool::internal {
namespace {

class ThreadCountersTest : public testing::Test {
 protected:
  ThreadCountersTest() {
    counters_.start();
    counters_.high.set(1000);
    counters_.low.set(-1000);
  }
  CounterTotals totals() const {
    CounterTotals totals;
    counters_.add_to(totals);
    return totals;
  }

  ThreadCounters counters_;
};

TEST_F(ThreadCountersTest, BlocksAndBytesOfEachKind) {
  counters_.count_small(2, 1200);
  counters_.count_small(2, 1500);
  counters_.count_small_free(2, 1200);
  counters_.count_run(5000, 8192);
  counters_.count_run(9000, 0);  // a fallback
  counters_.count_run_free(5000, 8192);
  const CounterTotals sum = totals();
  EXPECT_EQ(sum.served(), 4u);
  EXPECT_EQ(sum.freed(), 2u);
  EXPECT_EQ(sum.live_bytes(), 1500u + 9000u);
  EXPECT_EQ(sum.live_block_bytes(), 1536u);
  EXPECT_EQ(sum.allocations[2], 2u);
  EXPECT_EQ(sum.large_allocations[13], 1u);  // (4096, 8192]
  EXPECT_EQ(sum.large_allocations[14], 1u);
  EXPECT_EQ(counters_.live(), 10'500);
}

TEST_F(ThreadCountersTest, AShardMayGiveBackWhatAnotherHandedOut) {
  ThreadCounters other;
  other.start();
  other.count_small(0, 500);
  other.count_run(4096 * 100, 4096 * 100);
  other.count_tagged(3, 500);
  counters_.count_small_free(0, 500);
  counters_.count_run_free(4096 * 100, 4096 * 100);
  counters_.count_tagged_free(3, 500);
  EXPECT_LT(counters_.live(), 0);
  CounterTotals sum = totals();
  other.add_to(sum);
  EXPECT_EQ(sum.live_bytes(), 0u);
  EXPECT_EQ(sum.live_block_bytes(), 0u);
  EXPECT_EQ(sum.served(), sum.freed());
  EXPECT_EQ(sum.tag_bytes[3], 0u);
}

TEST_F(ThreadCountersTest, ALoneShardKeepsItsHighestItself) {
  counters_.is_alone.set(true);
  counters_.high.set(0);
  counters_.low.set(std::numeric_limits<std::int64_t>::min());
  EXPECT_FALSE(counters_.count_run(5'000'000, 5'001'216));
  EXPECT_FALSE(counters_.count_run(3'000'000, 3'001'216));
  EXPECT_EQ(counters_.high.get(), 8'000'000);
  EXPECT_FALSE(counters_.count_run_free(5'000'000, 5'001'216));
  EXPECT_FALSE(counters_.count_small(0, 512));
  EXPECT_EQ(counters_.high.get(), 8'000'000);
}

TEST_F(ThreadCountersTest, OneOfSeveralSaysWhenItHasMadeAStep) {
  EXPECT_FALSE(counters_.count_small(0, 500));
  EXPECT_FALSE(counters_.count_small(0, 500));  // 1000 is not beyond
  EXPECT_TRUE(counters_.count_small(0, 1));
  EXPECT_TRUE(counters_.count_run(1 << 20, 1 << 20));
  EXPECT_EQ(counters_.high.get(), 1000);  // until it is looked at
  EXPECT_FALSE(counters_.count_run_free(1 << 20, 1 << 20));
  EXPECT_FALSE(counters_.count_small_free(0, 500));
  EXPECT_FALSE(counters_.count_small_free(0, 500));
  EXPECT_FALSE(counters_.count_small_free(0, 1));
  EXPECT_FALSE(counters_.count_small_free(0, 512));
  EXPECT_FALSE(counters_.count_small_free(0, 488));  // -1000 is not beyond
  EXPECT_TRUE(counters_.count_small_free(0, 1));
}

TEST_F(ThreadCountersTest, OneAllocationInSoManyIsToBeTimed) {
  std::uint64_t noted = 0;
  counters_.high.set(std::numeric_limits<std::int64_t>::max());
  for (std::uint64_t i = 0; i < 10 * ThreadCounters::kSampleEvery; ++i) {
    noted += counters_.count_small(5, 3000);
  }
  EXPECT_EQ(noted, 10u);
  counters_.count_hit_duration(70);
  counters_.count_hit_duration(5000);
  const DurationHistogram hits = totals().hit_duration;
  EXPECT_EQ(hits.sum_ns, 5070u);
  EXPECT_EQ(std::accumulate(hits.count.begin(), hits.count.end(), std::uint64_t{0}), 2u);
}

TEST_F(ThreadCountersTest, SumsAreOfAllFields) {
  counters_.shared_hits[1].add(4);
  counters_.moved[2].add(~std::uint64_t{0});
  counters_.moved[3].add(1);
  counters_.count_tagged(0, 10);
  counters_.count_tagged(31, 20);
  CounterTotals sum = totals();
  counters_.add_to(sum);
  EXPECT_EQ(sum.shared_hits[1], 8u);
  EXPECT_EQ(sum.moved[2], 0 - std::uint64_t{2});
  EXPECT_EQ(sum.moved[3], 2u);
  EXPECT_EQ(sum.tag_bytes[0], 20u);
  EXPECT_EQ(sum.tag_bytes[31], 40u);
  counters_.start();
  EXPECT_EQ(totals().tag_bytes[31], 0u);
  EXPECT_EQ(totals().served(), 0u);
}

}  // namespace
}  // namespace gpupool::internal
