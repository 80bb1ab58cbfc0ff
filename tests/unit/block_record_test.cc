// A block's state in one word, and its requested size beside it.
#include "base/block_record.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>

namespace gpupool::internal {
namespace {

constexpr std::initializer_list<std::uint32_t> kTags = {0, 1, 31, 62, 63};
constexpr std::initializer_list<std::uint32_t> kBins = {0, 1, 63, 64, 126, 127};
constexpr std::initializer_list<std::uint32_t> kStreams = {0, 1, 255, 256, 32768, 65535};

TEST(BlockWordTest, KeepsEachFieldWhateverTheOthersAre) {
  for (const std::uint32_t tag : kTags) {
    for (const std::uint32_t bin : kBins) {
      for (const std::uint32_t stream : kStreams) {
        const BlockWord live = BlockWord::live(tag, bin, stream);
        EXPECT_TRUE(live.is_live());
        EXPECT_TRUE(live.is_plainly_live());
        EXPECT_FALSE(live.has_extra_uses());
        EXPECT_EQ(live.tag(), tag);
        EXPECT_EQ(live.bin(), bin);
        EXPECT_EQ(live.stream(), stream);
        EXPECT_EQ(live.is_untagged(), tag == BlockWord::kUntaggedCode);

        const BlockWord used = live.with_extra_uses();
        EXPECT_TRUE(used.is_live());
        EXPECT_FALSE(used.is_plainly_live());
        EXPECT_TRUE(used.has_extra_uses());
        EXPECT_EQ(used.tag(), tag);
        EXPECT_EQ(used.bin(), bin);
        EXPECT_EQ(used.stream(), stream);

        const BlockWord cached = BlockWord::cached(bin, stream);
        EXPECT_EQ(cached.use(), BlockUse::cached);
        EXPECT_FALSE(cached.is_live());
        EXPECT_FALSE(cached.is_plainly_live());
        EXPECT_EQ(cached.bin(), bin);
        EXPECT_EQ(cached.stream(), stream);
      }
    }
  }
}

TEST(BlockWordTest, TheFormsOfTheHitPathAreTheSame) {
  for (const std::uint32_t bin : kBins) {
    for (const std::uint32_t stream : kStreams) {
      const std::uint32_t bits = BlockWord::stream_bits(stream);
      EXPECT_EQ(BlockWord::live_untagged(bin, bits).bits(),
                BlockWord::live(BlockWord::kUntaggedCode, bin, stream).bits());
      EXPECT_EQ(BlockWord::cached_in(bin, bits).bits(), BlockWord::cached(bin, stream).bits());
      for (const std::uint32_t tag : kTags) {
        EXPECT_EQ(BlockWord::live_untagged(bin, bits).with_tag(tag).bits(),
                  BlockWord::live(tag, bin, stream).bits());
      }
    }
  }
}

TEST(BlockWordTest, TheFirstOfAChainSaysHowLongItIs) {
  for (std::uint32_t blocks = 1; blocks <= BlockWord::kMaxChain; ++blocks) {
    const BlockWord head = BlockWord::cached(127, 65535).with_chain_length(blocks);
    EXPECT_EQ(head.chain_length(), blocks);
    EXPECT_EQ(head.use(), BlockUse::cached);
    EXPECT_EQ(head.bin(), 127u);
    EXPECT_EQ(head.stream(), 65535u);
    EXPECT_FALSE(head.has_extra_uses());
  }
}

TEST(BlockWordTest, WhatIsNoBlockIsNotLive) {
  const BlockRecord record;
  EXPECT_FALSE(record.load().is_live());
  EXPECT_EQ(record.load().use(), BlockUse::none);
}

TEST(BlockRecordTest, ABlockIsTakenOnceAndOnlyAsItWasSeen) {
  BlockRecord record;
  const BlockWord live = BlockWord::live(3, 5, 7);
  const BlockWord cached = BlockWord::cached(5, 9);
  record.store(live);
  EXPECT_FALSE(record.take(BlockWord::live(4, 5, 7), cached));
  EXPECT_EQ(record.load().bits(), live.bits());
  EXPECT_TRUE(record.take(live, cached));
  EXPECT_EQ(record.load().bits(), cached.bits());
  EXPECT_FALSE(record.take(live, cached));
  record.clear();
  EXPECT_FALSE(record.take(live, cached));
  EXPECT_EQ(record.load().bits(), 0u);
}

TEST(BlockRecordTest, TheBlocksSizeTellsTheBitsAbove32OfTheRequest) {
  constexpr std::uint64_t kUnit = 4096;
  constexpr std::uint64_t kGiB4 = std::uint64_t{4} << 30;
  BlockRecord record;
  for (const std::uint64_t edge : {kUnit, std::uint64_t{1} << 20, kGiB4, 3 * kGiB4, kGiB4 * 1024}) {
    for (std::uint64_t bytes = edge - 2; bytes <= edge + 2; ++bytes) {
      const std::uint64_t block = (bytes + kUnit - 1) / kUnit * kUnit;
      record.set_requested(bytes);
      EXPECT_EQ(record.requested(block), bytes);
      // A block may be larger than its request by a page of alignment.
      EXPECT_EQ(record.requested(block + (2 << 20)), bytes);
      EXPECT_EQ(record.requested(bytes), bytes);
    }
  }
}

}  // namespace
}  // namespace gpupool::internal
