// Frees that are none, with the path of a hit warm: wherever the block is by then, and whatever
// lies at the address.
#include <algorithm>
#include <array>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"
#include "tests/unit/worker.h"

namespace gpupool {
namespace {

constexpr std::array<std::uint64_t, 4> kMisusedCacheSizes = {512, 20 * kKiB, 100 * kKiB, kMiB};

class PoolCacheMisuseTest : public PoolFixture {
 protected:
  /// By both forms, on both streams, here and on another thread.
  void expect_refused(void* pointer, std::uint64_t bytes, Misuse kind) {
    const StatsV1 before = pool_->stats();
    const auto try_all = [&] {
      for (const StreamRef stream : {a_, b_}) {
        EXPECT_FALSE(pool_->deallocate(pointer, stream));
        EXPECT_FALSE(pool_->deallocate(pointer, bytes, stream));
        EXPECT_STREQ(to_string(misuses_.back().kind), to_string(kind));
      }
      EXPECT_FALSE(pool_->find_size(pointer).ok());
      EXPECT_FALSE(pool_->record_stream(pointer, b_));
      EXPECT_FALSE(pool_->record_use(pointer, b_));
    };
    try_all();
    other_.run(try_all);
    const StatsV1 after = pool_->stats();
    const auto index = static_cast<std::size_t>(kind);
    EXPECT_EQ(after.misuses[index], before.misuses[index] + 12);
    EXPECT_EQ(after.frees, before.frees);
    EXPECT_EQ(after.live_blocks, before.live_blocks);
    EXPECT_EQ(after.live_requested_bytes, before.live_requested_bytes);
    EXPECT_EQ(after.cached_bytes, before.cached_bytes);
    EXPECT_EQ(after.held_bytes, before.held_bytes);
  }
  std::vector<void*> allocate_many(std::uint64_t bytes, int count) {
    std::vector<void*> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back(allocate(bytes));
    return blocks;
  }

  Worker other_;
};

TEST_F(PoolCacheMisuseTest, ASecondFreeWhereverInTheCachesTheBlockIs) {
  for (const std::uint64_t bytes : kMisusedCacheSizes) {
    // In the chain in use, the full one behind it, and chains that were handed over.
    const std::vector<void*> blocks = allocate_many(bytes, 300);
    for (void* const block : blocks) free(block);
    for (std::size_t i = 0; i < blocks.size(); i += 7) {
      expect_refused(blocks[i], bytes, Misuse::double_free);
    }
    // All can be had once each, whatever was tried.
    std::vector<void*> again = allocate_many(bytes, 300);
    std::sort(again.begin(), again.end());
    EXPECT_EQ(std::unique(again.begin(), again.end()), again.end());
    for (void* const block : again) free(block);
    pool_->drain_caches();
    for (std::size_t i = 0; i < blocks.size(); i += 31) {
      expect_refused(blocks[i], bytes, Misuse::double_free);
    }
    pool_->check_invariants();
  }
}

TEST_F(PoolCacheMisuseTest, ABlockInAnotherThreadsCache) {
  for (const std::uint64_t bytes : kMisusedCacheSizes) {
    void* const block = allocate(bytes);
    other_.run([&] { free(block, b_); });
    expect_refused(block, bytes, Misuse::double_free);
    other_.run([&] {
      EXPECT_EQ(allocate(bytes, b_), block);
      free(block, b_);
    });
  }
}

TEST_F(PoolCacheMisuseTest, EveryGranuleInsideOfABlock) {
  for (const std::uint64_t bytes : {2 * kKiB, 20 * kKiB, 28 * kKiB, 100 * kKiB, 300 * kKiB}) {
    for (void* const block : allocate_many(bytes, 10)) free(block);
    const std::vector<void*> blocks = allocate_many(bytes, 3);
    for (void* const block : blocks) {
      for (std::uint64_t offset = 512; offset < bytes; offset += 512) {
        ASSERT_FALSE(pool_->deallocate(at(block, offset), a_));
        ASSERT_STREQ(to_string(misuses_.back().kind), to_string(Misuse::interior_pointer));
        ASSERT_EQ(misuses_.back().block, block);
        ASSERT_EQ(misuses_.back().block_bytes, bytes);
      }
      for (const std::uint64_t offset : {std::uint64_t{1}, std::uint64_t{511}, bytes - 1}) {
        expect_refused(at(block, offset), bytes, Misuse::interior_pointer);
      }
    }
    for (void* const block : blocks) free(block);
  }
}

// What lay at an address before may have left traces: slots where a run is now, a run where slots
// are, slots of another size.
TEST_F(PoolCacheMisuseTest, AddressesOfBlocksWhosePlaceIsAnothersNow) {
  make_pool_of(4 * kMiB);
  std::vector<void*> former;
  std::uint64_t bytes = 512;
  for (const std::uint64_t next :
       {3 * kKiB, 4 * kMiB, 20 * kKiB, kMiB, 100 * kKiB, 5 * kKiB, 2 * kMiB, std::uint64_t{512}}) {
    const std::vector<void*> blocks = allocate_many(bytes, static_cast<int>(2 * kMiB / bytes + 1));
    former.insert(former.end(), blocks.begin(), blocks.end());
    for (void* const block : blocks) free(block);
    settle();
    void* const block = allocate(next);
    void* const warm = next < 2 * kMiB ? allocate(next) : nullptr;
    if (warm != nullptr) free(warm);
    for (void* const address : former) {
      if (address == block) continue;
      ASSERT_FALSE(pool_->deallocate(address, a_));
      const Misuse kind = misuses_.back().kind;
      const bool is_inside = at(block, 0) < address && address < at(block, next);
      ASSERT_STREQ(to_string(kind),
                   to_string(is_inside ? Misuse::interior_pointer : Misuse::double_free));
    }
    free(block);
    settle();
    bytes = next;
  }
}

TEST_F(PoolCacheMisuseTest, AddressesThatAreNobodys) {
  for (const std::uint64_t bytes : kMisusedCacheSizes) free(allocate(bytes));
  void* const block = allocate(kMiB);
  const std::uint64_t end = std::uint64_t{1} << 49;
  for (const std::uint64_t address :
       {std::uint64_t{1}, std::uint64_t{512}, reinterpret_cast<std::uint64_t>(block) + end,
        reinterpret_cast<std::uint64_t>(block) - 4 * end, end, end - 512, ~std::uint64_t{0},
        ~std::uint64_t{0} - 511}) {
    EXPECT_FALSE(pool_->deallocate(reinterpret_cast<void*>(address), a_));
    EXPECT_STREQ(to_string(misuses_.back().kind), to_string(Misuse::foreign_pointer)) << address;
  }
  EXPECT_TRUE(pool_->deallocate(nullptr, a_));
  EXPECT_TRUE(pool_->deallocate(nullptr, 512, a_));
  free(block);
}

}  // namespace
}  // namespace gpupool
