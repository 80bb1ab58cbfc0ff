// Requests and what they get: sizes, alignments, classes, tiers, limits.
#include <limits>
#include <set>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolAllocateTest : public PoolFixture {};

TEST_F(PoolAllocateTest, ZeroBytesAreNothing) {
  const auto block = pool_->allocate(0, a_);
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(block.value(), nullptr);
  EXPECT_TRUE(pool_->allocate(0, raw_a_).ok());
  EXPECT_TRUE(pool_->deallocate(nullptr, a_));
  EXPECT_TRUE(pool_->deallocate(nullptr, raw_a_));
  EXPECT_TRUE(pool_->deallocate(nullptr, 0, a_));
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.requests, 0u);
  EXPECT_EQ(stats.frees, 0u);
  EXPECT_EQ(stats.driver_calls, 0u);
}

TEST_F(PoolAllocateTest, SizesNearTheEndOfTheTypeAreRefusedAndChangeNothing) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  const std::size_t sizes[] = {
      kMost,          kMost - 7,        kMost - 510,   kMost - 511,
      kMost - 4095,   kMost - 2 * kMiB, kMost / 2 + 1, std::size_t{1} << 47,
      1024 * kMiB + 1};
  std::uint64_t failures = 0;
  const std::uint64_t device_calls = backend_.call_count(BackendCall::create);
  for (const std::size_t size : sizes) {
    for (const std::size_t alignment : {std::size_t{512}, std::size_t{4096}, kMaxAlignment}) {
      AllocationRequest request;
      request.bytes = size;
      request.alignment = alignment;
      for (const auto kind : {AllocationClass::normal, AllocationClass::contiguous}) {
        request.allocation_class = kind;
        const auto block = pool_->allocate(request, a_);
        ASSERT_FALSE(block.ok());
        EXPECT_EQ(block.error(), Error::limit_exceeded);
        ++failures;
      }
    }
  }
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.failures, failures);
  EXPECT_EQ(stats.failures_by_reason[static_cast<std::size_t>(MissReason::size)], failures);
  EXPECT_EQ(stats.requests, failures);
  EXPECT_EQ(stats.misses, failures);
  EXPECT_EQ(stats.held_bytes, 0u);
  EXPECT_EQ(stats.live_blocks, 0u);
  EXPECT_EQ(backend_.call_count(BackendCall::create), device_calls);
  void* first = allocate(512);
  void* second = allocate(512);
  EXPECT_NE(first, second);
  free(first);
  free(second);
}

TEST_F(PoolAllocateTest, EveryPowerOfTwoUpToAPageIsAnAlignment) {
  std::vector<void*> blocks;
  for (const std::uint64_t bytes :
       {std::uint64_t{1}, std::uint64_t{700}, 5 * kKiB, 40 * kKiB, 200 * kKiB, 3 * kMiB}) {
    for (std::size_t alignment = 1; alignment <= kMaxAlignment; alignment *= 2) {
      for (const auto kind : {AllocationClass::normal, AllocationClass::contiguous}) {
        AllocationRequest request;
        request.bytes = bytes;
        request.alignment = alignment;
        request.allocation_class = kind;
        const auto block = pool_->allocate(request, a_);
        ASSERT_TRUE(block.ok()) << pool_->last_failure().text();
        const auto address = reinterpret_cast<std::uint64_t>(block.value());
        EXPECT_EQ(address % std::max<std::uint64_t>(alignment, 512), 0u);
        EXPECT_TRUE(work(raw_a_, block.value(), bytes));
        blocks.push_back(block.value());
      }
    }
    pool_->check_invariants();
    for (void* block : blocks) free(block);
    blocks.clear();
    device_.complete_all();
  }
}

TEST_F(PoolAllocateTest, OtherAlignmentsAreRefused) {
  for (const std::size_t alignment :
       {std::size_t{0}, std::size_t{3}, std::size_t{513}, 2 * kMaxAlignment, ~std::size_t{0}}) {
    AllocationRequest request;
    request.bytes = 512;
    request.alignment = alignment;
    const auto block = pool_->allocate(request, a_);
    ASSERT_FALSE(block.ok()) << alignment;
    EXPECT_EQ(block.error(), Error::invalid_argument);
  }
  EXPECT_EQ(misses(MissReason::invalid), 5u);
  EXPECT_EQ(misses(MissReason::size), 0u);
}

TEST_F(PoolAllocateTest, BlocksOfEveryTierAreDisjointAndTheirOwn) {
  std::set<void*> seen;
  std::vector<std::pair<char*, std::uint64_t>> blocks;
  for (std::uint64_t bytes = 1; bytes < 2 * kMiB; bytes = bytes * 3 / 2 + 1) {
    for (int i = 0; i < 5; ++i) {
      auto* block = static_cast<char*>(allocate(bytes));
      EXPECT_TRUE(seen.insert(block).second);
      EXPECT_EQ(pool_->find_size(block).value(), bytes);
      EXPECT_FALSE(pool_->find_size(block + 1).ok());
      blocks.emplace_back(block, bytes);
    }
  }
  std::sort(blocks.begin(), blocks.end());
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    EXPECT_LE(blocks[i - 1].first + blocks[i - 1].second, blocks[i].first);
  }
  for (const auto& [block, bytes] : blocks) {
    EXPECT_TRUE(pool_->deallocate(block, bytes, a_));
    EXPECT_FALSE(pool_->find_size(block).ok());
  }
  EXPECT_FALSE(pool_->find_size(nullptr).ok());
  EXPECT_FALSE(pool_->find_size(this).ok());
  EXPECT_TRUE(misuses_.empty());
}

TEST_F(PoolAllocateTest, ARequestIsServedByItsTier) {
  free(allocate(2 * kMiB));
  settle();
  void* slot = allocate(100);
  EXPECT_EQ(hits(Tier::size_class), 1u);
  void* buddy = allocate(50 * kKiB);
  EXPECT_EQ(hits(Tier::buddy), 1u);
  void* run = allocate(500 * kKiB);
  EXPECT_EQ(hits(Tier::run), 1u);
  for (void* block : {slot, buddy, run}) free(block);
  EXPECT_EQ(allocate(100), slot);  // last in, first out
  EXPECT_EQ(allocate(50 * kKiB), buddy);
  EXPECT_EQ(allocate(500 * kKiB), run);
  EXPECT_EQ(hits(Tier::cache), 3u);
  for (void* block : {slot, buddy, run}) free(block);
}

TEST_F(PoolAllocateTest, AHitMakesNoDriverCall) {
  free(allocate(64 * kMiB));
  const StatsV1 before = pool_->stats();
  std::vector<void*> blocks;
  for (std::uint64_t bytes = 512; bytes <= 8 * kMiB; bytes *= 2) blocks.push_back(allocate(bytes));
  for (void* block : blocks) free(block);
  const StatsV1 after = pool_->stats();
  EXPECT_EQ(after.hits - before.hits, blocks.size());
  EXPECT_EQ(after.driver_calls, before.driver_calls);
  EXPECT_EQ(after.driver_wait_ns, before.driver_wait_ns);
}

TEST_F(PoolAllocateTest, TheLimitHoldsForAllThatIsTakenFromTheDriver) {
  make_pool_of(10 * kMiB + 12345);
  std::vector<void*> blocks;
  for (;;) {
    const auto block = pool_->allocate(kMiB, a_);
    if (!block.ok()) break;
    blocks.push_back(block.value());
    EXPECT_LE(device_.held_bytes(), 10 * kMiB + 12345);
  }
  EXPECT_EQ(blocks.size(), 10u);
  EXPECT_EQ(pool_->last_failure().error, Error::out_of_memory);
  EXPECT_EQ(pool_->last_failure().reason, MissReason::budget);
  EXPECT_EQ(pool_->allocate(11 * kMiB, a_).error(), Error::limit_exceeded);
  AllocationRequest contiguous;
  contiguous.bytes = 512;
  contiguous.allocation_class = AllocationClass::contiguous;
  EXPECT_TRUE(pool_->allocate(contiguous, a_).ok() ||
              pool_->last_failure().error == Error::out_of_memory);
  EXPECT_LE(device_.held_bytes(), 10 * kMiB + 12345);
  for (void* block : blocks) free(block);
}

TEST_F(PoolAllocateTest, AFractionIsOfWhatTheDeviceHasFree) {
  ASSERT_TRUE(device_.set_taken_by_others(512 * kMiB).ok());
  struct Case {
    double fraction;
    std::uint64_t limit;
  };
  for (const Case c : {Case{1.0, 512 * kMiB}, {0.5, 256 * kMiB}, {0.1, 50 * kMiB}}) {
    PoolOptions options;
    options.capacity = c.fraction;
    make_pool(options);
    EXPECT_EQ(pool_->stats().limit_bytes, c.limit);
  }
  for (const double wrong : {0.0, -0.1, 1.5, 0.001, std::numeric_limits<double>::quiet_NaN()}) {
    PoolOptions options;
    options.capacity = wrong;
    const auto pool = Pool::create(backend_, options);
    ASSERT_FALSE(pool.ok()) << wrong;
    EXPECT_NE(pool.error().message.find("capacity"), std::string::npos);
  }
}

TEST_F(PoolAllocateTest, WrongOptionsAreNamed) {
  const auto message_of = [&](auto change) {
    PoolOptions options;
    change(options);
    const auto pool = Pool::create(backend_, options);
    return pool.ok() ? std::string() : pool.error().message;
  };
  const auto expect = [&](const char* part, auto change) {
    const std::string message = message_of(change);
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  };
  expect("capacity: 2097151 is less than one page, 2MiB",
         [](PoolOptions& o) { o.capacity = kMinCapacityBytes - 1; });
  expect("name", [](PoolOptions& o) { o.name = "a b"; });
  expect("name", [](PoolOptions& o) { o.name = ""; });
  expect("name", [](PoolOptions& o) { o.name = std::string(65, 'x'); });
  expect("tags", [](PoolOptions& o) { o.tags.assign(33, "x"); });
  expect("twice", [](PoolOptions& o) { o.tags = {"x", "y", "x"}; });
  expect("tags", [](PoolOptions& o) { o.tags = {"a\"b"}; });
  expect("watched_sizes", [](PoolOptions& o) { o.watched_sizes.assign(5, 1); });
  expect("reserve", [](PoolOptions& o) {
    o.capacity = 8 * kMiB;
    o.reserve_bytes = 10 * kMiB;
  });
  expect("slack", [](PoolOptions& o) { o.runtime.slack = -1; });
  SimulatedBackend plain({.supports_vmm = false});
  EXPECT_NE(Pool::create(plain, {}).error().message.find("cudamalloc"), std::string::npos);
  PoolOptions options;
  options.backing = Backing::cudamalloc;
  EXPECT_TRUE(Pool::create(plain, options).ok());
}

TEST_F(PoolAllocateTest, ContiguousIsOneDriverAllocationAndCounted) {
  AllocationRequest request;
  request.bytes = 3 * kMiB + 5;
  request.allocation_class = AllocationClass::contiguous;
  void* block = pool_->allocate(request, a_).value();
  StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.fallbacks, 1u);
  EXPECT_EQ(stats.fallbacks_by_reason[static_cast<std::size_t>(FallbackReason::contiguous)], 1u);
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.fallback_bytes, 3 * kMiB + 512);
  EXPECT_EQ(stats.held_bytes, stats.fallback_bytes);
  EXPECT_EQ(stats.waste_bytes, 507u);
  EXPECT_EQ(backend_.call_count(BackendCall::allocate), 1u);
  // It goes back to the driver only when the work on it is done.
  EXPECT_TRUE(work(raw_a_, block, request.bytes));
  free(block);
  pool_->maintain();
  pool_->trim(0);
  EXPECT_EQ(device_.held_bytes(), 3 * kMiB + 512);
  EXPECT_EQ(pool_->stats().pending_bytes, 3 * kMiB + 512);
  device_.complete_all();
  pool_->maintain();
  stats = pool_->stats();
  EXPECT_EQ(device_.held_bytes(), 0u);
  EXPECT_EQ(stats.released_bytes_by_reason[static_cast<std::size_t>(ReleaseReason::fallback)],
            3 * kMiB + 512);
}

TEST_F(PoolAllocateTest, WhereTheDriverRefusesToGrowTheArenaARequestGetsItsOwn) {
  backend_.fail_nth(BackendCall::map, 1, Error::backend_failure);
  void* block = allocate(kMiB);
  const StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.fallbacks_by_reason[static_cast<std::size_t>(FallbackReason::arena_failed)], 1u);
  EXPECT_EQ(stats.held_bytes, device_.held_bytes());
  free(block);
}

TEST_F(PoolAllocateTest, TagsFollowTheScopeOrTheRequest) {
  const Tag weights = pool_->find_tag("weights").value();
  const Tag optimizer = pool_->find_tag("optimizer").value();
  EXPECT_FALSE(pool_->find_tag("nothing").ok());
  std::vector<void*> blocks;
  {
    TagScope scope(weights);
    blocks.push_back(allocate(1000));
    {
      TagScope inner(optimizer);
      blocks.push_back(allocate(200));
    }
    AllocationRequest request;
    request.bytes = 30;
    request.tag = kUntagged;
    blocks.push_back(pool_->allocate(request, a_).value());
    request.tag = Tag(31);  // a name that this pool does not have
    blocks.push_back(pool_->allocate(request, a_).value());
  }
  blocks.push_back(allocate(4));
  StatsV1 stats = pool_->stats();
  EXPECT_EQ(stats.tag_live_bytes[weights.index()], 1000u);
  EXPECT_EQ(stats.tag_live_bytes[optimizer.index()], 200u);
  EXPECT_EQ(
      std::accumulate(stats.tag_live_bytes.begin(), stats.tag_live_bytes.end(), std::uint64_t{0}),
      1200u);
  EXPECT_EQ(stats.live_requested_bytes, 1264u);
  for (void* block : blocks) free(block);
  stats = pool_->stats();
  EXPECT_EQ(stats.tag_live_bytes[weights.index()], 0u);
}

}  // namespace
}  // namespace gpupool
