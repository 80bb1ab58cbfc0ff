// What a pool records is what the tools play: a run and the replay of its recording ask for the
// same, and the same memory serves them.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/recorded_trace.h"
#include "tests/support/units.h"
#include "tools/replay/replay.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {
namespace {

constexpr std::uint64_t kCapacity = 2048 * kMiB;

class RecordTest : public testing::Test {
 protected:
  /// Which pages move depends on when there is maintenance, which no trace says.
  static PoolOptions pool_options() {
    PoolOptions options;
    options.runtime.recycling = Recycling::off;
    return options;
  }
  struct Live {
    void* block = nullptr;
    StreamRef stream;
  };

  void work(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      if (live_.size() < 50 && random_() % 2 == 0) {
        const StreamRef stream = streams_[random_() % 3 == 0 ? 1 : 0];
        const std::uint64_t limit = random_() % 3 == 0 ? 8 * kMiB : 40 * kKiB;
        live_.push_back({pool_->allocate(1 + random_() % limit, stream).value(), stream});
      } else if (!live_.empty()) {
        std::swap(live_[random_() % live_.size()], live_.back());
        give_back();
      }
    }
  }
  void give_back() {
    EXPECT_TRUE(pool_->deallocate(live_.back().block, live_.back().stream));
    live_.pop_back();
  }
  Trace stop_and_load() {
    const auto report = pool_->stop_recording();
    EXPECT_TRUE(report.ok());
    EXPECT_EQ(report.value().left_out, 0U);
    const auto trace = load_trace(file_.path());
    EXPECT_TRUE(trace.ok()) << trace.error().message;
    EXPECT_EQ(trace.value().operation_count,
              report.value().allocations + report.value().frees + report.value().live_at_start);
    return trace.value();
  }
  PassResult play(const Trace& trace) {
    ReplayOptions options;
    options.device = DeviceChoice::simulated;
    options.capacity_bytes = kCapacity;
    options.passes = 1;
    options.runtime = pool_options().runtime;
    const auto passes = Replayer(options).play(trace, [](const Trace&, std::uint64_t) {});
    EXPECT_TRUE(passes.ok());
    return passes.value()[0];
  }

  /// Which holds the same whenever it is maintained, as it is in a replay.
  static std::unique_ptr<Pool> make_pool(SimulatedBackend& device) {
    PoolOptions options;
    options.runtime.recycling = Recycling::off;
    return Pool::create(device, options).value();
  }

  ScratchFile file_;
  std::mt19937_64 random_{5};
  SimulatedBackend device_{{.capacity_bytes = kCapacity}};
  std::unique_ptr<Pool> pool_ = Pool::create(device_, pool_options()).value();
  std::vector<StreamRef> streams_ = {pool_->adopt_stream(nullptr).value(),
                                     pool_->adopt_stream(device_.create_stream()).value()};
  std::vector<Live> live_;
};

TEST_F(RecordTest, AReplayIsTheRunAgain) {
  ASSERT_TRUE(pool_->record(file_.path()).ok());
  work(10'000);
  while (!live_.empty()) give_back();
  const StatsV1 stats = pool_->stats();
  const Trace trace = stop_and_load();
  EXPECT_EQ(trace.streams, (std::vector<std::uint64_t>{0, 2}));
  const PassResult pass = play(trace);
  EXPECT_EQ(pass.operations, stats.requests + stats.frees);
  EXPECT_EQ(pass.failed, 0U);
  EXPECT_EQ(pass.peak_requested_bytes, stats.peak_requested_bytes);
  EXPECT_EQ(pass.peak_held_bytes, stats.peak_held_bytes);
  EXPECT_EQ(pass.hits, stats.hits);
  EXPECT_EQ(pass.driver_calls, stats.driver_calls);
}

TEST_F(RecordTest, WhatWasLiveIsThereInTheReplay) {
  work(3'000);
  pool_->reset_peaks();
  ASSERT_TRUE(pool_->record(file_.path()).ok());
  const std::uint64_t live = live_.size();
  work(3'000);
  const StatsV1 stats = pool_->stats();
  const Trace trace = stop_and_load();
  for (std::uint64_t i = 0; i < live; ++i) {
    EXPECT_EQ(trace.operations[i].kind, OperationKind::allocate);
    EXPECT_EQ(trace.operations[i].dt_us, 0U);
  }
  EXPECT_EQ(play(trace).peak_requested_bytes, stats.peak_requested_bytes);
  while (!live_.empty()) give_back();
}

TEST_F(RecordTest, AFreeOnAnotherStreamIsPlayedThere) {
  ASSERT_TRUE(pool_->record(file_.path()).ok());
  void* const block = pool_->allocate(5000, streams_[0]).value();
  EXPECT_TRUE(pool_->deallocate(block, streams_[1]));
  const Trace trace = stop_and_load();
  ASSERT_EQ(trace.operations.size(), 2U);
  EXPECT_EQ(trace.streams[trace.operations[0].stream], 0U);
  EXPECT_EQ(trace.streams[trace.operations[1].stream], 2U);
}

}  // namespace
}  // namespace gpupool::tools
