// A pool whose caches of runs were of no use for long finds out when they are.
#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolRunDemandTest : public PoolFixture {
 protected:
  /// Sizes of which none comes back, two gigabytes of them.
  void add_junk() {
    for (std::uint64_t i = 0; i < 1500; ++i) free(allocate(kMiB + ++junk_ * 4 * kKiB));
    ASSERT_EQ(pool_->stats().cached_bytes, 0u);
  }
  /// Rounds of a pair until it is a hit of the cache.
  std::uint64_t rounds_until_hit(std::uint64_t bytes) {
    for (std::uint64_t round = 1; round < 5000; ++round) {
      const std::uint64_t before = hits(Tier::cache);
      free(allocate(bytes));
      if (hits(Tier::cache) > before) return round;
    }
    return 5000;
  }
  std::uint64_t junk_ = 0;
};

TEST_F(PoolRunDemandTest, AtFirstAPairIsAHitTheSecondTime) {
  for (const std::uint64_t bytes : {kMiB, 4 * kMiB}) {
    EXPECT_EQ(rounds_until_hit(bytes), 2u);
    pool_->drain_caches();
  }
}

TEST_F(PoolRunDemandTest, APairIsAHitAgainAfterAHistoryOfJunk) {
  for (const std::uint64_t mib : {1u, 2u, 16u}) {
    add_junk();
    // A gigabyte is remembered.
    EXPECT_LE(rounds_until_hit(mib * kMiB), 1024 / mib + 8) << mib;
    const std::uint64_t before = hits(Tier::cache);
    for (int i = 0; i < 1000; ++i) free(allocate(mib * kMiB));
    EXPECT_EQ(hits(Tier::cache), before + 1000) << mib;
  }
}

TEST_F(PoolRunDemandTest, JunkIsNotKept) {
  add_junk();
  // Half of them come back, as in a serving job.
  for (std::uint64_t i = 0; i < 500; ++i) {
    free(allocate(3 * kMiB));
    free(allocate(3 * kMiB + ++junk_ * 4 * kKiB));
  }
  EXPECT_EQ(pool_->stats().cached_bytes, 0u);
}

TEST_F(PoolRunDemandTest, ARunThatIsServedAligningOrTaggedCountsAsAskedForToo) {
  const Tag tag = pool_->find_tag("weights").value();
  add_junk();
  AllocationRequest request;
  request.bytes = 2 * kMiB;
  request.tag = tag;
  std::uint64_t rounds = 0;
  for (std::uint64_t before = hits(Tier::cache); hits(Tier::cache) == before && rounds < 5000;) {
    free(pool_->allocate(request, a_).value());
    ++rounds;
  }
  EXPECT_LE(rounds, 520u);
}

}  // namespace
}  // namespace gpupool
