// What a cache of runs is worth, by what came back for them.
#include "cache/run_demand.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/support/random.h"
#include "tests/support/units.h"

namespace gpupool::internal {
namespace {

constexpr std::uint32_t kUnitsOfMiB = kMiB / kUnitBytes;
constexpr std::uint64_t kMost = 32 * kMiB;

class RunDemandTest : public testing::Test {
 protected:
  RunDemandTest() { demand_.start(kMost); }

  void let_go(std::uint32_t units) { demand_.note_let_go(units, units * kUnitBytes); }
  /// A pair of requests of one size that is not kept between them.
  void pass_by(std::uint32_t units) {
    demand_.note_asked(units);
    let_go(units);
  }
  /// Sizes of which none comes back.
  void add_junk(std::uint64_t bytes) {
    for (; bytes > 0; bytes -= std::min(bytes, std::uint64_t{junk_} * kUnitBytes)) {
      pass_by(++junk_);
    }
  }
  std::uint64_t worth() const { return demand_.worth_bytes(); }

  RunDemand demand_;
  std::uint32_t junk_ = 1000;
};

TEST_F(RunDemandTest, StartsWithALittle) {
  EXPECT_EQ(worth(), 8 * kMiB);
  RunDemand poor;
  EXPECT_EQ(poor.worth_bytes(), 0u);
  poor.start(3 * kMiB);
  EXPECT_EQ(poor.worth_bytes(), 3 * kMiB);
  poor.start(0);
  poor.note_let_go(256, kMiB);
  poor.note_asked(256);
  EXPECT_EQ(poor.worth_bytes(), 0u);
}

TEST_F(RunDemandTest, WhatIsLetGoCountsThriceUntilItComesBack) {
  let_go(kUnitsOfMiB);
  EXPECT_EQ(worth(), 5 * kMiB);
  demand_.note_asked(kUnitsOfMiB);
  EXPECT_EQ(worth(), 9 * kMiB);
  demand_.note_asked(kUnitsOfMiB);  // once
  demand_.note_asked(kUnitsOfMiB + 1);
  EXPECT_EQ(worth(), 9 * kMiB);
  demand_.note_let_go(kUnitsOfMiB, 2 * kMiB);  // two of them
  EXPECT_EQ(worth(), 3 * kMiB);
}

TEST_F(RunDemandTest, AnotherSizeInItsPlaceIsForgotten) {
  const auto place = [](std::uint32_t units) { return units * std::uint32_t{0x9e3779b9} >> 25; };
  std::uint32_t other = kUnitsOfMiB + 1;
  while (place(other) != place(kUnitsOfMiB)) ++other;
  let_go(kUnitsOfMiB);
  let_go(other);
  const std::uint64_t before = worth();
  demand_.note_asked(kUnitsOfMiB);
  EXPECT_EQ(worth(), before);
  demand_.note_asked(other);
  EXPECT_GT(worth(), before);
}

TEST_F(RunDemandTest, ItIsNeverMoreThanThereIsToBeHad) {
  for (int i = 0; i < 1000; ++i) pass_by(kUnitsOfMiB);
  EXPECT_GE(worth(), kMost - 3 * kMiB);
  EXPECT_LE(worth(), kMost);
  demand_.note_asked(kUnitsOfMiB);
  EXPECT_EQ(worth(), kMost);
}

TEST_F(RunDemandTest, APairRegainsItsCacheAfterALongHistoryOfNoUse) {
  for (const std::uint32_t mib : {1u, 2u, 16u}) {
    demand_.start(kMost);
    add_junk(std::uint64_t{100} << 30);
    EXPECT_EQ(worth(), 0u);
    const std::uint32_t units = mib * kUnitsOfMiB;
    std::uint64_t rounds = 0;
    for (; rounds < 10'000; ++rounds) {
      demand_.note_asked(units);
      if (worth() >= mib * kMiB) break;  // and so it is kept when it is freed
      let_go(units);
    }
    // A gigabyte of what is of no use is remembered, and a few more for what is let go meanwhile.
    EXPECT_LE(rounds, 1024 / mib + 6) << mib;
    EXPECT_GE(rounds, 1000 / mib) << mib;
  }
}

/// What remains where `kept` of `of` runs come back, in no order.
std::uint64_t worth_where(std::uint64_t kept, std::uint64_t of) {
  RunDemand demand;
  demand.start(kMost);
  test::Random random(3);
  std::uint32_t fresh = 300;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint32_t units = fresh++;
    demand.note_let_go(units, units * kUnitBytes);
    if (random.below(of) < kept) demand.note_asked(units);
    if (fresh > 600) fresh = 300;
    demand.note_asked(1000 + fresh);
  }
  return demand.worth_bytes();
}

TEST_F(RunDemandTest, ThreeOfFourHaveToComeBack) {
  EXPECT_EQ(worth_where(1, 2), 0u);  // as of a serving job
  EXPECT_EQ(worth_where(2, 3), 0u);
  EXPECT_GT(worth_where(4, 5), kMost / 2);
  EXPECT_GT(worth_where(9, 10), kMost / 2);
}

TEST_F(RunDemandTest, WhoseThreeOfFourComeBackKeepsWhatItHas) {
  const std::uint64_t before = worth();
  for (int i = 0; i < 10'000; ++i) {
    for (std::uint32_t k = 0; k < 3; ++k) {
      let_go(kUnitsOfMiB + k);
      demand_.note_asked(kUnitsOfMiB + k);
    }
    let_go(kUnitsOfMiB - 1);
    demand_.note_asked(kUnitsOfMiB + 3);
  }
  EXPECT_GE(worth(), before);
}

TEST_F(RunDemandTest, AServingJobsTurnsOfAllAndNothingDoNotRaiseIt) {
  // By turns hundreds of requests that all come back and hundreds of which none does.
  for (int turn = 0; turn < 20; ++turn) {
    for (int i = 0; i < 300; ++i) pass_by(kUnitsOfMiB);
    add_junk(300 * kMiB);
  }
  for (int i = 0; i < 300; ++i) {
    pass_by(kUnitsOfMiB);
    EXPECT_EQ(worth(), 0u);
  }
}

}  // namespace
}  // namespace gpupool::internal
