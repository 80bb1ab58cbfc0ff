// The small parts of the pool: peaks, buckets, fallbacks, failure reports.
#include <gtest/gtest.h>

#include "base/duration_bucket.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "pool/fallbacks.h"
#include "pool/peak_window.h"
#include "tests/support/units.h"
#include "tests/unit/epochs.h"

namespace gpupool::internal {
namespace {

TEST(PeakWindowTest, KeepsTheHighestOfTheLastMinute) {
  PeakWindow window;
  window.note_requested(500);
  window.note_held(800);
  EXPECT_EQ(window.read(0).requested_bytes, 500u);
  window.roll(1 * kSecondNs, {100, 200});
  window.note_requested(150);
  EXPECT_EQ(window.read(1 * kSecondNs).requested_bytes, 500u);
  EXPECT_EQ(window.read(60 * kSecondNs).requested_bytes, 500u);
  EXPECT_EQ(window.read(60 * kSecondNs).held_bytes, 800u);
  EXPECT_EQ(window.read(61 * kSecondNs).requested_bytes, 150u);
  EXPECT_EQ(window.read(61 * kSecondNs).held_bytes, 200u);
}

TEST(PeakWindowTest, ASecondOfTheSamePlaceInTheRingTakesItOver) {
  PeakWindow window;
  window.note_requested(900);
  window.roll(5 * kSecondNs, {10, 10});
  window.note_requested(20);
  window.roll(65 * kSecondNs, {10, 10});
  EXPECT_EQ(window.read(65 * kSecondNs).requested_bytes, 20u);
}

TEST(PeakWindowTest, SeveralRollsInOneSecondAdd) {
  PeakWindow window;
  for (const std::uint64_t bytes : {300, 700, 200}) {
    window.note_held(bytes);
    window.roll(7 * kSecondNs + bytes, {0, 0});
  }
  EXPECT_EQ(window.read(8 * kSecondNs).held_bytes, 700u);
}

TEST(BucketTest, DurationsFallAtOrBelowTheirBound) {
  EXPECT_EQ(duration_bucket(0), 0u);
  for (std::size_t i = 0; i + 1 < kDurationBuckets; ++i) {
    const std::uint64_t bound = std::uint64_t{64} << i;
    EXPECT_EQ(duration_bucket(bound), i);
    EXPECT_EQ(duration_bucket(bound + 1), i + 1);
  }
  EXPECT_EQ(duration_bucket(~std::uint64_t{0}), kDurationBuckets - 1);
}

TEST(BucketTest, SizesFallAtOrBelowTheirBound) {
  EXPECT_EQ(size_bucket(1), 0u);
  for (std::size_t i = 0; i + 1 < kSizeBuckets; ++i) {
    const std::uint64_t bound = std::uint64_t{512} << (2 * i);
    EXPECT_EQ(size_bucket(bound), i);
    EXPECT_EQ(size_bucket(bound + 1), i + 1);
  }
  EXPECT_EQ(size_bucket(~std::uint64_t{0}), kSizeBuckets - 1);
}

class FallbacksTest : public testing::Test {
 protected:
  FallbacksTest() : streams_(device_), raw_(device_.create_stream()) {
    index_ = streams_.adopt(raw_, device_.stream_id(raw_).value())->index();
  }
  TicketSet tickets() {
    TicketSet tickets;
    tickets.add(streams_.ticket(index_), streams_);
    return tickets;
  }

  SimulatedBackend device_;
  Epochs streams_;
  RawStream raw_;
  StreamIndex index_ = 0;
  Fallbacks fallbacks_;
};

TEST_F(FallbacksTest, FindsTheBlockThatCoversAnAddress) {
  fallbacks_.add({.address = 1024, .allocation = 1000, .bytes = 1000});
  fallbacks_.add({.address = 4096, .allocation = 4096, .bytes = 512});
  EXPECT_EQ(fallbacks_.find(1023), nullptr);
  EXPECT_EQ(fallbacks_.find(1024)->allocation, 1000u);
  EXPECT_EQ(fallbacks_.find(1999)->address, 1024u);
  EXPECT_EQ(fallbacks_.find(2000), nullptr);
  EXPECT_EQ(fallbacks_.find(4096 + 511)->address, 4096u);
  EXPECT_EQ(fallbacks_.find(4096 + 512), nullptr);
  EXPECT_EQ(fallbacks_.bytes(), 1512u);
  EXPECT_EQ(fallbacks_.count(), 2u);
}

TEST_F(FallbacksTest, GivesBackWhatIsFreedAndDone) {
  Fallback& fallback = fallbacks_.add({.address = 4096, .allocation = 4096, .bytes = 512});
  fallbacks_.add({.address = 8192, .allocation = 8192, .bytes = 512});
  SimulatedWork work;
  work.until_completed = true;
  ASSERT_TRUE(device_.launch(raw_, work).ok());
  Fallback out;
  EXPECT_FALSE(fallbacks_.take_complete(streams_, out));
  fallbacks_.retire(fallback, tickets());
  EXPECT_EQ(fallbacks_.pending_bytes(), 512u);
  streams_.close_epochs();
  streams_.poll();
  EXPECT_FALSE(fallbacks_.take_complete(streams_, out));
  device_.complete_all();
  streams_.poll();
  ASSERT_TRUE(fallbacks_.take_complete(streams_, out));
  EXPECT_EQ(out.address, 4096u);
  EXPECT_EQ(fallbacks_.bytes(), 512u);
  EXPECT_EQ(fallbacks_.pending_bytes(), 0u);
  EXPECT_EQ(fallbacks_.find(4096), nullptr);
  // The driver would not take it.
  fallbacks_.put_back(out);
  EXPECT_EQ(fallbacks_.pending_bytes(), 512u);
  EXPECT_TRUE(fallbacks_.take_complete(streams_, out));
  EXPECT_FALSE(fallbacks_.take_complete(streams_, out));
}

TEST_F(FallbacksTest, TakesAnyAtTheEnd) {
  fallbacks_.add({.address = 4096, .allocation = 4096, .bytes = 512});
  fallbacks_.retire(fallbacks_.add({.address = 8192, .allocation = 8192, .bytes = 1024}),
                    tickets());
  Fallback out;
  EXPECT_TRUE(fallbacks_.take_any(out));
  EXPECT_TRUE(fallbacks_.take_any(out));
  EXPECT_FALSE(fallbacks_.take_any(out));
  EXPECT_EQ(fallbacks_.bytes(), 0u);
  EXPECT_EQ(fallbacks_.pending_bytes(), 0u);
}

}  // namespace
}  // namespace gpupool::internal
