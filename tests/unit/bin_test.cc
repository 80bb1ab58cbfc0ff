// The sizes that tier T0 keeps apart, and what counting by them stands for.
#include "cache/bin.h"

#include <gtest/gtest.h>

#include "base/duration_bucket.h"
#include "pool/shape.h"

namespace gpupool::internal {
namespace {

TEST(BinTest, EverySizeHasTheBinThatItsTierTakes) {
  std::uint64_t before = 0;
  for (std::uint64_t bytes = 1; bytes <= kChunkBytes; ++bytes) {
    const std::uint32_t bin = bin_of(bytes);
    ASSERT_LT(bin, kBinCount);
    const std::uint64_t block = kBinBytes[bin];
    ASSERT_GE(block, bytes);
    ASSERT_EQ(block % kGranuleBytes, 0u);
    ASSERT_GE(block, before);  // a larger request never gets a smaller block
    before = block;
    const Shape shape = shape_of(bytes, kGranuleBytes);
    ASSERT_EQ(bin, shape.bin()) << bytes;
    ASSERT_EQ(block, shape.block_bytes) << bytes;
    ASSERT_EQ(is_slot_bin(bin), shape.tier == Tier::size_class) << bytes;
  }
}

TEST(BinTest, AroundEachEdgeTheNextSizeHasTheNextBin) {
  for (std::uint32_t bin = 0; bin < kBinCount; ++bin) {
    if (bin == buddy_bin(0)) continue;
    const std::uint64_t edge = kBinBytes[bin];
    if (!is_slot_bin(bin)) {
      EXPECT_EQ(edge, units_of_bin(bin) * kUnitBytes);
    }
    if (!is_slot_bin(bin) && edge <= kMaxSlotBytes) continue;  // aligned requests alone
    EXPECT_EQ(bin_of(edge), bin);
    EXPECT_EQ(bin_of(edge - 1), bin);
    if (edge < kChunkBytes) {
      EXPECT_GT(kBinBytes[bin_of(edge + 1)], edge);
    }
  }
}

TEST(BinTest, AChainIs64KiBOfBlocksAndNeverMoreThanItsFirstBlockCanSay) {
  for (std::uint32_t bin = 0; bin < kBinCount; ++bin) {
    const std::uint32_t blocks = full_chain(bin);
    EXPECT_GE(blocks, 1u);
    EXPECT_LE(blocks, BlockWord::kMaxChain);
    EXPECT_TRUE(blocks == 1 || std::uint64_t{blocks} * kBinBytes[bin] <= 64 << 10) << bin;
  }
  EXPECT_EQ(full_chain(bin_of(512)), 64u);
  EXPECT_EQ(full_chain(bin_of(32 << 10)), 2u);
  EXPECT_EQ(full_chain(bin_of(kChunkBytes)), 1u);
}

// Requests are counted by their bins, so each request of a bin has to fall into one bucket of
// sizes; the same for runs, which are counted by powers of two.
TEST(BinTest, AllRequestsOfABinFallIntoTheSameBucketOfSizes) {
  for (std::uint64_t bytes = 1; bytes <= kChunkBytes; ++bytes) {
    ASSERT_EQ(size_bucket(bytes), size_bucket(kBinBytes[bin_of(bytes)])) << bytes;
  }
  for (unsigned log2 = 0; log2 < 44; ++log2) {
    const std::uint64_t edge = std::uint64_t{1} << log2;
    for (const std::uint64_t bytes : {edge, edge / 2 + 1}) {
      ASSERT_EQ(size_bucket(bytes), size_bucket(edge)) << bytes;
    }
  }
}

}  // namespace
}  // namespace gpupool::internal
