// The parts of gpupool_gpu_replay, on the simulated device: that wrong words are found, and that a
// trace is played as its setting says.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "gpupool/pool.h"
#include "tests/gpu/replay/report.h"
#include "tests/gpu/replay/setting.h"
#include "tests/gpu/replay/trace_run.h"
#include "tests/support/units.h"

namespace gpupool::gpu_tests {
namespace {

/// Two streams; at the most 7 MiB at once; a block is left at the end.
constexpr char kTrace[] = R"(# gpupool allocation trace, version 1
# source: a test
# {"seconds": 0.01}
a 1 3145728 0 100
a 2 1048576 1 1500
a 3 3145728 0 2
f 1 2500
a 4 70002 1 3
f 2 1
c 2 4000
f 3 2
)";

tools::Trace small_trace() {
  auto trace = tools::parse_trace("small", kTrace);
  EXPECT_TRUE(trace.ok()) << (trace.ok() ? "" : trace.error().message);
  return trace.ok() ? trace.value() : tools::Trace();
}

Place simulated_place() {
  Place place;
  place.device = tools::DeviceChoice::simulated;
  return place;
}

const Setting& find_setting(const std::string& name) {
  for (const Setting& setting : settings()) {
    if (setting.name == name) return setting;
  }
  ADD_FAILURE() << name;
  return settings().front();
}

class WorkOnMemory : public testing::Test {
 protected:
  WorkOnMemory()
      : device_({.capacity_bytes = 64 * kMiB, .memory = SimulatedMemory::real}),
        stream_(device_.create_stream()),
        work_(make_simulated_work(device_, SimulatedMemory::real, {stream_})) {}
  ~WorkOnMemory() override {
    EXPECT_TRUE(work_->wait_for_all().ok());
    for (const DeviceAddress address : given_) EXPECT_TRUE(device_.deallocate(address).ok());
    device_.destroy_stream(stream_);
  }

  Pattern block(std::uint64_t bytes, std::uint32_t seed) {
    given_.push_back(device_.allocate(bytes).value());
    return {given_.back(), bytes, seed};
  }
  static std::uint32_t* words(const Pattern& pattern) {
    return reinterpret_cast<std::uint32_t*>(pattern.address);
  }

  SimulatedBackend device_;
  RawStream stream_;
  std::vector<DeviceAddress> given_;
  std::unique_ptr<BlockWork> work_;
};

TEST_F(WorkOnMemory, WhatWasFilledIsFound) {
  for (const std::uint64_t bytes : {std::uint64_t{4}, std::uint64_t{512}, 2 * kMiB + 4}) {
    const Pattern pattern = block(bytes, seed_of(bytes));
    ASSERT_TRUE(work_->fill(0, pattern).ok());
    ASSERT_TRUE(work_->check(0, pattern).ok());
  }
  EXPECT_EQ(work_->mismatches().value().words, 0U);
  EXPECT_EQ(device_.violation_count(), 0U);
}

TEST_F(WorkOnMemory, AWrongWordIsCountedAndTheFirstIsKept) {
  const Pattern pattern = block(65536, 7);
  ASSERT_TRUE(work_->fill(0, pattern).ok());
  ASSERT_TRUE(work_->wait_for_all().ok());
  words(pattern)[100] ^= 1;
  words(pattern)[pattern.words() - 1] ^= 1;
  ASSERT_TRUE(work_->check(0, pattern).ok());
  const Mismatches found = work_->mismatches().value();
  EXPECT_EQ(found.words, 2U);
  EXPECT_EQ(found.first_address, pattern.address + 400);
  EXPECT_EQ(found.first_expected, pattern.word(100));
  EXPECT_EQ(found.first_found, pattern.word(100) ^ 1);
}

TEST_F(WorkOnMemory, APageOfAnotherBlockAndTheSamePageElsewhereAreWrongInEachWordLookedAt) {
  const Pattern large = block(8 * kMiB, 1);
  ASSERT_TRUE(work_->fill(0, large).ok());
  ASSERT_TRUE(work_->wait_for_all().ok());
  std::memmove(words(large), words(large) + 2 * kMiB / 4, 2 * kMiB);
  ASSERT_TRUE(work_->check(0, large).ok());
  EXPECT_EQ(work_->mismatches().value().words, 2 * kMiB / 4096);
}

TEST(GpuReplaySettings, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Setting& setting : settings()) EXPECT_TRUE(names.insert(setting.name).second);
  EXPECT_EQ(settings().front().runtime.recycling, Recycling::off);
  EXPECT_EQ(find_setting("eager-5-wait").runtime.slack, 0.05);
  EXPECT_EQ(find_setting("eager-same-stream").runtime.alias_reuse, AliasReuse::same_stream);
}

TEST(GpuReplaySettings, ATightCapacityIsLittleMoreThanThePeakInWholePages) {
  EXPECT_EQ(tight_capacity(0), 32 * kMiB);
  EXPECT_EQ(tight_capacity(1), 34 * kMiB);
  EXPECT_EQ(tight_capacity(10'000 * kMiB), 10'100 * kMiB);
}

TEST(GpuReplayRun, BusyPassesFindNoWrongWordAndCountWhatIsTheirs) {
  const tools::Trace trace = small_trace();
  auto run = TraceRun::open(trace, find_setting("off"), Mode::busy, simulated_place());
  ASSERT_TRUE(run.ok()) << run.error().message;
  for (int pass = 0; pass < 2; ++pass) {
    const auto figures = run.value()->play();
    ASSERT_TRUE(figures.ok()) << figures.error().message;
    EXPECT_EQ(figures.value().operations, 7U);
    EXPECT_EQ(figures.value().failed, 0U);
    EXPECT_EQ(figures.value().peak_requested_bytes, 7 * kMiB);
    EXPECT_GE(figures.value().peak_held_bytes, 7 * kMiB);
    const auto create = static_cast<std::size_t>(DriverOperation::create);
    EXPECT_EQ(figures.value().driver[create].calls > 0, pass == 0);
    EXPECT_EQ(figures.value().driver[create].ns > 0, pass == 0);
  }
  EXPECT_EQ(run.value()->mismatches().value().words, 0U);
  EXPECT_EQ(run.value()->find_fault(), "");
}

TEST(GpuReplayRun, EachWayOfPlayingEndsWithoutAFault) {
  const tools::Trace trace = small_trace();
  Setting setting = find_setting("off");
  for (int way = 0; way < 16; ++way) {
    setting.maintains_inline = (way & 1) != 0;
    setting.honours_completions = (way & 2) != 0;
    setting.is_paced = (way & 4) != 0;
    setting.is_tight = (way & 8) != 0;
    auto run = TraceRun::open(trace, setting, Mode::busy, simulated_place());
    ASSERT_TRUE(run.ok()) << run.error().message;
    const auto figures = run.value()->play();
    ASSERT_TRUE(figures.ok()) << figures.error().message;
    EXPECT_EQ(figures.value().failed, 0U);
    EXPECT_EQ(run.value()->mismatches().value().words, 0U);
    EXPECT_EQ(run.value()->find_fault(), "");
  }
}

TEST(GpuReplayRun, AModelledPassRepeatsExactly) {
  const tools::Trace trace = small_trace();
  std::string first;
  for (int time = 0; time < 2; ++time) {
    auto run = TraceRun::open(trace, find_setting("off"), Mode::modelled, simulated_place());
    ASSERT_TRUE(run.ok());
    auto figures = run.value()->play();
    ASSERT_TRUE(figures.ok());
    figures.value().seconds = 0;  // of the host
    TraceFigures all;
    all.runs[0] = RunFigures();
    all.runs[0]->passes.push_back(figures.value());
    const std::string text = to_json(all).dump();
    EXPECT_EQ(text, time == 0 ? text : first);
    first = text;
  }
}

TEST(GpuReplayRun, WhatIsRequestedAtThePeakDependsOnCompletions) {
  const tools::Trace trace = small_trace();
  EXPECT_EQ(peak_requested_bytes(tools::make_plan(trace, {}).value()), 7 * kMiB);
  const auto parsed = tools::parse_trace("late", "a 1 4096 0 1\nf 1 1\na 2 4096 0 1\nc 1 1\n");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(peak_requested_bytes(tools::make_plan(parsed.value(), {}).value()), 4096U);
  EXPECT_EQ(peak_requested_bytes(tools::make_plan(parsed.value(), {true, 1}).value()), 8192U);
}

}  // namespace
}  // namespace gpupool::gpu_tests
