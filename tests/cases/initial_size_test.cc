// An initial size and a limit, and requests up to that limit (rmm#496, #1957, #1664, #534; case
// A3).
#include <string>
#include <vector>

#include "gpupool/size_text.h"
#include "tests/cases/case_pool.h"
#include "tests/cases/config_pool.h"
#include "tests/support/units.h"

namespace gpupool::test {
namespace {

class InitialSize : public PolicyTest {
 protected:
  static PoolOptions options(const std::string& keys) {
    PoolOptions options = configured(keys);
    options.runtime.recycling = GetParam();
    return options;
  }
};

// rmm#496: the second of two requests of 8 GiB failed on a card of 32 510 MiB, since the pool
// wanted to grow by far more than was needed.
TEST_P(InitialSize, Rmm496TheLastRequestIsServedFromWhatIsLeft) {
  constexpr std::uint64_t kCard = 32'510 * kMiB;
  CasePool pool(kCard, options("name: rmm496"));
  ASSERT_TRUE(pool.is_started());
  std::vector<void*> blocks{pool.allocate(8 * kGiB), pool.allocate(8 * kGiB)};
  EXPECT_EQ(pool.held_bytes(), 16 * kGiB);
  blocks.push_back(pool.allocate(8 * kGiB));
  blocks.push_back(pool.allocate(kCard - 24 * kGiB));
  EXPECT_EQ(pool.held_bytes(), kCard);
  EXPECT_EQ(pool.try_allocate(1), nullptr);
  for (void* block : blocks) pool.free(block);
}

TEST(InitialSizeWithoutVmm, Rmm496TheLastRequestIsServedFromWhatIsLeft) {
  constexpr std::uint64_t kCard = 32'510 * kMiB;
  CasePool pool(kCard, configured("name: rmm496, backing: cudamalloc"));
  ASSERT_TRUE(pool.is_started());
  std::vector<void*> blocks{pool.allocate(8 * kGiB), pool.allocate(8 * kGiB),
                            pool.allocate(8 * kGiB), pool.allocate(kCard - 24 * kGiB)};
  EXPECT_EQ(pool.held_bytes(), kCard);
  for (void* block : blocks) pool.free(block);
}

// rmm#1957: with an initial 256 and a maximum of 1024, one request of 1024 failed; with an initial
// 0 it did not.
TEST_P(InitialSize, Rmm1957AnInitialSizeDoesNotStandInTheWayOfARequestForAll) {
  CasePool pool(4 * kGiB, options("reserve: 256MiB, capacity: 1024MiB"));
  ASSERT_TRUE(pool.is_started());
  EXPECT_EQ(pool.held_bytes(), 256 * kMiB);
  void* const all = pool.allocate(1024 * kMiB);
  EXPECT_EQ(pool.held_bytes(), 1024 * kMiB);
  pool.free(all);
}

// rmm#1664: with an initial 1 000 192 bytes and a maximum of 64 MiB, eight requests of 8 MiB failed
// before the maximum was reached.
TEST_P(InitialSize, Rmm1664AllUpToTheLimitIsOfUse) {
  CasePool pool(4 * kGiB, options("reserve: 1000192, capacity: 64MiB"));
  ASSERT_TRUE(pool.is_started());
  EXPECT_EQ(pool.held_bytes(), kPage);
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool.allocate(8 * kMiB));
  EXPECT_EQ(pool.held_bytes(), 64 * kMiB);
  EXPECT_EQ(pool.try_allocate(1), nullptr);
  for (void* block : blocks) pool.free(block);
}

// rmm#534: initial and maximum size equal, and no multiple of 256 bytes.
TEST_P(InitialSize, Rmm534InitialAndLimitMayBeTheSameOddNumber) {
  for (const char* size : {"67108964", "67108863", "100MB", "64MiB"}) {
    const std::string keys = std::string("reserve: ") + size + ", capacity: " + size;
    CasePool pool(4 * kGiB, options(keys));
    ASSERT_TRUE(pool.is_started()) << size;
    const std::uint64_t limit = pool.stats().limit_bytes;
    EXPECT_LE(pool.held_bytes(), parse_size(size).value()) << size;
    void* const all = pool.allocate(limit / kPage * kPage);
    EXPECT_LE(pool.held_bytes(), parse_size(size).value()) << size;
    pool.free(all);
  }
}

INSTANTIATE_TEST_SUITE_P(All, InitialSize,
                         testing::Values(Recycling::off, Recycling::eager, Recycling::pressure),
                         policy_name);

}  // namespace
}  // namespace gpupool::test
