// What the tests of Pool's public behaviour share: a simulated device, a pool on it with two
// streams, and a list of the misuses that were reported. At its end nothing may be left, and the
// device must have had nothing to refuse.
#ifndef GPUPOOL_TESTS_UNIT_POOL_FIXTURE_H_
#define GPUPOOL_TESTS_UNIT_POOL_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "gpupool/faulty_backend.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool {

class PoolFixture : public testing::Test {
 protected:
  void SetUp() override { make_pool({}); }

  /// A pool of `options` in the place of the one that was there.
  void make_pool(PoolOptions options) {
    end_pool();
    options.misuse_handler = [this](const MisuseReport& report) { misuses_.push_back(report); };
    auto pool = Pool::create(backend_, options);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    pool_ = std::move(pool).value();
    raw_a_ = device_.create_stream();
    raw_b_ = device_.create_stream();
    a_ = pool_->adopt_stream(raw_a_).value();
    b_ = pool_->adopt_stream(raw_b_).value();
  }
  void make_pool_of(std::uint64_t capacity_bytes) {
    PoolOptions options;
    options.capacity = capacity_bytes;
    make_pool(options);
  }
  /// In which pages stay where they are.
  void make_pool_without_recycling(std::uint64_t capacity_bytes) {
    PoolOptions options;
    options.capacity = capacity_bytes;
    options.runtime.recycling = Recycling::off;
    make_pool(options);
  }
  void end_pool() {
    device_.complete_all();
    pool_.reset();
  }

  void TearDown() override {
    if (pool_ != nullptr) pool_->check_invariants();
    end_pool();
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
    EXPECT_EQ(device_.object_count(), 0u);
  }

  void* allocate(std::uint64_t bytes, StreamRef stream) {
    const auto block = pool_->allocate(bytes, stream);
    EXPECT_TRUE(block.ok()) << pool_->last_failure().text();
    return block.ok() ? block.value() : nullptr;
  }
  void* allocate(std::uint64_t bytes) { return allocate(bytes, a_); }
  void free(void* block, StreamRef stream) { EXPECT_TRUE(pool_->deallocate(block, stream)); }
  void free(void* block) { free(block, a_); }
  /// Work on `stream` that runs until it is completed.
  bool work(RawStream stream, void* block, std::uint64_t bytes = 1) {
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(block);
    work.bytes = bytes;
    work.until_completed = true;
    return device_.launch(stream, work).ok();
  }
  /// Everything that is cached is in the shared tiers, and completed work is known.
  void settle() {
    pool_->drain_caches();
    pool_->maintain();
  }
  std::uint64_t count(Misuse kind) const {
    return pool_->stats().misuses[static_cast<std::size_t>(kind)];
  }
  std::uint64_t misses(MissReason reason) const {
    return pool_->stats().misses_by_reason[static_cast<std::size_t>(reason)];
  }
  std::uint64_t hits(Tier tier) const {
    return pool_->stats().hits_by_tier[static_cast<std::size_t>(tier)];
  }
  static char* at(void* block, std::uint64_t offset) { return static_cast<char*>(block) + offset; }

  SimulatedBackend device_{{.capacity_bytes = 1024 * kMiB}};
  FaultyBackend backend_{device_};
  std::vector<MisuseReport> misuses_;
  std::unique_ptr<Pool> pool_;
  RawStream raw_a_ = nullptr;
  RawStream raw_b_ = nullptr;
  StreamRef a_;
  StreamRef b_;
};

}  // namespace gpupool

#endif  // GPUPOOL_TESTS_UNIT_POOL_FIXTURE_H_
