#include <gtest/gtest.h>

#include "cache/large_cache.h"
#include "cache/small_cache.h"

namespace gpupool::internal {
namespace {

class SmallCacheTest : public testing::Test {
 protected:
  SmallCacheTest() { EXPECT_TRUE(chunks_.reserve(8)); }
  static std::uint32_t code(ChunkId chunk, std::uint32_t granule) {
    return chunk * kGranulesPerChunk + granule;
  }
  LazyArray<Chunk> chunks_;
};

TEST_F(SmallCacheTest, LastInFirstOutByExactSize) {
  SmallCache cache(chunks_, 4096);
  const std::size_t bin = SmallCache::slot_bin(0);
  EXPECT_EQ(cache.take(bin, 512), 0u);
  EXPECT_TRUE(cache.put(bin, code(1, 0), 512));
  EXPECT_TRUE(cache.put(bin, code(1, 1), 512));
  EXPECT_TRUE(cache.put(SmallCache::slot_bin(1), code(2, 4), 1024));
  EXPECT_EQ(cache.bytes(), 2048u);
  EXPECT_EQ(cache.peek(bin), code(1, 1));
  EXPECT_EQ(cache.take(bin, 512), code(1, 1));
  EXPECT_EQ(cache.take(bin, 512), code(1, 0));
  EXPECT_EQ(cache.take(bin, 512), 0u);
  EXPECT_EQ(cache.take(SmallCache::slot_bin(1), 1024), code(2, 4));
  EXPECT_EQ(cache.bytes(), 0u);
}

TEST_F(SmallCacheTest, RefusesWhatIsBeyondItsLimit) {
  SmallCache cache(chunks_, 1024);
  EXPECT_TRUE(cache.put(0, code(1, 0), 512));
  EXPECT_TRUE(cache.put(0, code(1, 1), 512));
  EXPECT_FALSE(cache.put(0, code(1, 2), 512));
  EXPECT_EQ(cache.bytes(), 1024u);
  EXPECT_EQ(cache.peek(0), code(1, 1));
}

TEST_F(SmallCacheTest, BinsOfSlotsAndBuddiesDiffer) {
  EXPECT_LT(SmallCache::slot_bin(kSizeClassCount - 1), SmallCache::buddy_bin(1));
  EXPECT_LT(SmallCache::buddy_bin(kUnitsPerChunk), SmallCache::kBinCount);
}

TEST_F(SmallCacheTest, SaysOnceThatItWasTouched) {
  SmallCache cache(chunks_, 1024);
  EXPECT_FALSE(cache.was_touched());
  cache.put(0, code(1, 0), 512);
  EXPECT_TRUE(cache.was_touched());
  EXPECT_FALSE(cache.was_touched());
  cache.take(0, 512);
  EXPECT_TRUE(cache.was_touched());
}

class LargeCacheTest : public testing::Test {
 protected:
  LargeCacheTest() : runs_(streams_, {}), cache_(runs_) {
    EXPECT_TRUE(runs_.reserve(4096, 4096));
    runs_.know_stream(0);
    runs_.know_stream(1);
    runs_.add(0, 1024);
  }
  RunId put(std::uint32_t units, StreamIndex stream) {
    const RunId id = runs_.take(units, 1, stream, Reach::everywhere, RunKind::block);
    runs_[id].block.stream = stream;
    cache_.put(id);
    return id;
  }

  StreamTable streams_;
  RunTable runs_;
  LargeCache cache_;
};

TEST_F(LargeCacheTest, FindsByStreamAndExactSizeTheNewestFirst) {
  const RunId a = put(40, 0);
  const RunId b = put(40, 0);
  const RunId c = put(40, 1);
  put(41, 0);
  EXPECT_EQ(cache_.bytes(), 161 * kUnitBytes);
  EXPECT_EQ(cache_.take(0, 39), 0u);
  EXPECT_EQ(cache_.take(0, 40), b);
  EXPECT_EQ(cache_.take(0, 40), a);
  EXPECT_EQ(cache_.take(0, 40), 0u);
  EXPECT_EQ(cache_.take(1, 40), c);
  EXPECT_EQ(cache_.bytes(), 41 * kUnitBytes);
}

TEST_F(LargeCacheTest, TheOldestLeavesFirst) {
  const RunId a = put(40, 0);
  const RunId b = put(50, 1);
  const RunId c = put(60, 0);
  EXPECT_EQ(cache_.oldest(), a);
  EXPECT_EQ(cache_.take(1, 50), b);
  EXPECT_EQ(cache_.take_oldest(), a);
  EXPECT_EQ(cache_.take_oldest(), c);
  EXPECT_EQ(cache_.take_oldest(), 0u);
  EXPECT_EQ(cache_.bytes(), 0u);
}

TEST_F(LargeCacheTest, AStreamsBlocksAloneAreTakenOut) {
  const RunId a = put(40, 0);
  const RunId b = put(50, 1);
  const RunId c = put(60, 0);
  EXPECT_EQ(cache_.take_of(0), a);
  EXPECT_EQ(cache_.take_of(0), c);
  EXPECT_EQ(cache_.take_of(0), 0u);
  EXPECT_EQ(cache_.oldest(), b);
}

TEST_F(LargeCacheTest, ABinThatManySizesShareLosesNothing) {
  std::vector<RunId> ids;
  for (std::uint32_t units = 1; units <= 40; ++units) ids.push_back(put(units, units % 2));
  for (std::uint32_t units = 40; units >= 1; --units) {
    EXPECT_EQ(cache_.take(units % 2, units), ids[units - 1]);
  }
  EXPECT_EQ(cache_.oldest(), 0u);
}

}  // namespace
}  // namespace gpupool::internal
