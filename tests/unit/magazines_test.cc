// The small part of a thread's cache against a model that knows nothing of grants and chains.
#include "cache/magazines.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace gpupool::internal {
namespace {

constexpr std::uint64_t kLimit = 1 << 20;

class MagazinesTest : public testing::Test {
 protected:
  MagazinesTest() : records_(20'000) { magazines_.start(kLimit); }

  std::uint32_t new_code() { return ++last_code_; }
  std::uint32_t take(std::uint32_t bin) { return magazines_.take(bin, records_.data()); }
  bool put(std::uint32_t bin, std::uint32_t code) {
    return magazines_.put(bin, code, records_.data());
  }
  /// As the pool does.
  bool put_or_grow(std::uint32_t bin, std::uint32_t code) {
    return put(bin, code) || (magazines_.make_room(bin) && put(bin, code));
  }
  std::vector<std::uint32_t> blocks_of(const Chain& chain) const {
    std::vector<std::uint32_t> blocks;
    for (std::uint32_t code = chain.head; code != 0; code = records_[code].next.get()) {
      blocks.push_back(code);
    }
    EXPECT_EQ(blocks.size(), chain.blocks);
    return blocks;
  }
  Chain make_chain(std::uint32_t blocks) {
    Chain chain{0, blocks};
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const std::uint32_t code = new_code();
      records_[code].next.set(chain.head);
      chain.head = code;
    }
    return chain;
  }

  std::vector<BlockRecord> records_;
  Magazines magazines_;
  std::uint32_t last_code_ = 0;
};

TEST_F(MagazinesTest, WithoutALimitNothingIsKept) {
  magazines_.start(0);
  for (const std::uint32_t bin : {bin_of(512), bin_of(kChunkBytes)}) {
    EXPECT_FALSE(put(bin, 1));
    EXPECT_FALSE(magazines_.make_room(bin));
    magazines_.grow(bin);
    EXPECT_FALSE(put(bin, 1));
    EXPECT_FALSE(magazines_.put_chain(bin, {1, 1}));
    EXPECT_EQ(take(bin), 0u);
    EXPECT_EQ(magazines_.take_chain(bin).head, 0u);
  }
  EXPECT_TRUE(magazines_.is_empty());
  EXPECT_TRUE(magazines_.is_unused());
}

TEST_F(MagazinesTest, LastInFirstOut) {
  const std::uint32_t bin = bin_of(1024);
  for (std::uint32_t code = 1; code <= 20; ++code) EXPECT_TRUE(put_or_grow(bin, code));
  EXPECT_EQ(magazines_.head(bin), 20u);
  for (std::uint32_t code = 20; code >= 1; --code) EXPECT_EQ(take(bin), code);
  EXPECT_EQ(take(bin), 0u);
  EXPECT_TRUE(magazines_.is_empty());
}

TEST_F(MagazinesTest, AFullChainWaitsBehindTheOneInUse) {
  const std::uint32_t bin = bin_of(512);
  const std::uint32_t chain = full_chain(bin);
  for (std::uint32_t code = 1; code <= chain + 3; ++code) ASSERT_TRUE(put_or_grow(bin, code));
  // The quick form looks at the chain in use alone.
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(magazines_.take_quickly(bin, records_.data()), chain + 3 - i);
  }
  EXPECT_EQ(magazines_.take_quickly(bin, records_.data()), 0u);
  EXPECT_FALSE(magazines_.is_empty());
  EXPECT_EQ(magazines_.head(bin), chain);
  for (std::uint32_t code = chain; code >= 1; --code) EXPECT_EQ(take(bin), code);
  EXPECT_TRUE(magazines_.is_empty());
}

TEST_F(MagazinesTest, ChainsChangeHandsWholeAndTheFullOneFirst) {
  const std::uint32_t bin = bin_of(512);
  const std::uint32_t chain = full_chain(bin);
  for (std::uint32_t code = 1; code <= chain + 2; ++code) ASSERT_TRUE(put_or_grow(bin, code));
  const std::vector<std::uint32_t> full = blocks_of(magazines_.take_chain(bin));
  EXPECT_EQ(full.size(), chain);
  EXPECT_EQ(full.front(), chain);
  EXPECT_EQ(full.back(), 1u);
  EXPECT_EQ(blocks_of(magazines_.take_chain(bin)),
            (std::vector<std::uint32_t>{chain + 2, chain + 1}));
  EXPECT_EQ(magazines_.take_chain(bin).head, 0u);
  EXPECT_TRUE(magazines_.is_empty());
}

TEST_F(MagazinesTest, AChainThatIsPutIsTakenAfterTheOneInUse) {
  const std::uint32_t bin = bin_of(2048);
  ASSERT_TRUE(put_or_grow(bin, new_code()));
  const Chain chain = make_chain(5);
  EXPECT_TRUE(magazines_.put_chain(bin, chain));
  EXPECT_FALSE(magazines_.put_chain(bin, make_chain(1)));  // there is one
  EXPECT_EQ(take(bin), 1u);
  EXPECT_EQ(take(bin), chain.head);
}

TEST_F(MagazinesTest, WhatOtherBinsMayHoldAndDoNotIsTakenBack) {
  const std::uint32_t large = bin_of(kChunkBytes);
  magazines_.start(kBinBytes[large]);
  for (std::uint32_t bin = 0; bin < kSizeClassCount; ++bin) magazines_.grow(bin);
  // All of the limit lies with bins that are empty.
  EXPECT_TRUE(put_or_grow(large, 1));
  EXPECT_FALSE(put_or_grow(large, 2));
  // But not what they hold.
  EXPECT_EQ(take(large), 1u);
  for (std::uint32_t code = 1; put_or_grow(0, code); ++code) ASSERT_LE(code, 256u);
  EXPECT_FALSE(put_or_grow(large, 1000));
}

TEST_F(MagazinesTest, ABinThatRunsEmptyFetchesMoreEachTime) {
  const std::uint32_t bin = bin_of(512);
  EXPECT_EQ(magazines_.batch(bin), 1u);
  std::uint32_t before = 0;
  for (int i = 0; i < 10; ++i) {
    magazines_.grow(bin);
    const std::uint32_t batch = magazines_.batch(bin);
    EXPECT_GE(batch, before);
    EXPECT_LE(batch, full_chain(bin));
    before = batch;
  }
  EXPECT_EQ(before, full_chain(bin) / 2);
}

// Any order of operations: what goes in comes out once, the newest first, and never is more here
// than the limit says.
class MagazinesTrialTest : public MagazinesTest {
 protected:
  void start(std::uint64_t seed, std::uint64_t limit) {
    random_.seed(seed);
    limit_ = limit;
    magazines_.start(limit);
    last_code_ = 0;
    bytes_ = 0;
    for (std::vector<std::uint32_t>& blocks : model_) blocks.clear();
  }
  /// Few bins, so that they fill; the first of buddies is none.
  std::uint32_t any_bin() {
    for (;;) {
      const auto bin =
          static_cast<std::uint32_t>((random_() % 4 * 13 + random_() % 2 * 11) % kBinCount);
      if (bin != buddy_bin(0)) return bin;
    }
  }
  void operate(std::uint32_t bin) {
    switch (random_() % 8) {
      case 0:
      case 1:
      case 2: put_one(bin); break;
      case 3:
      case 4: take_one(bin); break;
      case 5: magazines_.grow(bin); break;
      case 6: take_a_chain(bin); break;
      case 7: put_a_chain(bin); break;
    }
    if (random_() % 200 == 0) empty_all();
  }
  void expect_as_modelled(std::uint32_t bin) {
    ASSERT_LE(bytes_, limit_);
    ASSERT_EQ(magazines_.is_empty(), bytes_ == 0);
    ASSERT_EQ(magazines_.head(bin), model_[bin].empty() ? 0 : model_[bin].back());
    ASSERT_TRUE(model_[bin].empty() || !magazines_.is_unused());
  }
  /// Whatever was granted to others is taken back for the chain in use.
  void expect_room_for_one_bin() {
    for (std::uint32_t bin = 0; bin < kBinCount; ++bin) {
      while (take(bin) != 0) continue;
    }
    const std::uint32_t bin = bin_of(512);
    std::uint64_t kept = 0;
    for (last_code_ = 0; put_or_grow(bin, new_code());) kept += 512;
    EXPECT_GE(kept, std::min<std::uint64_t>(limit_ / 512, full_chain(bin)) * 512);
    EXPECT_LE(kept, limit_);
  }

 private:
  void put_one(std::uint32_t bin) {
    const std::uint32_t code = new_code();
    if (!put_or_grow(bin, code)) return;
    model_[bin].push_back(code);
    bytes_ += kBinBytes[bin];
  }
  void take_one(std::uint32_t bin) {
    const std::uint32_t code = take(bin);
    ASSERT_EQ(code, model_[bin].empty() ? 0 : model_[bin].back());
    if (code == 0) return;
    model_[bin].pop_back();
    bytes_ -= kBinBytes[bin];
  }
  /// The full one, which is the older part, or all where there is no full one.
  void take_a_chain(std::uint32_t bin) {
    std::vector<std::uint32_t>& blocks = model_[bin];
    const Chain chain = magazines_.take_chain(bin);
    ASSERT_EQ(chain.head == 0, blocks.empty());
    const std::vector<std::uint32_t> taken = blocks_of(chain);
    ASSERT_LE(taken.size(), blocks.size());
    ASSERT_TRUE(std::equal(taken.rbegin(), taken.rend(), blocks.begin()));
    blocks.erase(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(taken.size()));
    bytes_ -= taken.size() * kBinBytes[bin];
  }
  void put_a_chain(std::uint32_t bin) {
    if (last_code_ + BlockWord::kMaxChain >= records_.size()) return;
    const Chain chain = make_chain(1 + static_cast<std::uint32_t>(random_() % full_chain(bin)));
    const std::vector<std::uint32_t> put = blocks_of(chain);
    if (!magazines_.put_chain(bin, chain)) return;
    model_[bin].insert(model_[bin].begin(), put.rbegin(), put.rend());
    bytes_ += put.size() * kBinBytes[bin];
  }
  /// Every bin that has blocks is visited, and nothing is granted afterwards.
  void empty_all() {
    magazines_.empty_all([&](std::uint32_t visited) {
      std::size_t taken = 0;
      while (take(visited) != 0) ++taken;
      EXPECT_EQ(taken, model_[visited].size());
      model_[visited].clear();
      bytes_ -= taken * kBinBytes[visited];
    });
    ASSERT_EQ(bytes_, 0u);
    ASSERT_TRUE(magazines_.is_unused());
  }

  std::mt19937_64 random_;
  std::uint64_t limit_ = 0;
  std::uint64_t bytes_ = 0;
  std::array<std::vector<std::uint32_t>, kBinCount> model_;  // the oldest first
};

TEST_F(MagazinesTrialTest, AnyOrderOfOperationsAgainstTheModel) {
  constexpr std::array<std::uint64_t, 4> kLimits = {0, 10'000, 200'000, 4 << 20};
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    start(seed, kLimits[seed % kLimits.size()]);
    for (int step = 0; step < 3000; ++step) {
      const std::uint32_t bin = any_bin();
      operate(bin);
      expect_as_modelled(bin);
      if (HasFatalFailure()) return;
    }
    expect_room_for_one_bin();
  }
}

}  // namespace
}  // namespace gpupool::internal
