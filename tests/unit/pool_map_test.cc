// The map of a pool that is in use: shown in parts, so that nobody waits for all of it.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpupool/failure_report.h"
#include "gpupool/observer.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

struct LastFailure final : SlowPathObserver {
  void on_event(const SlowPathEvent& event) noexcept override {
    if (event.kind != SlowPathEventKind::failure) {
      has_other_report = has_other_report || event.report != nullptr;
    } else if (event.report != nullptr) {
      report = *event.report;
    }
  }
  FailureReport report;
  bool has_other_report = false;
};

class PoolMapTest : public testing::Test {
 protected:
  void SetUp() override {
    PoolOptions options;
    options.on_misuse = OnMisuse::abort;
    options.observer = &observer_;
    pool_ = Pool::create(backend_, options).value();
    stream_ = pool_->adopt_stream(backend_.create_stream()).value();
  }
  void* allocate(std::uint64_t bytes) { return pool_->allocate(bytes, stream_).value(); }

  LastFailure observer_;
  SimulatedBackend backend_{{.capacity_bytes = 8 * kGiB}};
  std::unique_ptr<Pool> pool_;
  StreamRef stream_;
};

std::string text_of(const BlockInfo& info) {
  return std::to_string(info.address) + " " + std::to_string(info.bytes) + " " +
         to_string(info.state) + " " + std::to_string(info.requested_bytes);
}

TEST_F(PoolMapTest, AtRestThePartsAreTheWhole) {
  std::vector<void*> blocks;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const std::uint64_t bytes = i % 3 == 0 ? 512 + i % 4000 : 40 * kKiB + i % 7 * 100 * kKiB;
    blocks.push_back(allocate(i % 500 == 0 ? 20 * kMiB : bytes % (300 * kKiB) + 1));
  }
  for (std::size_t i = 0; i < blocks.size(); i += 2) pool_->deallocate(blocks[i], stream_);
  AllocationRequest request;
  request.bytes = 999;
  request.allocation_class = AllocationClass::contiguous;
  EXPECT_TRUE(pool_->allocate(request, stream_).ok());
  pool_->drain_caches();
  std::vector<std::string> whole;
  std::vector<std::string> parts;
  pool_->visit_blocks([&](const BlockInfo& info) { whole.push_back(text_of(info)); });
  pool_->visit_blocks_in_parts([&](const BlockInfo& info) { parts.push_back(text_of(info)); });
  EXPECT_GT(whole.size(), 12'000u);
  EXPECT_EQ(parts, whole);
}

TEST_F(PoolMapTest, TheVisitorOfPartsMayUseThePool) {
  std::vector<void*> blocks;
  for (int i = 0; i < 2'000; ++i) blocks.push_back(allocate(200 * kKiB));
  std::size_t seen = 0;
  pool_->visit_blocks_in_parts([&](const BlockInfo&) {
    ++seen;
    pool_->deallocate(allocate(3 * kMiB), stream_);
    pool_->trim(0);
  });
  EXPECT_GE(seen, blocks.size());
}

TEST_F(PoolMapTest, WhatOthersDoMeanwhileHarmsNothing) {
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const StreamRef own = pool_->adopt_stream(backend_.create_stream()).value();
      for (std::uint64_t i = 0; !is_over; ++i) {
        const auto block = pool_->allocate(512 + (i * 7919 + t) % (4 * kMiB), own);
        if (block.ok()) pool_->deallocate(block.value(), own);
        if (i % 64 == 0) pool_->trim(0);
      }
    });
  }
  void* const still = allocate(5 * kMiB);
  for (int i = 0; i < 50; ++i) {
    std::uint64_t last = 0;
    std::size_t found = 0;
    pool_->visit_blocks_in_parts([&](const BlockInfo& info) {
      EXPECT_GE(info.address, last);
      last = info.address;
      found += info.address == reinterpret_cast<DeviceAddress>(still) ? 1 : 0;
    });
    EXPECT_EQ(found, 1u) << "a block that stays is shown";
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  pool_->check_invariants();
}

TEST_F(PoolMapTest, AFailureIsToldWithItsReport) {
  EXPECT_FALSE(pool_->allocate(64 * kGiB, stream_).ok());
  EXPECT_TRUE(observer_.report.happened);
  EXPECT_EQ(observer_.report.requested_bytes, 64 * kGiB);
  EXPECT_EQ(observer_.report.json(), pool_->last_failure().json());
  EXPECT_FALSE(observer_.has_other_report);
}

}  // namespace
}  // namespace gpupool
