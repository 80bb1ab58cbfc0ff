// How many pages have been empty for as long as they must be, and at which rate they may go.
#include "pool/idle_pages.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/support/units.h"

namespace gpupool::internal {
namespace {

constexpr std::uint64_t kPagesASecond = 512;

class IdlePagesTest : public testing::Test {
 protected:
  /// A step of maintenance every 10 ms in which so many were empty at least.
  void pass(std::uint64_t duration_ns, std::uint64_t fewest) {
    for (const std::uint64_t end_ns = now_ns_ + duration_ns; now_ns_ < end_ns;) {
      now_ns_ += kSecondNs / 100;
      idle_.note(now_ns_, fewest, options_);
    }
  }
  std::uint64_t due() { return idle_.due(now_ns_, options_); }
  void release(std::uint64_t pages) { idle_.note_released(pages); }

  IdlePages idle_;
  TrimOptions options_{.idle_after_ns = 4 * kSecondNs,
                       .idle_bytes_per_second = kPagesASecond * kPageBytes};
  std::uint64_t now_ns_ = 7 * kSecondNs;
};

TEST_F(IdlePagesTest, PagesAreDueOnceTheyWereEmptyForSoLong) {
  pass(4 * kSecondNs - kSecondNs / 10, 100);
  EXPECT_EQ(due(), 0u);
  pass(kSecondNs, 100);
  EXPECT_EQ(due(), 100u);
}

TEST_F(IdlePagesTest, TheFewestOfAllThatTimeCount) {
  pass(2 * kSecondNs, 100);
  pass(kSecondNs / 100, 30);
  pass(3 * kSecondNs, 100);
  EXPECT_EQ(due(), 30u);
  pass(2 * kSecondNs, 100);
  EXPECT_EQ(due(), 100u);
  // What has been taken since the last part began counts at once.
  idle_.note(now_ns_ + 1, 7, options_);
  EXPECT_EQ(due(), 7u);
}

TEST_F(IdlePagesTest, NothingIsDueWhereItIsOff) {
  options_.idle_after_ns = 0;
  pass(100 * kSecondNs, 100);
  EXPECT_EQ(due(), 0u);
  // Switched on later, it takes as long as ever.
  options_.idle_after_ns = 4 * kSecondNs;
  pass(3 * kSecondNs, 100);
  EXPECT_EQ(due(), 0u);
  pass(2 * kSecondNs, 100);
  EXPECT_EQ(due(), 100u);
}

TEST_F(IdlePagesTest, OneLongPauseIsNotEightParts) {
  pass(kSecondNs / 100, 100);
  now_ns_ += 100 * kSecondNs;
  idle_.note(now_ns_, 100, options_);
  EXPECT_EQ(due(), 0u);
}

TEST_F(IdlePagesTest, WhatWasGivenBackIsEmptyNoMore) {
  pass(5 * kSecondNs, 100);
  release(60);
  EXPECT_EQ(due(), 40u);
  release(40);
  EXPECT_EQ(due(), 0u);
  pass(5 * kSecondNs, 0);
  EXPECT_EQ(due(), 0u);
}

TEST_F(IdlePagesTest, TheRateIsKept) {
  pass(10 * kSecondNs, 100'000);
  // No more than a second's is saved up.
  EXPECT_EQ(due(), kPagesASecond);
  // In pieces as well as at once.
  release(100);
  EXPECT_EQ(due(), kPagesASecond - 100);
  release(kPagesASecond - 100);
  EXPECT_EQ(due(), 0u);
  std::uint64_t released = 0;
  for (int step = 0; step < 1000; ++step) {
    pass(kSecondNs / 100, 100'000);
    const std::uint64_t pages = due();
    if (pages == 0) continue;
    release(pages);
    released += pages;
  }
  EXPECT_GE(released, 10 * kPagesASecond - 1);  // a part of a page is saved up
  EXPECT_LE(released, 10 * kPagesASecond);
}

TEST_F(IdlePagesTest, WhatALargeHandleGivesTooMuchIsWaitedFor) {
  options_.idle_bytes_per_second = 4 * kPageBytes;
  pass(20 * kSecondNs, 100);
  EXPECT_EQ(due(), 4u);
  release(16);
  pass(3 * kSecondNs, 100);
  EXPECT_EQ(due(), 0u);
  pass(kSecondNs, 100);
  EXPECT_EQ(due(), 4u);
}

TEST_F(IdlePagesTest, NothingGoesOfWhichAPartWasInUse) {
  pass(20 * kSecondNs, 100);
  EXPECT_EQ(due(), 100u);
  EXPECT_TRUE(idle_.lets_go(100, 0));
  EXPECT_FALSE(idle_.lets_go(101, 0));
  EXPECT_TRUE(idle_.lets_go(40, 60));
  EXPECT_FALSE(idle_.lets_go(41, 60));
}

TEST_F(IdlePagesTest, WhatIsLargeWaitsUntilSoMuchIsSavedUp) {
  options_.idle_bytes_per_second = 8 * kPageBytes;
  pass(20 * kSecondNs, 100);
  EXPECT_EQ(due(), 8u);
  release(6);
  EXPECT_EQ(due(), 2u);
  EXPECT_TRUE(idle_.lets_go(2, 0));
  EXPECT_FALSE(idle_.lets_go(4, 0));
  EXPECT_FALSE(idle_.lets_go(60, 0));
  pass(kSecondNs / 2, 100);
  due();
  EXPECT_TRUE(idle_.lets_go(4, 0));
  EXPECT_FALSE(idle_.lets_go(60, 0));
  pass(kSecondNs / 2, 100);
  due();
  // All that is ever saved up, which lets one go that is larger still; but not beside another.
  EXPECT_TRUE(idle_.lets_go(60, 0));
  EXPECT_FALSE(idle_.lets_go(60, 1));
}

TEST_F(IdlePagesTest, AnotherTimeStartsAnew) {
  pass(5 * kSecondNs, 100);
  EXPECT_EQ(due(), 100u);
  options_.idle_after_ns = 8 * kSecondNs;
  idle_.restart();
  pass(7 * kSecondNs, 100);
  EXPECT_EQ(due(), 0u);
  pass(2 * kSecondNs, 100);
  EXPECT_EQ(due(), 100u);
}

TEST_F(IdlePagesTest, ARateOfLessThanAPageASecondGivesOneNowAndThen) {
  options_.idle_bytes_per_second = kPageBytes / 4;
  pass(20 * kSecondNs, 100);
  EXPECT_EQ(due(), 1u);
  release(1);
  EXPECT_EQ(due(), 0u);
  pass(3 * kSecondNs, 100);
  EXPECT_EQ(due(), 0u);
  pass(kSecondNs, 100);
  EXPECT_EQ(due(), 1u);
}

TEST_F(IdlePagesTest, ARateOfNothingGivesNothing) {
  options_.idle_bytes_per_second = 0;
  pass(20 * kSecondNs, 100);
  EXPECT_EQ(due(), 0u);
}

TEST_F(IdlePagesTest, ARateBeyondAllGivesAllAtOnce) {
  options_.idle_bytes_per_second = ~std::uint64_t{0};
  pass(20 * kSecondNs, 100'000);
  EXPECT_EQ(due(), 100'000u);
}

}  // namespace
}  // namespace gpupool::internal
