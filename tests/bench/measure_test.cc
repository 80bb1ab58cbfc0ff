// The measuring loops: against a system that counts what it is asked for, and against the pool on
// the simulated device.
#include "bench/peers/measure.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "bench/peers/gpupool_system.h"
#include "tests/support/units.h"

namespace gpupool::bench {
namespace {

/// What a CountingSystem was asked for; shared, since measurements open systems themselves.
struct Record {
  std::mutex mutex;
  std::map<void*, std::size_t> live;
  std::uint64_t allocations = 0;
  std::uint64_t wrong_frees = 0;  // not live, or with another size
  std::uint64_t advanced_ns = 0;
  std::uint64_t emptied = 0;
  std::uint64_t opened = 0;
  std::uint64_t fail_every = 0;  // 0: never
  bool throws = false;
};
Record* record = nullptr;

class CountingSystem {
 public:
  using Stream = std::uint64_t;
  static constexpr bool kIsMaintained = true;
  static constexpr std::uint64_t kMaxTraceSteps = kWholeTrace;

  static Result<std::unique_ptr<CountingSystem>, Status> open(const SystemSetting& setting) {
    ++record->opened;
    auto system = std::make_unique<CountingSystem>();
    system->streams_ = setting.streams;
    return system;
  }
  const std::vector<Stream>& streams() const { return streams_; }
  void* allocate(std::size_t bytes, Stream /*stream*/) {
    if (record->throws) throw std::runtime_error("no more");
    const std::lock_guard lock(record->mutex);
    ++record->allocations;
    if (record->fail_every != 0 && record->allocations % record->fail_every == 0) return nullptr;
    void* const block = reinterpret_cast<void*>(record->allocations * 16);
    record->live[block] = bytes;
    return block;
  }
  bool deallocate(void* pointer, std::size_t bytes, Stream /*stream*/) {
    const std::lock_guard lock(record->mutex);
    if (pointer == nullptr) return true;
    const auto found = record->live.find(pointer);
    if (found == record->live.end() || found->second != bytes) {
      ++record->wrong_frees;
      return false;
    }
    record->live.erase(found);
    return true;
  }
  Usage usage() const {
    Usage usage;
    std::uint64_t bytes = 0;
    for (const auto& block : record->live) bytes += block.second;
    usage.held_bytes = bytes;  // and no peak: the measurement has to find it
    usage.driver_allocations = record->allocations;
    return usage;
  }
  void reset_peak() {}
  void advance(std::uint64_t ns) { record->advanced_ns += ns; }
  void end_pass() {}
  void empty() { ++record->emptied; }

 private:
  std::vector<Stream> streams_;
};

class Measure : public testing::Test {
 protected:
  void SetUp() override { record = &record_; }
  void TearDown() override { record = nullptr; }

  static Plan small_plan() {
    Plan plan;
    plan.device = tools::DeviceChoice::simulated;
    plan.pair_bytes = {512, kMiB};
    plan.pair_rounds = 3;
    plan.pair_round_time = std::chrono::microseconds(200);
    plan.thread_counts = {1, 3};
    plan.thread_rounds = 1;
    plan.thread_time = std::chrono::milliseconds(2);
    plan.burst_blocks = 50;
    plan.burst_warm_rounds = 2;
    plan.trace_warm_up_passes = 1;
    plan.trace_passes = 2;
    return plan;
  }
  static TracePlan trace_of(const std::string& text) {
    const auto trace = tools::parse_trace("small.trace", text);
    EXPECT_TRUE(trace.ok()) << trace.error().message;
    return make_trace_plan(trace.value()).value();
  }

  Record record_;
};

// Two blocks are live at once and one is left at the end; 3 ms pass.
constexpr char kSmallTrace[] =
    "a 1 1000 0 0\n"
    "a 2 0 0 1000\n"
    "f 2 0\n"
    "a 3 3000 7 2000\n"
    "f 1 0\n"
    "a 4 500 7 0\n"
    "f 3 0\n";

TEST_F(Measure, AllThatIsAllocatedIsFreedWithItsSize) {
  Plan plan = small_plan();
  plan.traces.push_back(trace_of(kSmallTrace));
  const SystemResult result = measure_system<CountingSystem>("counting", plan);
  EXPECT_EQ(result.error, "");
  EXPECT_TRUE(record_.live.empty());
  EXPECT_EQ(record_.wrong_frees, 0U);
  EXPECT_EQ(record_.opened, 2U) << "one for the hot path, one for the trace";
  ASSERT_EQ(result.pairs.size(), 2U);
  EXPECT_EQ(result.pairs[1].bytes, kMiB);
  EXPECT_GT(result.pairs[0].ns_least, 0);
  EXPECT_GE(result.pairs[0].ns_median, result.pairs[0].ns_least);
  ASSERT_EQ(result.threads.size(), 2U);
  EXPECT_EQ(result.threads[1].threads, 3U);
  EXPECT_GT(result.threads[1].million_pairs_per_second, 0);
  ASSERT_TRUE(result.burst.has_value());
  EXPECT_EQ(result.burst->warm_rounds, 2U);
  EXPECT_GT(result.burst->cold.total_ms, 0);
}

TEST_F(Measure, APassOverATraceIsCountedAsItWasRecorded) {
  Plan plan;
  plan.trace_warm_up_passes = 1;
  plan.trace_passes = 2;
  plan.traces.push_back(trace_of(kSmallTrace));
  const SystemResult result = measure_system<CountingSystem>("counting", plan);
  ASSERT_EQ(result.traces.size(), 1U);
  const TraceResult& trace = result.traces[0];
  EXPECT_EQ(trace.operations, 5U) << "the request of 0 bytes and its free are left out";
  EXPECT_EQ(trace.passes, 2U);
  EXPECT_EQ(trace.failed, 0U);
  EXPECT_EQ(trace.peak_requested_bytes, 4000U);
  EXPECT_EQ(trace.peak_held_bytes, 4000U) << "found by asking, in a pass of its own";
  EXPECT_EQ(trace.driver_allocations_cold, 3U);
  EXPECT_EQ(trace.driver_allocations_warm, 3U);
  EXPECT_FALSE(trace.driver_calls_cold.has_value());
  EXPECT_EQ(record_.advanced_ns, 3 * 3'000'000U) << "3 ms in each of the three timed passes";
}

TEST_F(Measure, FailedRequestsAreCounted) {
  record_.fail_every = 10;
  Plan plan = small_plan();
  const SystemResult result = measure_system<CountingSystem>("counting", plan);
  EXPECT_GT(result.pairs[0].failed, 0U);
  EXPECT_GT(result.threads[1].failed, 0U);
  EXPECT_EQ(result.burst->failed, 15U) << "a tenth of three rounds of 50";
  EXPECT_EQ(record_.wrong_frees, 0U);
}

TEST_F(Measure, AnExceptionOfAPeerIsItsResult) {
  record_.throws = true;
  Plan plan;
  plan.pair_bytes = {512};
  EXPECT_EQ(measure_system<CountingSystem>("counting", plan).error, "no more");
}

TEST_F(Measure, ASlowPassEndsTheTraceOnceThereIsAFigure) {
  Plan plan;
  plan.trace_time = std::chrono::nanoseconds(0);
  plan.traces.push_back(trace_of(kSmallTrace));
  const SystemResult result = measure_system<CountingSystem>("counting", plan);
  EXPECT_EQ(result.traces.at(0).passes, 1U);
}

template <class S>
class GpupoolMeasured : public testing::Test {};
using EachWayIn = testing::Types<GpupoolByRef, GpupoolByHandle, GpupoolStaying, GpupoolServed>;
TYPED_TEST_SUITE(GpupoolMeasured, EachWayIn);

TYPED_TEST(GpupoolMeasured, NothingFailsAndAWarmPassTakesNothingOrHardlyMore) {
  Plan plan;
  plan.device = tools::DeviceChoice::simulated;
  plan.pair_bytes = {512, 16 * kMiB};
  plan.pair_rounds = 1;
  plan.pair_round_time = std::chrono::microseconds(200);
  plan.thread_counts = {2};
  plan.thread_rounds = 1;
  plan.thread_time = std::chrono::milliseconds(2);
  plan.burst_blocks = 64;
  plan.trace_passes = 1;
  const auto trace = tools::load_trace(GPUPOOL_TEST_DATA "/fsdp_streams-s1.trace.gz");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  plan.traces.push_back(make_trace_plan(trace.value()).value());
  const SystemResult result = measure_system<TypeParam>("gpupool", plan);
  EXPECT_EQ(result.error, "");
  for (const PairResult& pair : result.pairs) EXPECT_EQ(pair.failed, 0U) << pair.bytes;
  EXPECT_EQ(result.threads.at(0).failed, 0U);
  EXPECT_EQ(result.burst.value().failed, 0U);
  const TraceResult& played = result.traces.at(0);
  EXPECT_EQ(played.operations, trace.value().operation_count);
  EXPECT_EQ(played.failed, 0U);
  EXPECT_GT(played.driver_allocations_cold.value(), 0U);
  // Where pages move, they do in a warm pass, too; and where a thread maintains, what is known
  // complete when is its affair, and so is growth.
  if constexpr (std::is_same_v<TypeParam, GpupoolStaying>) {
    EXPECT_EQ(played.driver_allocations_warm.value(), 0U);
    EXPECT_EQ(played.driver_calls_warm.value(), 0U);
  } else if constexpr (!std::is_same_v<TypeParam, GpupoolServed>) {
    EXPECT_LE(played.driver_allocations_warm.value(), played.driver_allocations_cold.value() / 10);
  }
  EXPECT_GE(played.peak_held_bytes.value(), played.peak_requested_bytes);
}

TYPED_TEST(GpupoolMeasured, EmptyGivesEverythingBack) {
  auto opened = TypeParam::open({tools::DeviceChoice::simulated, {0, 5}, false});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  TypeParam& system = *opened.value();
  void* const block = system.allocate(40 * kMiB, system.streams().at(1));
  ASSERT_NE(block, nullptr);
  ASSERT_TRUE(system.deallocate(block, 40 * kMiB, system.streams().at(1)));
  EXPECT_GE(system.usage().held_bytes.value(), 40 * kMiB);
  system.empty();
  EXPECT_EQ(system.usage().held_bytes.value(), 0U);
}

}  // namespace
}  // namespace gpupool::bench
