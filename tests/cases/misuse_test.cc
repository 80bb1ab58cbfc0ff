// B1, B5, B9: sizes near the top of size_t, second frees, and frees that come with wrong hints or
// under other options than the allocation.
#include <array>
#include <limits>

#include "tests/cases/case_pool.h"
#include "tests/support/units.h"

namespace gpupool::test {
namespace {

std::uint64_t count(const CasePool& the, Misuse kind) {
  return the.stats().misuses[static_cast<std::size_t>(kind)];
}

TEST(CaseB1, SizesThatOverflowAnyRoundingAreRefusedWithoutAChange) {
  CasePool the(kGiB, PoolOptions());
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  const StatsV1 before = the.stats();
  std::uint64_t refused = 0;
  for (const std::size_t bytes :
       {kMax, kMax - 7, kMax - 510, kMax - 511, std::size_t{1} << 63, std::size_t{1} << 47}) {
    for (const auto kind : {AllocationClass::normal, AllocationClass::contiguous}) {
      AllocationRequest request;
      request.bytes = bytes;
      request.allocation_class = kind;
      const auto block = the.pool().allocate(request, the.stream());
      ASSERT_FALSE(block.ok()) << bytes;
      EXPECT_EQ(block.error(), Error::limit_exceeded);
      ++refused;
    }
    EXPECT_EQ(the.try_allocate(bytes), nullptr);
    EXPECT_FALSE(the.pool().allocate(bytes, the.raw()).ok());
    EXPECT_EQ(the.pool().would_fit(bytes), Fit::no);
    refused += 2;
  }
  const StatsV1 after = the.stats();
  EXPECT_EQ(after.failures, before.failures + refused);
  EXPECT_EQ(after.live_requested_bytes, 0u);
  EXPECT_EQ(after.live_blocks, 0u);
  EXPECT_EQ(after.held_bytes, before.held_bytes);
  void* const first = the.allocate(512);
  void* const second = the.allocate(512);
  EXPECT_NE(first, second);
  the.free(first);
  the.free(second);
}

TEST(CaseB1, AlsoWhereACanaryIsAdded) {
  PoolOptions options;
  options.debug.canary = true;
  CasePool the(kGiB, options);
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  for (const std::size_t bytes : {kMax, kMax - kCanaryBytes, kMax - kCanaryBytes + 1}) {
    EXPECT_EQ(the.try_allocate(bytes), nullptr);
  }
  // The limit itself is a request that may be served; with the canary it is not, and says so.
  EXPECT_EQ(the.try_allocate(kGiB), nullptr);
  EXPECT_EQ(the.stats().live_blocks, 0u);
}

TEST(CaseB5, ASecondFreeChangesNothing) {
  CasePool the(kGiB, PoolOptions());
  void* const block = the.allocate(512);
  the.free(block);
  EXPECT_FALSE(the.pool().deallocate(block, the.stream()));
  EXPECT_EQ(count(the, Misuse::double_free), 1u);
  void* const first = the.allocate(512);
  void* const second = the.allocate(512);
  EXPECT_NE(first, second);
  the.work(first, 512, 1000);
  the.work(second, 512, 1000);
  // Inside a block, of the host, nothing, and of another pool.
  int local = 0;
  EXPECT_FALSE(the.pool().deallocate(static_cast<char*>(first) + 256, the.stream()));
  EXPECT_EQ(count(the, Misuse::interior_pointer), 1u);
  EXPECT_FALSE(the.pool().deallocate(&local, the.stream()));
  EXPECT_EQ(count(the, Misuse::foreign_pointer), 1u);
  EXPECT_TRUE(the.pool().deallocate(nullptr, the.stream()));
  CasePool other(kGiB, PoolOptions());
  void* const foreign = other.allocate(512);
  // The simulated cards have the same addresses, so one is taken where this pool has nothing.
  void* const far = other.allocate(512 * kMiB);
  EXPECT_FALSE(the.pool().deallocate(far, the.stream()));
  other.free(far);
  other.free(foreign);
  EXPECT_EQ(the.stats().live_blocks, 2u);
  the.free(first);
  the.free(second);
}

TEST(CaseB9, WrongHintsAreCountedAndThePoolTrustsItsTable) {
  CasePool the(kGiB, PoolOptions());
  const RawStream other = the.device().create_stream();
  for (int round = 0; round < 3; ++round) {
    void* const block = the.allocate(5 * kMiB);
    EXPECT_EQ(the.pool().find_size(block).value(), 5 * kMiB);  // not what was there before
    the.pool().note_wrong_device(block, 7);
    EXPECT_TRUE(the.pool().deallocate(block, 12345, other));
    void* const again = the.allocate(3 * kMiB);
    EXPECT_EQ(the.pool().find_size(again).value(), 3 * kMiB);
    the.free(again);
  }
  EXPECT_EQ(count(the, Misuse::wrong_size), 3u);
  EXPECT_EQ(count(the, Misuse::wrong_device), 3u);
  EXPECT_EQ(count(the, Misuse::double_free), 0u);
  const StatsV1 stats = the.stats();
  EXPECT_EQ(stats.live_requested_bytes, 0u);
  EXPECT_EQ(stats.frees, 6u);
}

TEST(CaseB9, BlocksOutliveEveryOptionThatIsChangedMeanwhile) {
  CasePool the(kGiB, PoolOptions());
  // Two neighbours, as the fault was at one offset only.
  const std::array<void*, 2> blocks = {the.allocate(4096), the.allocate(4096)};
  EXPECT_EQ(static_cast<char*>(blocks[0]) + 4096, blocks[1]);
  RuntimeOptions runtime = the.pool().runtime_options();
  for (const auto recycling : {Recycling::off, Recycling::pressure, Recycling::eager}) {
    runtime.recycling = recycling;
    runtime.trim.idle_after_ns = runtime.trim.idle_after_ns == 0 ? 1 : 0;
    ASSERT_TRUE(the.pool().reconfigure(runtime).ok());
    the.pool().trim(0);
    the.pool().maintain();
    the.pool().check_invariants();
    for (void* const block : blocks) EXPECT_EQ(the.pool().find_size(block).value(), 4096u);
  }
  for (void* const block : blocks) the.free(block);
  EXPECT_FALSE(the.pool().deallocate(blocks[0], the.stream()));
  EXPECT_EQ(count(the, Misuse::double_free), 1u);
  EXPECT_EQ(the.stats().live_blocks, 0u);
}

}  // namespace
}  // namespace gpupool::test
