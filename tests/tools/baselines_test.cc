// What makes each design the one that it is named after.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "bench/baselines/address_map.h"
#include "bench/baselines/buddy.h"
#include "bench/baselines/catalog.h"
#include "bench/baselines/driver_only.h"
#include "bench/baselines/free_list.h"
#include "bench/baselines/growth.h"
#include "bench/baselines/metered_backend.h"
#include "bench/baselines/pool_system.h"
#include "bench/baselines/size_classes.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool::baselines {
namespace {

DeviceAddress take(AllocationSystem& system, std::uint64_t bytes, StreamIndex stream = 0) {
  const Result<void*> block = system.allocate(bytes, stream);
  EXPECT_TRUE(block.ok());
  return to_address(block.value());
}

void give(AllocationSystem& system, DeviceAddress address, StreamIndex stream = 0) {
  EXPECT_TRUE(system.deallocate(to_pointer(address), stream));
}

struct World {
  SimulatedBackend device;
  MeteredBackend meter{device};
};

TEST(DriverOnly, EachRequestIsACallAndNothingIsKept) {
  World world;
  DriverOnly system(world.meter);
  for (int i = 0; i < 3; ++i) {
    const DeviceAddress block = take(system, kMiB);
    EXPECT_EQ(world.device.held_bytes(), kMiB);
    give(system, block);
    EXPECT_EQ(world.device.held_bytes(), 0U);
  }
  EXPECT_EQ(world.meter.use().calls, 6U);
  // 41 us and 35 us each, as a card was measured.
  EXPECT_EQ(world.meter.use().ns, 3U * (41'000 + 35'000));
}

TEST(FreeListSystem, CutsTheBestFitAndJoinsNeighbours) {
  World world;
  FreeList system(world.meter, 1);
  const DeviceAddress a = take(system, 2 * kMiB);
  const DeviceAddress b = take(system, kMiB);
  const DeviceAddress c = take(system, 3 * kMiB);
  const DeviceAddress d = take(system, kMiB);
  EXPECT_EQ(b, a + 2 * kMiB);
  EXPECT_EQ(c, b + kMiB);
  give(system, a);
  give(system, c);
  EXPECT_EQ(take(system, 2 * kMiB), a) << "the smallest that fits, not the first by address";
  EXPECT_EQ(take(system, kMiB + kMiB / 2), c) << "cut";
  EXPECT_EQ(take(system, kMiB + kMiB / 2), c + kMiB + kMiB / 2) << "the rest";
  for (const DeviceAddress block : {a, b, c, c + kMiB + kMiB / 2, d}) give(system, block);
  EXPECT_EQ(take(system, FreeList::kSegmentBytes), a) << "all of it in one piece again";
  EXPECT_EQ(world.meter.use().calls, 1U);
  give(system, a);
}

TEST(FreeListSystem, AStreamKeepsWhatItFreed) {
  World world;
  FreeList system(world.meter, 2);
  const DeviceAddress mine = take(system, kMiB, 0);
  const DeviceAddress other = take(system, kMiB, 0);
  give(system, mine, 0);
  give(system, other, 1);
  EXPECT_EQ(take(system, kMiB, 1), other);
  EXPECT_EQ(take(system, kMiB, 0), mine);
  give(system, mine, 0);
  give(system, other, 1);
  const DeviceAddress both = take(system, 2 * kMiB, 0);
  EXPECT_NE(both, mine) << "two streams' neighbours are not joined";
  EXPECT_EQ(system.find_fault(), "");
  give(system, both);
}

TEST(FreeListSystem, AFullDeviceGetsUnusedSegmentsBack) {
  SimulatedDeviceOptions options;
  options.capacity_bytes = 100 * kMiB;
  SimulatedBackend device(options);
  FreeList system(device, 2);
  const DeviceAddress first = take(system, kMiB, 0);
  EXPECT_EQ(device.held_bytes(), 64 * kMiB);
  const DeviceAddress second = take(system, 3 * kMiB, 1);
  EXPECT_EQ(device.held_bytes(), 68 * kMiB) << "no room for a whole segment";
  give(system, first, 0);
  const DeviceAddress third = take(system, 90 * kMiB, 1);
  EXPECT_EQ(device.held_bytes(), 94 * kMiB) << "stream 0's segment went back";
  EXPECT_FALSE(system.allocate(90 * kMiB, 0).ok());
  give(system, second, 1);
  give(system, third, 1);
}

TEST(BuddySystem, BlocksArePowersOfTwoAndBuddiesJoin) {
  World world;
  Buddy system(world.meter, 1);
  const DeviceAddress a = take(system, 600 * kKiB);
  const DeviceAddress b = take(system, 1);
  const DeviceAddress c = take(system, 513);
  EXPECT_EQ(b, a + kMiB);
  EXPECT_EQ(c, b + kKiB) << "the next multiple of its own size";
  EXPECT_EQ(take(system, 512), b + 512) << "b's buddy";
  give(system, b + 512);
  give(system, c);
  give(system, b);
  give(system, a);
  EXPECT_EQ(take(system, Buddy::kSegmentBytes), a);
  EXPECT_EQ(world.meter.use().calls, 1U);
  give(system, a);
}

TEST(BuddySystem, ALargeRequestGetsASegmentThatServesSmallOnesLater) {
  World world;
  Buddy system(world.meter, 1);
  const DeviceAddress large = take(system, 65 * kMiB);
  EXPECT_EQ(world.device.held_bytes(), 128 * kMiB);
  give(system, large);
  EXPECT_EQ(take(system, kMiB), large);
  EXPECT_EQ(world.meter.use().calls, 1U);
  give(system, large);
}

TEST(BuddySystem, BuddiesOfTwoStreamsStayApart) {
  World world;
  Buddy system(world.meter, 2);
  const DeviceAddress mine = take(system, 32 * kMiB, 0);
  const DeviceAddress other = take(system, 32 * kMiB, 0);
  give(system, mine, 0);
  give(system, other, 1);
  EXPECT_EQ(take(system, 32 * kMiB, 1), other);
  give(system, other, 1);
  const DeviceAddress both = take(system, 64 * kMiB, 0);
  EXPECT_NE(both, mine);
  EXPECT_EQ(system.find_fault(), "");
  EXPECT_EQ(take(system, 32 * kMiB, 0), mine);
  give(system, mine);
  give(system, both);
}

TEST(SizeClassesSystem, ClassesAreOrderedDenseAndRoundByAQuarterAtMost) {
  SizeClasses::SizeClass last;
  for (std::uint64_t bytes = 1; bytes <= 64 * kKiB; ++bytes) {
    const auto found = SizeClasses::class_of(bytes);
    ASSERT_GE(found.bytes, bytes);
    ASSERT_LT(found.bytes - bytes, std::max<std::uint64_t>(512, bytes / 4 + 1)) << bytes;
    ASSERT_EQ(SizeClasses::class_of(found.bytes).bytes, found.bytes);
    const std::size_t step = bytes > 1 && found.bytes > last.bytes ? 1 : 0;
    ASSERT_EQ(found.index, last.index + step);
    ASSERT_GE(found.bytes, last.bytes);
    last = found;
  }
  EXPECT_EQ(SizeClasses::class_of(1).index, 0U);
  EXPECT_EQ(SizeClasses::class_of(4096).index, 7U);
  EXPECT_EQ(SizeClasses::class_of(4097).bytes, 5120U);
  EXPECT_EQ(SizeClasses::class_of(std::uint64_t{1} << 62).index, SizeClasses::kClassCount - 1);
}

TEST(SizeClassesSystem, ABlockStaysInItsClass) {
  World world;
  SizeClasses system(world.meter, 1);
  const DeviceAddress large = take(system, 3 * kMiB);
  EXPECT_EQ(world.device.held_bytes(), 3 * kMiB);
  give(system, large);
  EXPECT_EQ(take(system, 3 * kMiB - 100), large);
  give(system, large);
  const DeviceAddress other = take(system, 2 * kMiB);
  EXPECT_NE(other, large) << "never cut";
  EXPECT_EQ(world.device.held_bytes(), 5 * kMiB);
  give(system, other);
  std::set<DeviceAddress> small;
  for (int i = 0; i < 4; ++i) small.insert(take(system, 512 * kKiB));
  EXPECT_EQ(world.device.held_bytes(), 7 * kMiB) << "four of a slab";
  EXPECT_EQ(*small.rbegin() - *small.begin(), kMiB + 512 * kKiB);
  for (const DeviceAddress block : small) give(system, block);
  EXPECT_EQ(take(system, 2 * kMiB), other) << "never joined";
  give(system, other);
}

TEST(PoolSystem, IsMeasuredByTheSameMeansAsItCountsItself) {
  World world;
  const std::vector<RawStream> streams = {world.device.create_stream()};
  auto created = PoolSystem::create(world.meter, streams);
  ASSERT_TRUE(created.ok());
  AllocationSystem& system = *created.value();
  const DeviceAddress block = take(system, 100 * kMiB);
  EXPECT_EQ(world.meter.peak_held_bytes(), 100 * kMiB);
  EXPECT_GT(world.meter.use().calls, 0U);
  const DriverUse cold = world.meter.use();
  give(system, block);
  EXPECT_EQ(take(system, 100 * kMiB), block);
  EXPECT_EQ((world.meter.use() - cold).calls, 0U);
  give(system, block);
  EXPECT_EQ(system.find_fault(), "");
}

TEST(Catalog, NamesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (const CatalogEntry& entry : catalog()) {
    EXPECT_TRUE(names.insert(entry.name).second);
    EXPECT_EQ(find_system(entry.name), &entry);
  }
  EXPECT_EQ(names.size(), 5U);
  EXPECT_EQ(find_system("slab"), nullptr);
  EXPECT_EQ(find_system(""), nullptr);
}

TEST(AddressMapTable, AgreesWithATree) {
  std::mt19937_64 random(1);
  std::map<DeviceAddress, int*> tree;
  AddressMap<int> table;
  std::vector<int> values(5000);
  for (int i = 0; i < 200'000; ++i) {
    // Few different addresses, near each other, so that they come and go and collide.
    const std::size_t n = random() % values.size();
    const DeviceAddress address = (n + 1) * 512;
    ASSERT_EQ(table.find(address) != nullptr, tree.count(address) != 0);
    if (tree.count(address) != 0) {
      ASSERT_EQ(table.find(address), tree[address]);
      table.erase(address);
      tree.erase(address);
    } else {
      table.insert(address, &values[n]);
      tree[address] = &values[n];
    }
    ASSERT_EQ(table.size(), tree.size());
  }
  std::size_t visited = 0;
  table.visit([&](DeviceAddress address, int& value) {
    EXPECT_EQ(tree.at(address), &value);
    ++visited;
  });
  EXPECT_EQ(visited, tree.size());
}

}  // namespace
}  // namespace gpupool::baselines
