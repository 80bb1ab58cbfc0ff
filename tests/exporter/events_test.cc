// The last events of the slow path: what is kept, and what is said of them.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "exporter/http/events_json.h"
#include "gpupool/exporter/event_log.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool {
namespace {

using nlohmann::json;

SlowPathEvent growth_of(std::uint64_t bytes) {
  return {.kind = SlowPathEventKind::growth, .bytes = bytes};
}

json ask(const EventLog& log, std::string_view query, bool with_details = true) {
  static constexpr std::string_view kKnown[] = {"since"};
  const auto document = internal::events_document(
      log, internal::Query::parse(query, kKnown).value(), 5'000'000, with_details);
  return json::parse(document.value().body);
}

TEST(EventLogTest, TheLastOfManyAreKept) {
  EventLog log;
  EXPECT_TRUE(log.entries_after(0).empty());
  EXPECT_EQ(log.last_number(), 0u);
  for (std::uint64_t i = 1; i <= 3; ++i) log.on_event(growth_of(i));
  EXPECT_EQ(log.entries_after(0).size(), 3u);
  for (std::uint64_t i = 4; i <= 10'000; ++i) log.on_event(growth_of(i));
  const auto entries = log.entries_after(0);
  ASSERT_EQ(entries.size(), EventLog::kEvents);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i].number, 10'000 - EventLog::kEvents + 1 + i);
    EXPECT_EQ(entries[i].event.bytes, entries[i].number);
  }
  EXPECT_EQ(log.entries_after(9'998).size(), 2u);
  EXPECT_TRUE(log.entries_after(10'000).empty());
  EXPECT_TRUE(log.entries_after(20'000).empty());
}

TEST(EventLogTest, AnotherProcessHasOtherVersions) {
  EventLog log;
  log.on_event(growth_of(1));
  const auto version_of = [&log](std::uint64_t unix_offset_ns) {
    const auto query = internal::Query::parse("", {}).value();
    return internal::events_document(log, query, unix_offset_ns, true).value().version;
  };
  EXPECT_EQ(version_of(5), version_of(5));
  EXPECT_NE(version_of(5), version_of(6));
}

TEST(EventLogTest, WithoutDetailsNoHandleIsShown) {
  EventLog log;
  FailureReport report;
  report.happened = true;
  report.stream_handle = 0xabc;
  report.pending_streams.push_back({.stream_handle = 0xabc});
  report.last_misses.push_back({.stream_handle = 0xabc});
  log.on_event({.kind = SlowPathEventKind::failure, .failed = true, .report = &report});
  EXPECT_NE(ask(log, "").dump().find("0xabc"), std::string::npos);
  EXPECT_EQ(ask(log, "", false).dump().find("0xabc"), std::string::npos);
}

TEST(EventLogTest, FailuresAreKeptLongerAndWithTheirReports) {
  EventLog log;
  FailureReport report;
  report.happened = true;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    report.requested_bytes = i;
    log.on_event(
        {.kind = SlowPathEventKind::failure, .bytes = i, .failed = true, .report = &report});
  }
  for (std::uint64_t i = 0; i < 10'000; ++i) log.on_event(growth_of(i));
  const auto entries = log.entries_after(0);
  ASSERT_EQ(entries.size(), EventLog::kEvents + EventLog::kFailures);
  for (std::size_t i = 0; i < EventLog::kFailures; ++i) {
    EXPECT_EQ(entries[i].number, 100 - EventLog::kFailures + 1 + i);
    ASSERT_NE(entries[i].failure, nullptr);
    EXPECT_EQ(entries[i].failure->requested_bytes, entries[i].number);
    EXPECT_EQ(entries[i].event.report, nullptr);
  }
  EXPECT_EQ(log.entries_after(99).size(), EventLog::kEvents + 1);
}

TEST(EventLogTest, AnEventHasTheFieldsOfItsKind) {
  EventLog log;
  log.on_event({.kind = SlowPathEventKind::driver_call,
                .time_ns = 1'000'000,
                .duration_ns = 44,
                .bytes = 2 * kMiB,
                .failed = true,
                .error = Error::backend_failure,
                .operation = DriverOperation::map});
  log.on_event(
      {.kind = SlowPathEventKind::miss, .stream_id = 3, .miss_reason = MissReason::fragmented});
  log.on_event({.kind = SlowPathEventKind::trim, .trim_reason = TrimReason::pressure});
  log.on_event(
      {.kind = SlowPathEventKind::fallback, .fallback_reason = FallbackReason::address_space});
  log.on_event({.kind = SlowPathEventKind::misuse, .misuse = Misuse::double_free});
  const json answer = ask(log, "");
  EXPECT_EQ(answer["schema"], "gpupool.events");
  EXPECT_EQ(answer["version"], 1);
  EXPECT_EQ(answer["last"], 5);
  const json& events = answer["events"];
  EXPECT_EQ(events[0], json({{"number", 1},
                             {"time_ms", 6},
                             {"kind", "driver_call"},
                             {"bytes", 2 * kMiB},
                             {"duration_ns", 44},
                             {"operation", "map"},
                             {"error", "backend_failure"}}));
  EXPECT_EQ(events[1]["reason"], "fragmented");
  EXPECT_EQ(events[1]["stream"], 3);
  EXPECT_EQ(events[2]["reason"], "pressure");
  EXPECT_EQ(events[3]["reason"], "address_space");
  EXPECT_EQ(events[4]["misuse"], "double_free");
  EXPECT_EQ(ask(log, "since=4")["events"].size(), 1u);
  EXPECT_EQ(ask(log, "since=5")["events"].size(), 0u);
}

TEST(EventLogTest, APoolTellsItOfAFailureWithAllThatIsKnown) {
  EventLog log;
  SimulatedBackend backend({.capacity_bytes = kGiB});
  PoolOptions options;
  options.observer = &log;
  const auto pool = Pool::create(backend, options).value();
  const Tag weights = pool->find_tag("weights").value();
  EXPECT_TRUE(pool->allocate({.bytes = 900 * kMiB, .tag = weights}, RawStream{}).ok());
  EXPECT_FALSE(pool->allocate({.bytes = 500 * kMiB, .tag = weights}, RawStream{}).ok());
  const json answer = ask(log, "");
  const json& last = answer["events"].back();
  EXPECT_EQ(last["kind"], "failure");
  EXPECT_EQ(last["bytes"], 500 * kMiB);
  EXPECT_EQ(last["failure"], json::parse(pool->last_failure().json()));
  EXPECT_NE(answer.dump().find("weights"), std::string::npos);
  EXPECT_EQ(ask(log, "", false).dump().find("weights"), std::string::npos);
  bool has_growth = false;
  for (const json& event : answer["events"]) has_growth |= event["kind"] == "growth";
  EXPECT_TRUE(has_growth);
}

TEST(EventLogTest, ManyThreadsWriteWhileOthersRead) {
  EventLog log;
  std::vector<std::thread> writers;
  for (int t = 0; t < 4; ++t) {
    writers.emplace_back([&log] {
      for (std::uint64_t i = 0; i < 20'000; ++i) log.on_event(growth_of(i));
    });
  }
  std::uint64_t seen = 0;
  while (seen < 80'000) {
    for (const EventLog::Entry& entry : log.entries_after(seen)) {
      EXPECT_GT(entry.number, seen);
      seen = entry.number;
    }
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(log.last_number(), 80'000u);
}

}  // namespace
}  // namespace gpupool
