#include "size_class/size_class.h"

#include <gtest/gtest.h>

#include <set>

#include "gpupool/pool.h"
#include "pool/shape.h"
#include "size_class/slab.h"

namespace gpupool::internal {
namespace {

TEST(SizeClassTest, EverySizeIsServedByTheSmallestClassThatHoldsIt) {
  for (std::uint64_t bytes = 1; bytes <= kMaxSlotBytes; ++bytes) {
    const SizeClass size_class = size_class_of(bytes);
    ASSERT_LT(size_class, kSizeClassCount);
    ASSERT_GE(kSizeClasses[size_class].slot_bytes, bytes);
    if (size_class > 0) {
      ASSERT_LT(kSizeClasses[size_class - 1].slot_bytes, bytes);
    }
  }
}

TEST(SizeClassTest, RoundingWastesAtMostAGranuleOrAnEighth) {
  for (std::uint64_t bytes = 1; bytes <= kMaxSlotBytes; ++bytes) {
    const std::uint64_t slot = kSizeClasses[size_class_of(bytes)].slot_bytes;
    if (bytes <= 4096) {
      ASSERT_LT(slot - bytes, kGranuleBytes);
    } else {
      ASSERT_LE((slot - bytes) * 8, slot);
    }
  }
}

TEST(SizeClassTest, SlotsAreGranulesAndSlabsHoldTheSmallerShareOfTails) {
  std::set<std::uint32_t> sizes;
  for (const SizeClassInfo& info : kSizeClasses) {
    EXPECT_EQ(info.slot_bytes % kGranuleBytes, 0u);
    EXPECT_TRUE(sizes.insert(info.slot_bytes).second);
    const std::uint32_t slab_bytes = info.slab_units * 4096;
    EXPECT_TRUE(slab_bytes == 64 << 10 || slab_bytes == 128 << 10);
    EXPECT_EQ(info.slot_count, slab_bytes / info.slot_bytes);
    EXPECT_LE(info.slot_count, Slab::kMaxSlots);
    EXPECT_GE(info.slot_count, 2u);
    const double tail = static_cast<double>(slab_bytes % info.slot_bytes) / slab_bytes;
    const std::uint32_t other = slab_bytes == 64 << 10 ? 128 << 10 : 64 << 10;
    EXPECT_LE(tail, static_cast<double>(other % info.slot_bytes) / other);
  }
}

TEST(SlabTest, GivesTheLowestFreeSlot) {
  for (SizeClass size_class = 0; size_class < kSizeClassCount; ++size_class) {
    Slab slab;
    slab.start(size_class, 16);
    const std::uint32_t count = slab.info().slot_count;
    for (std::uint32_t i = 0; i < count; ++i) {
      ASSERT_TRUE(slab.has_free());
      ASSERT_EQ(slab.take(), i);
      ASSERT_TRUE(slab.is_taken(i));
    }
    EXPECT_FALSE(slab.has_free());
    EXPECT_EQ(slab.free_bytes(), 0u);
    EXPECT_EQ(slab.fullness(), 3u);
    EXPECT_FALSE(slab.is_taken(count));
    slab.put(count - 1, false);
    slab.put(0, false);
    slab.check_invariants();
    EXPECT_EQ(slab.take(), 0u);
    EXPECT_EQ(slab.take(), count - 1);
    EXPECT_EQ(slab.tail_bytes() + std::uint64_t{count} * slab.info().slot_bytes,
              slab.info().slab_units * kUnitBytes);
  }
}

TEST(SlabTest, ForeignSlotsWaitUntilTheyAreFreed) {
  Slab slab;
  slab.start(0, 0);
  const std::uint32_t count = slab.info().slot_count;
  for (std::uint32_t i = 0; i < count; ++i) slab.take();
  slab.put(5, true);
  slab.put(70, true);
  EXPECT_FALSE(slab.has_free());
  EXPECT_TRUE(slab.has_foreign());
  EXPECT_FALSE(slab.is_taken(5));
  EXPECT_EQ(slab.taken(), count - 2);
  EXPECT_EQ(slab.free_bytes(), 2u * 512);
  slab.check_invariants();
  slab.free_foreign();
  EXPECT_FALSE(slab.has_foreign());
  slab.check_invariants();
  EXPECT_EQ(slab.take(), 5u);
  EXPECT_EQ(slab.take(), 70u);
}

TEST(SlabDeathTest, PuttingASlotBackTwiceEndsTheProgram) {
  Slab slab;
  slab.start(3, 0);
  slab.take();
  slab.take();
  slab.put(1, false);
  EXPECT_DEATH(slab.put(1, false), "internal error");
  slab.put(0, true);
  EXPECT_DEATH(slab.put(0, false), "internal error");
}

TEST(ShapeTest, RoutesBySizeAndAlignment) {
  struct Case {
    std::uint64_t bytes;
    std::uint64_t alignment;
    Tier tier;
    std::uint64_t block_bytes;
    std::uint32_t align_units;
  };
  const Case cases[] = {
      {1, 512, Tier::size_class, 512, 1},
      {512, 1, Tier::size_class, 512, 1},
      {513, 512, Tier::size_class, 1024, 1},
      {32 << 10, 512, Tier::size_class, 32 << 10, 1},
      {(32 << 10) + 1, 512, Tier::buddy, 36 << 10, 1},
      {1, 1024, Tier::buddy, 4096, 1},
      {4097, 4096, Tier::buddy, 8192, 1},
      {128 << 10, 512, Tier::buddy, 128 << 10, 1},
      {(128 << 10) + 1, 512, Tier::run, 132 << 10, 1},
      {1, 8192, Tier::run, 4096, 2},
      {128 << 10, 2 << 20, Tier::run, 128 << 10, 512},
      {std::uint64_t{1} << 40, 512, Tier::run, std::uint64_t{1} << 40, 1},
  };
  for (const Case& c : cases) {
    const Shape shape = shape_of(c.bytes, c.alignment);
    EXPECT_EQ(shape.tier, c.tier) << c.bytes << " aligned to " << c.alignment;
    EXPECT_EQ(shape.block_bytes, c.block_bytes) << c.bytes << " aligned to " << c.alignment;
    EXPECT_EQ(shape.align_units, c.align_units) << c.bytes << " aligned to " << c.alignment;
    EXPECT_EQ(shape.units_needed(),
              c.tier == Tier::run ? c.block_bytes / kUnitBytes : kUnitsPerChunk);
  }
}

}  // namespace
}  // namespace gpupool::internal
