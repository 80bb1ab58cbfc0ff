// `gpupool replay --find-capacity`: what it names works, and a page less does not.
#include "tools/replay/find_capacity.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/units.h"

namespace gpupool::tools {
namespace {

/// A hole of 8 MiB that the last request, of 12, does not fit into.
Trace trace_with_a_hole() {
  const std::string text =
      "a 0 8388608 0 500\n"
      "a 1 8388608 0 500\n"
      "f 0 500\n"
      "a 2 12582912 0 500\n"
      "f 1 500\n"
      "f 2 500\n";
  return parse_trace("folder/hole.trace", text).value();
}

ReplayOptions simulated() {
  ReplayOptions options;
  options.device = DeviceChoice::simulated;
  return options;
}

std::uint64_t failures_at(const Trace& trace, ReplayOptions options, std::uint64_t capacity) {
  options.capacity_bytes = capacity;
  Replayer replayer(options);
  const auto passes = replayer.play(trace, [](const Trace&, std::uint64_t) {});
  EXPECT_TRUE(passes.ok());
  std::uint64_t failed = 0;
  for (const PassResult& pass : passes.value()) failed += pass.failed;
  return failed;
}

class FindCapacityTest : public ::testing::Test {
 protected:
  FoundCapacity find(const Trace& trace, const ReplayOptions& options) {
    auto found = find_capacity(trace, options, [this](const Trace&, std::uint64_t) { ++passes_; });
    EXPECT_TRUE(found.ok()) << found.error().message;
    return std::move(found).value();
  }

  std::uint64_t passes_ = 0;
};

TEST_F(FindCapacityTest, WorksWhereAPageLessDoesNot) {
  const Trace trace = trace_with_a_hole();
  const FoundCapacity found = find(trace, simulated());
  ASSERT_EQ(found.passes.size(), 2u);
  const auto capacity = found.passes[0].smallest_capacity_bytes;
  ASSERT_TRUE(capacity.has_value());
  EXPECT_EQ(*capacity % kCapacityStep, 0u);
  EXPECT_GE(*capacity, 20 * kMiB);
  EXPECT_LE(*capacity, 28 * kMiB);
  EXPECT_EQ(failures_at(trace, simulated(), *capacity), 0u);
  if (*capacity > 20 * kMiB) {
    EXPECT_GT(failures_at(trace, simulated(), *capacity - kCapacityStep), 0u);
  }
  for (const PassResult& pass : found.passes) {
    EXPECT_EQ(pass.smallest_capacity_bytes, capacity);
    EXPECT_EQ(pass.failed, 0u);
    EXPECT_LE(pass.peak_held_bytes, *capacity);
    EXPECT_EQ(pass.peak_requested_bytes, 20 * kMiB);
  }
  EXPECT_EQ(found.setting.limit_bytes, *capacity);
  EXPECT_GT(passes_, 2u);
}

TEST_F(FindCapacityTest, ASampleHoldsToItsBounds) {
  const auto trace = load_trace(GPUPOOL_TEST_DATA "/fsdp_streams-s1.trace.gz");
  ASSERT_TRUE(trace.ok());
  const FoundCapacity found = find(trace.value(), simulated());
  const std::uint64_t capacity = found.passes[0].smallest_capacity_bytes.value();
  EXPECT_GE(capacity, found.passes[0].peak_requested_bytes);
  EXPECT_EQ(failures_at(trace.value(), simulated(), capacity), 0u);
  EXPECT_GT(failures_at(trace.value(), simulated(), capacity - kCapacityStep), 0u);
}

TEST_F(FindCapacityTest, NamesNoneWhereAllThereIsIsTooLittle) {
  ReplayOptions options = simulated();
  options.capacity_bytes = 16 * kMiB;
  const FoundCapacity found = find(trace_with_a_hole(), options);
  EXPECT_EQ(passes_, options.passes) << "and looks no further";
  EXPECT_GT(found.passes[0].failed, 0u);
  EXPECT_FALSE(found.passes[0].smallest_capacity_bytes.has_value());
}

TEST_F(FindCapacityTest, NoneIsSmallerThanTheReserve) {
  ReplayOptions options = simulated();
  options.reserve_bytes = 40 * kMiB;
  EXPECT_EQ(find(trace_with_a_hole(), options).passes[0].smallest_capacity_bytes, 40 * kMiB);
}

TEST_F(FindCapacityTest, TheSmallestPoolIsAPage) {
  const Trace trace = parse_trace("folder/small.trace", "a 0 4096 0 0\nf 0 0\n").value();
  EXPECT_EQ(find(trace, simulated()).passes[0].smallest_capacity_bytes, kCapacityStep);
}

}  // namespace
}  // namespace gpupool::tools
