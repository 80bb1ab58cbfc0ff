// What --serve shows of a replay: numbers at a place are those of a replay that stops there.
#include "tools/serve/recording.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "exporter/http/query.h"
#include "tests/support/units.h"
#include "tools/replay/session.h"
#include "tools/serve/positions.h"
#include "tools/serve/recorded_job.h"

namespace gpupool::tools {
namespace {

ReplayOptions options(Recycling recycling = Recycling::eager, std::uint64_t capacity = 0) {
  ReplayOptions result;
  result.device = DeviceChoice::simulated;
  result.runtime.recycling = recycling;
  if (capacity != 0) result.capacity_bytes = capacity;
  return result;
}

Trace sample_trace() { return load_trace(GPUPOOL_TEST_DATA "/fsdp_streams-s1.trace.gz").value(); }

/// 256 blocks of 1 MiB, of which every other one is freed, one a millisecond: half of each page is
/// then in use. At last a request that would fit if what is free lay together.
Trace sawtooth() {
  std::string text;
  for (int i = 0; i < 256; ++i) text += "a " + std::to_string(i) + " 1048576 0 1000\n";
  for (int i = 0; i < 256; i += 2) text += "f " + std::to_string(i) + " 1000\n";
  text += "a 300 33554432 0 1000\nf 300 1000\n";
  return parse_trace("sawtooth", text).value();
}

Recording record(const Trace& trace, const ReplayOptions& settings) {
  return make_recording(trace, make_plan(trace, {}).value(), settings).value();
}

/// All that has nothing to do with the wall clock.
std::vector<std::uint64_t> numbers(const StatsV1& stats) {
  return {stats.time_ns - stats.start_time_ns,
          stats.requests,
          stats.hits,
          stats.frees,
          stats.failures,
          stats.fallbacks,
          stats.driver_calls,
          stats.held_bytes,
          stats.live_requested_bytes,
          stats.cached_bytes,
          stats.pending_bytes,
          stats.free_bytes,
          stats.peak_held_bytes,
          stats.pages_recycled,
          stats.largest_free_block_bytes,
          stats.largest_satisfiable_bytes,
          stats.live_blocks};
}

/// A replay that plays the first operations alone.
std::vector<std::uint64_t> stopped_at(const Trace& trace, std::uint64_t operation) {
  std::vector<Step> steps = make_plan(trace, {}).value();
  std::uint64_t done = 0;
  const auto end = std::ranges::find_if(steps, [&](const Step& step) {
    if (done == operation) return true;
    done += step.kind == StepKind::maintain ? 0 : 1;
    return false;
  });
  steps.erase(end, steps.end());
  auto played = Session::open(trace, steps, options());
  played.value()->play(std::max<std::uint64_t>(operation, 1));
  std::vector<std::uint64_t> seen = numbers(played.value()->pool().stats());
  played.value()->end_pass();
  return seen;
}

TEST(Positions, ShowWhatAReplayThatStopsThereHas) {
  const Trace trace = sample_trace();
  const std::vector<Step> steps = make_plan(trace, {}).value();
  Positions positions(trace, steps, options());
  // Forth, back, to where it is, more places than are kept, and from end to end.
  for (const std::uint64_t place :
       {0, 5000, 4999, 5000, 20000, 1, 12345, 777, 30000, 5001, 33929}) {
    std::vector<std::uint64_t> seen;
    std::uint64_t events = 0;
    ASSERT_TRUE(positions
                    .look(place,
                          [&](const Positions::View& view) {
                            seen = numbers(view.pool.stats());
                            events = view.events.last_number();
                          })
                    .ok());
    EXPECT_EQ(seen, stopped_at(trace, place)) << "at " << place;
    EXPECT_EQ(events > 0, place > 0);
  }
}

TEST(Recording, HasTheWholeJobInEqualSteps) {
  const Trace trace = sample_trace();
  const Recording recording = record(trace, options());
  EXPECT_EQ(recording.operations, trace.operation_count);
  EXPECT_EQ(recording.name, "fsdp_streams-s1");
  EXPECT_TRUE(recording.has_time);
  ASSERT_GT(recording.samples.size(), kMaxSamples / 2);
  ASSERT_LE(recording.samples.size(), kMaxSamples + 1);
  EXPECT_EQ(recording.samples.front().operation, 0U);
  EXPECT_EQ(recording.samples.back().operation, recording.operations);
  for (std::size_t i = 1; i < recording.samples.size(); ++i) {
    const Sample& sample = recording.samples[i];
    EXPECT_LE(sample.operation - recording.samples[i - 1].operation, recording.stride);
    EXPECT_GE(sample.time_ns, recording.samples[i - 1].time_ns);
  }
  // The first column of the history, of any place.
  const Sample& some = recording.samples[321];
  EXPECT_EQ(static_cast<std::uint64_t>(some.columns[0]), stopped_at(trace, some.operation)[7]);
}

TEST(Recording, ThePeakIsWhereItIsFirstReached) {
  const Trace trace = sample_trace();
  const Recording recording = record(trace, options());
  const Moment& peak = recording.peak_held;
  ASSERT_GT(peak.operation, 0U);
  constexpr std::size_t kPeakHeld = 12;
  EXPECT_EQ(static_cast<double>(stopped_at(trace, recording.operations)[kPeakHeld]), peak.value);
  EXPECT_EQ(static_cast<double>(stopped_at(trace, peak.operation)[kPeakHeld]), peak.value);
  EXPECT_LT(static_cast<double>(stopped_at(trace, peak.operation - 1)[kPeakHeld]), peak.value);
}

TEST(Recording, ARequestThatFailsIsMarkedAndFragmentationHasABirth) {
  const Trace trace = sawtooth();
  const Recording recording = record(trace, options(Recycling::off, 256 * kMiB));
  EXPECT_EQ(recording.measure, FragmentationMeasure::ratio);
  ASSERT_EQ(recording.failures.count, 1U);
  EXPECT_EQ(recording.failures.first.at(0).operation, 385U);
  EXPECT_EQ(recording.failures.first.at(0).bytes, 32 * kMiB);
  EXPECT_EQ(recording.failures.first.at(0).time_ns, 385 * kMaintainPeriodNs);
  // Freed blocks of this size stay in the caller's caches for a while; then they are holes.
  ASSERT_TRUE(recording.worst.has_value());
  ASSERT_TRUE(recording.birth.has_value());
  EXPECT_GT(recording.worst->value, 0.5);
  const Birth& birth = *recording.birth;
  EXPECT_GT(birth.value - birth.from, 0.4);
  EXPECT_LE(birth.operation, recording.worst->operation);
  EXPECT_GT(birth.operation, 256U) << "nothing is freed before";
  // With fewer operations than samples each has one: nowhere it rises more in so short a time.
  const std::size_t length = recording.samples.size() / kBirthShare;
  EXPECT_LE(birth.operation - birth.from_operation, length);
  const auto ratio = [&](std::size_t place) {
    constexpr std::size_t kFragmentationRatio = 14;
    return recording.samples.at(place).columns[kFragmentationRatio];
  };
  EXPECT_EQ(birth.value, ratio(birth.operation));
  EXPECT_EQ(birth.from, ratio(birth.from_operation));
  for (std::size_t end = length; end <= recording.worst->operation; ++end) {
    EXPECT_LE(ratio(end) - ratio(end - length), birth.value - birth.from);
  }
}

TEST(Recording, WhatRisesAndFallsWithEachStepIsNoBirth) {
  // Four steps whose blocks are freed in an order that leaves holes for a while, then what stays.
  std::string text;
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 200; ++i) text += "a " + std::to_string(i) + " 1048576 0 1000\n";
    for (int i = 0; i < 200; i += 2) text += "f " + std::to_string(i) + " 1000\n";
    for (int i = 1; i < 200; i += 2) text += "f " + std::to_string(i) + " 1000\n";
  }
  for (int i = 0; i < 256; ++i) text += "a " + std::to_string(i) + " 1048576 0 1000\n";
  for (int i = 0; i < 256; i += 2) text += "f " + std::to_string(i) + " 1000\n";
  const Recording recording =
      record(parse_trace("steps", text).value(), options(Recycling::off, 256 * kMiB));
  ASSERT_TRUE(recording.birth.has_value());
  EXPECT_GT(recording.birth->from_operation, 1600U + 256 - recording.stride);
}

TEST(Recording, WhereThePoolCanGrowItIsThePiecesThatCount) {
  const Trace trace = sawtooth();
  const Recording recording = record(trace, options(Recycling::off));
  EXPECT_EQ(recording.failures.count, 0U);
  EXPECT_EQ(recording.measure, FragmentationMeasure::split_free_bytes);
  ASSERT_TRUE(recording.worst.has_value());
  EXPECT_GE(recording.worst->value, 1.0 * kMiB);
}

TEST(Recording, OneOperationIsAJobToo) {
  const Recording recording = record(parse_trace("t", "a 0 8 0 0\n").value(), options());
  ASSERT_EQ(recording.samples.size(), 2U);
  EXPECT_EQ(recording.peak_held.operation, 1U);
  EXPECT_EQ(recording.stride, 1U);
}

TEST(Recording, OfSevenHundredFailuresTheFirstAreKept) {
  std::string text;
  for (int i = 0; i < 700; ++i) text += "a " + std::to_string(i) + " 1073741824 0 0\n";
  const Recording recording =
      record(parse_trace("t", text).value(), options(Recycling::eager, 64 * kMiB));
  EXPECT_EQ(recording.failures.count, 700U);
  EXPECT_EQ(recording.failures.first.size(), kMaxMarks);
  EXPECT_EQ(recording.failures.first.back().operation, kMaxMarks);
}

class JobTest : public testing::Test {
 protected:
  nlohmann::json ask(const RecordedSource& source, const std::string& query) {
    auto document = source(parse(query));
    EXPECT_TRUE(document.ok()) << document.error();
    return nlohmann::json::parse(document.value().body);
  }
  static internal::Query parse(const std::string& text) {
    static constexpr std::string_view kKnown[] = {"at", "bytes", "stream", "since"};
    return internal::Query::parse(text, kKnown).value();
  }

  std::unique_ptr<RecordedJob> job_ =
      RecordedJob::create(sawtooth(), options(Recycling::off, 256 * kMiB)).value();
  RecordedSources sources_ = job_->sources();
};

TEST_F(JobTest, AnswersAsTheExporterDoesOfEachPlace) {
  const auto stats = ask(sources_.stats, "at=256").at("stats");
  EXPECT_EQ(stats.at("live_requested_bytes"), 256 * kMiB);
  EXPECT_EQ(stats.at("start_unix_ns"), 0);
  EXPECT_EQ(ask(sources_.snapshot, "at=256").at("states").at(0).at("blocks"), 256);
  EXPECT_EQ(ask(sources_.snapshot, "at=256").at("time_ms"), 256);
  EXPECT_EQ(ask(sources_.snapshot, "at=10").at("states").at(0).at("blocks"), 10);
  EXPECT_EQ(ask(sources_.stats, "").at("stats").at("failures"), 1) << "the end unless told";
  EXPECT_EQ(ask(sources_.stats, "at=384").at("stats").at("failures"), 0);
  EXPECT_EQ(ask(sources_.last_failure, "at=385").at("requested_bytes"), 32 * kMiB);
  EXPECT_EQ(ask(sources_.last_failure, "at=384").at("happened"), false);
  EXPECT_EQ(ask(sources_.would_fit, "at=384&bytes=33554432").at("fit"), "no");
  EXPECT_EQ(ask(sources_.would_fit, "at=0&bytes=33554432").at("fit"), "by_growth");
  const auto events = ask(sources_.events, "at=385").at("events");
  ASSERT_FALSE(events.empty());
  EXPECT_TRUE(std::ranges::any_of(events, [](const auto& event) {
    return event.at("kind") == "failure" && event.at("time_ms") == 385;
  }));
}

TEST_F(JobTest, HistoryAndRecordingAreOfTheWholeJob) {
  const auto history = ask(sources_.history, "");
  const std::size_t rows = history.at("time_ms").size();
  EXPECT_EQ(rows, 387U);
  for (const auto& column : history.at("columns")) EXPECT_EQ(column.size(), rows);
  EXPECT_EQ(history.at("columns").at("operation").at(386), 386);
  const auto recording = ask(sources_.recording, "");
  EXPECT_EQ(recording.at("operations"), 386);
  EXPECT_EQ(recording.at("failures").at("first").at(0).at("operation"), 385);
  EXPECT_EQ(recording.at("measure"), "fragmentation_ratio");
}

TEST_F(JobTest, APlaceThatIsNotThereIsAnError) {
  EXPECT_EQ(sources_.stats(parse("at=387")).error(),
            "parameter 'at' is 387; the recording has operations 0 to 386");
  EXPECT_EQ(sources_.snapshot(parse("at=-1")).error(),
            "parameter 'at' is '-1'; allowed is a whole number");
  EXPECT_FALSE(sources_.would_fit(parse("at=1")).ok());
}

}  // namespace
}  // namespace gpupool::tools
