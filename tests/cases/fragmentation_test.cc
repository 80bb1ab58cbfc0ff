// Out of memory although enough is free: the stories that page recycling is there for.
#include <vector>

#include "tests/cases/case_pool.h"
#include "tests/support/occupancy.h"
#include "tests/support/random.h"
#include "tests/support/units.h"

namespace gpupool::test {
namespace {

class FragmentationCase : public PolicyTest {};

/// A program of mixed sizes, from half a kilobyte to 64 MiB, whose live bytes go up and down.
class MixedSizes {
 public:
  explicit MixedSizes(CasePool& pool, std::uint64_t card_bytes)
      : pool_(pool), occupancy_(card_bytes, 0) {}

  void run(std::uint64_t operations, std::uint64_t most_live_bytes) {
    for (std::uint64_t i = 0; i < operations; ++i) {
      const std::uint64_t low = std::uint64_t{512} << random_.below(17);
      const std::uint64_t bytes = random_.between(low, 2 * low);
      if (live_bytes_ + bytes > most_live_bytes || (!live_.empty() && random_.one_in(5))) {
        free_any();
      } else if (!allocate(bytes)) {
        return;
      }
    }
  }
  void shrink_to(std::uint64_t bytes) {
    while (live_bytes_ > bytes) free_any();
  }
  void end() { shrink_to(0); }
  std::uint64_t live_bytes() const { return live_bytes_; }
  std::uint64_t empty_pages() const { return occupancy_.room_pages({}); }

 private:
  struct Live {
    void* pointer = nullptr;
    std::uint64_t bytes = 0;
  };
  bool allocate(std::uint64_t bytes) {
    void* const pointer = pool_.allocate(bytes);
    if (pointer == nullptr) return false;
    live_.push_back({pointer, bytes});
    live_bytes_ += bytes;
    occupancy_.add(reinterpret_cast<std::uint64_t>(pointer), bytes, 0);
    return true;
  }
  void free_any() {
    const std::uint64_t at = random_.below(live_.size());
    const Live live = live_[at];
    live_[at] = live_.back();
    live_.pop_back();
    live_bytes_ -= live.bytes;
    occupancy_.remove(reinterpret_cast<std::uint64_t>(live.pointer), {});
    occupancy_.clear({});
    pool_.free(live.pointer);
  }

  CasePool& pool_;
  Occupancy occupancy_;
  Random random_{40};
  std::vector<Live> live_;
  std::uint64_t live_bytes_ = 0;
};

constexpr std::uint64_t kCard = 40 * kGiB;

/// Goes through hours of mixed sizes that once needed 38 GiB and now need 31, everywhere on the
/// card; then the tensor.
void* ask_after_hours(CasePool& pool, MixedSizes& program, std::uint64_t tensor_bytes) {
  program.run(150'000, 37 * kGiB);
  pool.pool().maintain();
  EXPECT_GE(pool.stats().peak_held_bytes, 37 * kGiB);
  program.shrink_to(31 * kGiB);
  pool.pool().drain_caches();
  // Or the story would be about something else.
  EXPECT_GE(program.empty_pages(), to_pages(tensor_bytes));
  return pool.try_allocate(tensor_bytes);
}

TEST_P(FragmentationCase, FourGigabytesAfterHoursOfMixedSizesOnACardThatIsHeldAlmostWhole) {
  CasePool pool(kCard, GetParam());
  ASSERT_TRUE(pool.is_started());
  MixedSizes program(pool, kCard);
  void* const tensor = ask_after_hours(pool, program, 4 * kGiB);
  ASSERT_NE(tensor, nullptr) << pool.why();
  EXPECT_LE(pool.held_bytes(), kCard);
  EXPECT_GT(pool.stats().pages_recycled, 0u);
  pool.free(tensor);
  program.end();
}

TEST(FragmentationCase, WithoutRecyclingTheSameHoursEndInARefusal) {
  CasePool pool(kCard, Recycling::off);
  ASSERT_TRUE(pool.is_started());
  MixedSizes program(pool, kCard);
  EXPECT_EQ(ask_after_hours(pool, program, 4 * kGiB), nullptr);
  EXPECT_EQ(pool.pool().last_failure().reason, MissReason::fragmented) << pool.why();
  EXPECT_GE(pool.held_bytes(), 37 * kGiB);
  program.end();
}

/// Fills the card with blocks of 64 MiB and frees every other one: 20 GiB, in holes of 64 MiB.
std::vector<void*> make_holes(CasePool& pool) {
  std::vector<void*> blocks;
  for (std::uint64_t i = 0; i < kCard / (64 * kMiB); ++i)
    blocks.push_back(pool.allocate(64 * kMiB));
  std::vector<void*> kept;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 2 == 0) {
      kept.push_back(blocks[i]);
    } else {
      pool.free(blocks[i]);
    }
  }
  pool.pool().drain_caches();
  EXPECT_EQ(pool.stats().free_bytes, 20 * kGiB);
  return kept;
}

TEST_P(FragmentationCase, OneGigabyteWhileTwentyAreFreeInPieces) {
  CasePool pool(kCard, GetParam());
  ASSERT_TRUE(pool.is_started());
  const std::vector<void*> kept = make_holes(pool);
  EXPECT_EQ(pool.stats().largest_satisfiable_bytes, 20 * kGiB);
  EXPECT_EQ(pool.stats().fragmentation_ratio, 0.0);
  // Not one of them alone: all that is free, a gigabyte at a time.
  std::vector<void*> tensors;
  for (int i = 0; i < 20; ++i) tensors.push_back(pool.allocate(kGiB));
  EXPECT_EQ(pool.try_allocate(kPage), nullptr);
  EXPECT_EQ(pool.pool().last_failure().reason, MissReason::budget) << pool.why();
  EXPECT_EQ(pool.held_bytes(), kCard);
  // All but the last hole, which what follows it can extend.
  EXPECT_GE(pool.stats().pages_recycled, (20 * kGiB - 64 * kMiB) / kPage);
  for (void* block : tensors) pool.free(block);
  for (void* block : kept) pool.free(block);
}

TEST(FragmentationCase, WithoutRecyclingOneGigabyteOfTwentyGoesBackForItAndTheMetricWarns) {
  CasePool pool(kCard, Recycling::off);
  ASSERT_TRUE(pool.is_started());
  const std::vector<void*> kept = make_holes(pool);
  EXPECT_EQ(pool.stats().largest_satisfiable_bytes, 64 * kMiB);
  EXPECT_GT(pool.stats().fragmentation_ratio, 0.99);
  // The last resort, before it would fail.
  void* const tensor = pool.allocate(kGiB);
  EXPECT_EQ(pool.stats().pages_recycled, 0u);
  EXPECT_GE(
      pool.stats().trimmed_bytes_by_reason[static_cast<std::size_t>(TrimReason::out_of_memory)],
      kGiB - 64 * kMiB);
  EXPECT_LE(pool.held_bytes(), kCard);
  pool.free(tensor);
  for (void* block : kept) pool.free(block);
}

INSTANTIATE_TEST_SUITE_P(Recycling, FragmentationCase,
                         testing::Values(Recycling::eager, Recycling::pressure), policy_name);

// pytorch#35901 (case A1): one tensor of 10.84 GiB is made and dropped each iteration, on a card
// of 23.65 GiB. In the second one its old memory had been cut up for small tensors, 500 MB of which
// were live, and so could neither be used for it nor go back.
class PyTorch35901 : public PolicyTest {};

constexpr std::uint64_t kHugeTensor = 11'643'387'904;

TEST_P(PyTorch35901, SmallTensorsDoNotPinTheMemoryOfAHugeOne) {
  constexpr std::uint64_t kLimit = 25'394'000'000;  // 23.65 GiB
  CasePool pool(kLimit, GetParam());
  ASSERT_TRUE(pool.is_started());
  void* huge = pool.allocate(kHugeTensor);
  // No rounding to a power of two.
  EXPECT_EQ(pool.held_bytes(), to_pages(kHugeTensor) * kPage);
  pool.free(huge);

  constexpr std::uint64_t kSizes[] = {16'515'072, 16'515'072, 11'400'192, 18'191'360};
  std::vector<void*> small;
  std::uint64_t live = 0;
  for (std::size_t i = 0; live + kSizes[i % 4] <= 499'214'336; ++i) {
    small.push_back(pool.allocate(kSizes[i % 4]));
    live += kSizes[i % 4];
  }
  for (int iteration = 0; iteration < 100; ++iteration) {
    huge = pool.try_allocate(kHugeTensor);
    ASSERT_NE(huge, nullptr) << "iteration " << iteration << ": " << pool.why();
    // What is live, in pages, and what a cache may keep.
    EXPECT_LE(pool.held_bytes(), (to_pages(kHugeTensor) + to_pages(live) + 16) * kPage);
    pool.free(huge);
    // Others of the same sizes come where these were.
    for (std::size_t i = static_cast<std::size_t>(iteration) % 3; i < small.size(); i += 3) {
      pool.free(small[i]);
    }
    for (std::size_t i = static_cast<std::size_t>(iteration) % 3; i < small.size(); i += 3) {
      small[i] = pool.allocate(kSizes[i % 4]);
    }
  }
  for (void* block : small) pool.free(block);
}

TEST_P(PyTorch35901, WhatTheMetricsSayIsLargestCanBeAllocatedInOnePiece) {
  CasePool pool(24 * kGiB, GetParam());
  ASSERT_TRUE(pool.is_started());
  std::vector<void*> blocks;
  for (std::uint64_t i = 0; i < 300; ++i) blocks.push_back(pool.allocate((1 + i % 7) * 16 * kMiB));
  for (std::size_t i = 0; i < blocks.size(); i += 3) pool.free(blocks[i]);
  pool.pool().drain_caches();

  const std::uint64_t free_block = pool.stats().largest_free_block_bytes;
  const std::uint64_t calls = pool.stats().driver_calls;
  void* const largest_free = pool.allocate(free_block);
  EXPECT_EQ(pool.stats().driver_calls, calls);
  pool.free(largest_free);
  pool.pool().drain_caches();
  void* const larger = pool.allocate(free_block + 4 * kKiB);
  EXPECT_GT(pool.stats().driver_calls, calls);
  pool.free(larger);
  pool.pool().drain_caches();

  const std::uint64_t satisfiable = pool.stats().largest_satisfiable_bytes;
  // Without recycling it is what needs no last resort.
  const bool is_last_resort = GetParam() == Recycling::off;
  void* const beyond = pool.try_allocate(satisfiable + kPage);
  EXPECT_EQ(beyond != nullptr, is_last_resort);
  if (beyond != nullptr) pool.free(beyond);
  pool.pool().drain_caches();
  void* const largest = pool.allocate(satisfiable);
  pool.free(largest);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 3 != 0) pool.free(blocks[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PyTorch35901,
                         testing::Values(Recycling::off, Recycling::eager, Recycling::pressure),
                         policy_name);

// rmm#1245 (case A9): a log of many threads. Many long-lived blocks of 256 to 512 KiB lie sprinkled
// through the pool, and large ones then fail, though a third of the memory is free.
class Rmm1245 : public PolicyTest {};

TEST_P(Rmm1245, MiddlingBlocksThatLiveLongDoNotKeepLargeOnesOut) {
  constexpr std::uint64_t kLimit = 16 * kGiB;
  constexpr int kStreams = 8;
  CasePool pool(kLimit, GetParam());
  ASSERT_TRUE(pool.is_started());
  std::vector<RawStream> raw(kStreams);
  std::vector<StreamRef> streams(kStreams);
  for (int i = 0; i < kStreams; ++i) {
    raw[static_cast<std::size_t>(i)] = pool.device().create_stream();
    streams[static_cast<std::size_t>(i)] =
        pool.pool().adopt_stream(raw[static_cast<std::size_t>(i)]).value();
  }
  struct Live {
    void* pointer = nullptr;
    std::uint64_t bytes = 0;
    std::size_t stream = 0;
    std::uint64_t until = 0;
  };
  Random random(1245);
  std::vector<Live> live;
  std::uint64_t live_bytes = 0;
  for (std::uint64_t now = 0; now < 20'000; ++now) {
    for (std::size_t i = live.size(); i-- > 0;) {
      if (live[i].until > now) continue;
      ASSERT_TRUE(pool.pool().deallocate(live[i].pointer, streams[live[i].stream]));
      live_bytes -= live[i].bytes;
      live[i] = live.back();
      live.pop_back();
    }
    const bool is_middling = random.below(10) < 7;
    const std::uint64_t bytes = is_middling ? random.between(256 * kKiB, 512 * kKiB - 1)
                                            : random.between(8 * kMiB, 256 * kMiB);
    const std::uint64_t until =
        now + (is_middling ? random.between(1'000, 8'000) : random.between(10, 200));
    const std::size_t stream = random.below(kStreams);
    if (live_bytes + bytes <= kLimit / 10 * 7) {
      const auto block = pool.pool().allocate(bytes, streams[stream]);
      ASSERT_TRUE(block.ok()) << "operation " << now << ": " << pool.why();
      SimulatedWork work;
      work.address = reinterpret_cast<DeviceAddress>(block.value());
      work.bytes = bytes;
      work.duration_ns = 40'000;
      ASSERT_TRUE(pool.device().launch(raw[stream], work).ok()) << pool.device().last_violation();
      live.push_back({block.value(), bytes, stream, until});
      live_bytes += bytes;
    }
    pool.device().advance_ns(50'000);
    if (now % 20 == 0) pool.pool().maintain();
  }
  EXPECT_EQ(pool.stats().failures, 0u);
  const StatsV1 stats = pool.stats();
  RecordProperty("largest_free_block_of_free_percent",
                 static_cast<int>(stats.largest_free_block_bytes * 100 / (stats.free_bytes + 1)));
  for (const Live& block : live) {
    EXPECT_TRUE(pool.pool().deallocate(block.pointer, streams[block.stream]));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Rmm1245,
                         testing::Values(Recycling::off, Recycling::eager, Recycling::pressure),
                         policy_name);

}  // namespace
}  // namespace gpupool::test
