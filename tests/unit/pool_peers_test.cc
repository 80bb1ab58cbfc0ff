// Devices that may access a pool's memory, too: each mapping gives it to them again.
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

class PoolPeersTest : public testing::Test {
 protected:
  static PoolOptions with_peers(std::vector<int> peers) {
    PoolOptions options;
    options.peers = std::move(peers);
    return options;
  }
  static std::string error_of(Backend& backend, const PoolOptions& options) {
    const auto pool = Pool::create(backend, options);
    return pool.ok() ? std::string() : pool.error().message;
  }

  SimulatedBackend device_{{.capacity_bytes = 64 * kMiB, .peers = {1, 2}}};
};

TEST_F(PoolPeersTest, APeerReachesWhatIsGrownAndWhatIsMoved) {
  auto pool = Pool::create(device_, with_peers({1})).value();
  const StreamRef stream = pool->adopt_stream(device_.create_stream()).value();
  // Page by page, so that every other one can be moved to make room for one that is longer.
  std::vector<void*> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(pool->allocate(2 * kMiB, stream).value());
  for (void* const block : blocks) {
    EXPECT_TRUE(device_.access_from(1, reinterpret_cast<DeviceAddress>(block), 2 * kMiB).ok());
  }
  for (int i = 0; i < 32; i += 2) EXPECT_TRUE(pool->deallocate(blocks[i], stream));
  pool->drain_caches();
  const auto moved = pool->allocate(20 * kMiB, stream);
  ASSERT_TRUE(moved.ok()) << pool->last_failure().text();
  EXPECT_GT(pool->stats().pages_recycled, 0u);
  const auto address = reinterpret_cast<DeviceAddress>(moved.value());
  EXPECT_TRUE(device_.access_from(1, address, 20 * kMiB).ok()) << device_.last_violation();
  EXPECT_EQ(device_.violation_count(), 0u);
  // Who was not named has none.
  EXPECT_FALSE(device_.access_from(2, address, 512).ok());
  EXPECT_EQ(device_.violation_count(), 1u);
  EXPECT_TRUE(pool->deallocate(moved.value(), stream));
  for (int i = 1; i < 32; i += 2) EXPECT_TRUE(pool->deallocate(blocks[i], stream));
}

TEST_F(PoolPeersTest, WithoutPeersNobodyElseReachesIt) {
  auto pool = Pool::create(device_, {}).value();
  const StreamRef stream = pool->adopt_stream(device_.create_stream()).value();
  void* const block = pool->allocate(kMiB, stream).value();
  EXPECT_FALSE(device_.access_from(1, reinterpret_cast<DeviceAddress>(block), 512).ok());
  EXPECT_TRUE(pool->deallocate(block, stream));
}

TEST_F(PoolPeersTest, AHandleOfItsOwnIsSharedAsWell) {
  PoolOptions options = with_peers({1, 2});
  options.contiguous = ContiguousBacking::handle;
  auto pool = Pool::create(device_, options).value();
  const StreamRef stream = pool->adopt_stream(device_.create_stream()).value();
  AllocationRequest request;
  request.bytes = 3 * kMiB;
  request.allocation_class = AllocationClass::contiguous;
  void* const block = pool->allocate(request, stream).value();
  for (const int peer : {1, 2}) {
    EXPECT_TRUE(device_.access_from(peer, reinterpret_cast<DeviceAddress>(block), 3 * kMiB).ok());
  }
  EXPECT_TRUE(pool->deallocate(block, stream));
}

TEST_F(PoolPeersTest, WhatCannotBeIsRefusedByName) {
  EXPECT_NE(error_of(device_, with_peers({3})).find("peers: device 3"), std::string::npos);
  EXPECT_NE(error_of(device_, with_peers({0})).find("peers: device 0"), std::string::npos);
  EXPECT_NE(error_of(device_, with_peers({1, 1})).find("peers: 1 is there twice"),
            std::string::npos);
  PoolOptions options = with_peers({1});
  options.backing = Backing::cudamalloc;
  EXPECT_NE(error_of(device_, options).find("peers"), std::string::npos);
  options = with_peers({1});
  options.runtime.alias_reuse = AliasReuse::same_stream;
  EXPECT_NE(error_of(device_, options).find("alias_reuse"), std::string::npos);
  EXPECT_EQ(device_.object_count(), 0u);
}

TEST_F(PoolPeersTest, SameStreamReuseCannotBeTurnedOnLaterEither) {
  auto pool = Pool::create(device_, with_peers({1})).value();
  RuntimeOptions runtime = pool->runtime_options();
  runtime.alias_reuse = AliasReuse::same_stream;
  const auto changed = pool->reconfigure(runtime);
  ASSERT_FALSE(changed.ok());
  EXPECT_NE(changed.error().message.find("alias_reuse"), std::string::npos);
  auto alone = Pool::create(device_, {}).value();
  EXPECT_TRUE(alone->reconfigure(runtime).ok());
}

using PoolWrongDeviceTest = PoolFixture;

TEST_F(PoolWrongDeviceTest, AWrongDeviceIsCountedAndChangesNothing) {
  void* const block = allocate(kMiB);
  pool_->note_wrong_device(at(block, 512), 3);
  ASSERT_EQ(misuses_.size(), 1u);
  EXPECT_STREQ(to_string(misuses_[0].kind), "wrong_device");
  EXPECT_EQ(misuses_[0].block, block);
  EXPECT_EQ(misuses_[0].block_bytes, kMiB);
  EXPECT_EQ(misuses_[0].given, 3u);
  EXPECT_EQ(count(Misuse::wrong_device), 1u);
  EXPECT_EQ(pool_->find_size(block).value(), kMiB);
  free(block);
}

}  // namespace
}  // namespace gpupool
