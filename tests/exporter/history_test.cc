// The rings of the past, in virtual time, and their JSON.
#include "exporter/metrics/history.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "exporter/http/history_json.h"
#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/support/units.h"

namespace gpupool::internal {
namespace {

using nlohmann::json;

constexpr std::uint64_t kStartUnixNs = 1'700'000'000 * kSecondNs;
constexpr std::uint64_t kStartMs = kStartUnixNs / 1'000'000;

StatsV1 stats_at(std::uint64_t time_ns) {
  StatsV1 stats;
  stats.time_ns = time_ns;
  stats.start_unix_ns = kStartUnixNs;
  stats.held_bytes = time_ns;
  return stats;
}

json ask(const History& history, std::string_view query) {
  static constexpr std::string_view kKnown[] = {"since", "resolution"};
  const auto document = history_document(history, Query::parse(query, kKnown).value());
  return json::parse(document.value().body);
}

TEST(HistoryTest, KeepsTheFirstSnapshotOfEachSecondAndOfEachFifteen) {
  History history;
  for (std::uint64_t ms = 0; ms < 60'000; ms += 100) history.add(stats_at(ms * 1'000'000));
  const auto fine = history.rows_since(0, Resolution::fine);
  ASSERT_EQ(fine.count(), 60u);
  for (std::size_t row = 0; row < 60; ++row) {
    EXPECT_EQ(fine.at(row, 0), static_cast<double>(kStartMs + row * 1000));
    EXPECT_EQ(fine.at(row, 1), static_cast<double>(row * kSecondNs));  // held_bytes
  }
  const auto coarse = history.rows_since(0, Resolution::coarse);
  ASSERT_EQ(coarse.count(), 4u);
  EXPECT_EQ(coarse.at(3, 0), static_cast<double>(kStartMs + 45'000));
}

TEST(HistoryTest, ADayPassesAndTheRingsHoldWhatTheyAreFor) {
  History history;
  constexpr std::uint64_t kSeconds = 30 * 3600;
  for (std::uint64_t second = 0; second < kSeconds; ++second) {
    history.add(stats_at(second * kSecondNs));
  }
  const auto fine = history.rows_since(0, Resolution::fine);
  ASSERT_EQ(fine.count(), History::kFineRows);
  EXPECT_EQ(fine.at(0, 0), static_cast<double>(kStartMs + (kSeconds - 900) * 1000));
  EXPECT_EQ(fine.at(899, 0), static_cast<double>(kStartMs + (kSeconds - 1) * 1000));
  const auto coarse = history.rows_since(0, Resolution::coarse);
  ASSERT_EQ(coarse.count(), History::kCoarseRows);
  EXPECT_EQ(coarse.at(5759, 0) - coarse.at(0, 0), 5759 * 15'000.0);
  std::printf("  %zu columns, %zu bytes\n", history_columns().size(), history.bytes());
  EXPECT_LT(history.bytes(), 2'000'000u);
  EXPECT_GE(history_columns().size(), 35u);
}

TEST(HistoryTest, OnlyWhatIsLaterIsGivenAgain) {
  History history;
  EXPECT_EQ(ask(history, "since=5")["time_ms"].size(), 0u);
  for (std::uint64_t second = 0; second < 10; ++second) history.add(stats_at(second * kSecondNs));
  EXPECT_EQ(ask(history, "")["time_ms"].size(), 10u);
  const std::string last = std::to_string(kStartMs + 8'000);
  EXPECT_EQ(ask(history, "since=" + last)["time_ms"], json::array({kStartMs + 9'000}));
  EXPECT_EQ(ask(history, "since=" + std::to_string(kStartMs + 9'000))["time_ms"].size(), 0u);
  // Nothing that stands still, or goes back, makes a row.
  history.add(stats_at(9 * kSecondNs));
  history.add(stats_at(3 * kSecondNs));
  EXPECT_EQ(ask(history, "")["time_ms"].size(), 10u);
}

TEST(HistoryTest, APauseIsAGapInTime) {
  History history;
  history.add(stats_at(0));
  history.add(stats_at(100 * kSecondNs));
  EXPECT_EQ(ask(history, "")["time_ms"], json::array({kStartMs, kStartMs + 100'000}));
}

TEST(HistoryTest, TheJsonHasASchemaAndColumnsOfEqualLength) {
  History history;
  for (std::uint64_t second = 0; second < 40; ++second) history.add(stats_at(second * kSecondNs));
  for (const auto& [query, rows, seconds] :
       {std::tuple("", 40u, 1), std::tuple("resolution=1s", 40u, 1),
        std::tuple("resolution=15s", 3u, 15)}) {
    const json answer = ask(history, query);
    EXPECT_EQ(answer["schema"], "gpupool.history");
    EXPECT_EQ(answer["version"], 1);
    EXPECT_EQ(answer["resolution_seconds"], seconds);
    EXPECT_EQ(answer["columns"].size(), history_columns().size());
    for (const json& column : answer["columns"]) EXPECT_EQ(column.size(), rows);
  }
  static constexpr std::string_view kKnown[] = {"since", "resolution"};
  for (const char* query : {"resolution=2s", "resolution=", "since=x"}) {
    EXPECT_FALSE(history_document(history, Query::parse(query, kKnown).value()).ok()) << query;
  }
}

TEST(HistoryTest, APoolOnAVirtualClockHasAVirtualHistory) {
  VirtualClock clock;
  SimulatedBackend backend({.capacity_bytes = std::uint64_t{1} << 30});
  PoolOptions options;
  options.clock = &clock;
  const auto pool = Pool::create(backend, options).value();
  History history;
  for (int second = 0; second < 20; ++second) {
    EXPECT_TRUE(pool->allocate(1000, RawStream{}).ok());
    history.add(pool->stats());
    clock.advance_ns(kSecondNs);
  }
  const json answer = ask(history, "");
  ASSERT_EQ(answer["time_ms"].size(), 20u);
  for (std::size_t i = 1; i < 20; ++i) {
    EXPECT_EQ(answer["time_ms"][i].get<std::uint64_t>(),
              answer["time_ms"][0].get<std::uint64_t>() + i * 1000);
  }
  EXPECT_EQ(answer["columns"]["requests"][19], 20);
}

}  // namespace
}  // namespace gpupool::internal
