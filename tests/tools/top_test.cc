// What `gpupool top` makes of the API's answers, and of what it is given.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/top/address.h"
#include "tools/top/rank.h"
#include "tools/top/view.h"

namespace gpupool::tools {
namespace {

using nlohmann::json;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

std::vector<std::string> bases(std::string_view text) {
  std::vector<std::string> found;
  const auto parsed = parse_addresses(text);
  EXPECT_TRUE(parsed.ok()) << parsed.error();
  for (const Address& address : parsed.value()) found.push_back(address.base);
  return found;
}

TEST(TopAddress, AllFormsOfAnAddress) {
  using List = std::vector<std::string>;
  EXPECT_EQ(bases("node7"), List{"http://node7:10064"});
  EXPECT_EQ(bases("node7:80"), List{"http://node7:80"});
  EXPECT_EQ(bases("http://node7:80/"), List{"http://node7:80"});
  EXPECT_EQ(bases("https://proxy"), List{"https://proxy:10064"});
  EXPECT_EQ(bases("[::1]"), List{"http://[::1]:10064"});
  EXPECT_EQ(bases("[::1]:7-8"), (List{"http://[::1]:7", "http://[::1]:8"}));
  EXPECT_EQ(bases("http://me:word@node:9"), List{"http://me:word@node:9"});
  EXPECT_EQ(parse_addresses("http://me:word@node:9").value()[0].name, "node:9");
  EXPECT_EQ(bases("node:10064-10127").size(), 64u);
}

TEST(TopAddress, WhatIsNoAddressIsSaid) {
  for (const char* text :
       {"", ":1", "a:", "a:0", "a:65536", "a:2-1", "a:1-65", "a:1-", "a:010", "::1", "a/b",
        "ftp://a", "http://", "a b", "[::1", "[]:1", "a:1/metrics", "file:///etc/passwd"}) {
    EXPECT_FALSE(parse_addresses(text).ok()) << text;
  }
}

json stats_answer() {
  return {{"schema", "gpupool.stats"},
          {"version", 1},
          {"process", {{"host", "a"}, {"rank", 3}}},
          {"stats",
           {{"held_bytes", 6 * kGiB},
            {"live_requested_bytes", 4 * kGiB},
            {"limit_bytes", 8 * kGiB},
            {"limit_in_force_bytes", 8 * kGiB},
            {"largest_satisfiable_bytes", 2 * kGiB},
            {"window_peak_requested_bytes", 5 * kGiB},
            {"fragmentation_ratio", 0.25},
            {"failures", 0},
            {"fallbacks", 0},
            {"requests", 1000},
            {"time_ns", 1'000'000'000'000},
            {"threshold_required_block_bytes", 0},
            {"device_total_bytes", 80 * kGiB},
            {"device_free_bytes", 10 * kGiB},
            {"threshold_critical_fragmentation_ratio", 0.8},
            {"threshold_fragmentation_ratio", 0.5}}}};
}

json failure_of(double seconds_ago, const char* reason) {
  return {{"happened", true},
          {"reason", reason},
          {"tag", "cache"},
          {"time_ns", 1'000'000'000'000 - static_cast<std::int64_t>(seconds_ago * 1e9)},
          {"requested_bytes", 3 * kGiB},
          {"largest_satisfiable_bytes", kGiB}};
}

Rank rank_of(const json& stats, const json& failure = {{"happened", false}}) {
  auto rank = read_rank(stats.dump(), failure.dump());
  EXPECT_TRUE(rank.ok()) << rank.error();
  return std::move(rank).value();
}

TEST(TopRank, EachHealthHasItsReason) {
  json answer = stats_answer();
  json& stats = answer["stats"];
  Rank rank = rank_of(answer);
  EXPECT_EQ(rank.health, Health::ok);
  EXPECT_EQ(rank.reason, "");
  EXPECT_EQ(rank.rank, "3");
  EXPECT_DOUBLE_EQ(rank.headroom(), 0.375);

  stats["fragmentation_ratio"] = 0.6;
  EXPECT_EQ(rank_of(answer).health, Health::fragmented);
  stats["fragmentation_ratio"] = 0.9;
  rank = rank_of(answer);
  EXPECT_EQ(rank.health, Health::at_risk);
  EXPECT_EQ(rank.reason, "fragmentation is 0.90, above 0.80: 2.00 GiB is the largest that fits");

  stats["limit_in_force_bytes"] = 7 * kGiB;
  stats["device_free_bytes"] = kGiB;
  EXPECT_NE(rank_of(answer).reason.find("the device has 1.00 GiB free, under 3 %"),
            std::string::npos);
  stats["limit_in_force_bytes"] = 4 * kGiB;
  EXPECT_NE(rank_of(answer).reason.find("no longer fits into 4.00 GiB"), std::string::npos);
  EXPECT_EQ(rank_of(answer).headroom(), 0);
  stats["threshold_required_block_bytes"] = 3 * kGiB;
  EXPECT_NE(rank_of(answer).reason.find("the next request of 3.00 GiB"), std::string::npos);

  rank = rank_of(answer, failure_of(30, "fragmented"));
  EXPECT_EQ(rank.health, Health::out_of_memory);
  EXPECT_EQ(rank.reason,
            "30 s ago a request of 3.00 GiB for cache failed (fragmented): 1.00 GiB was the largest"
            " to work");
}

TEST(TopRank, OnlyAFreshFailureForWantOfMemoryDecides) {
  EXPECT_EQ(rank_of(stats_answer(), failure_of(599, "budget")).health, Health::out_of_memory);
  EXPECT_EQ(rank_of(stats_answer(), failure_of(601, "budget")).health, Health::ok);
  EXPECT_EQ(rank_of(stats_answer(), failure_of(1, "invalid")).health, Health::ok);
  EXPECT_EQ(rank_of(stats_answer(), failure_of(1, "driver")).health, Health::ok);
}

TEST(TopRank, AnotherAnswerIsAnError) {
  const std::string none = R"({"happened":false})";
  json answer = stats_answer();
  answer["version"] = 2;
  EXPECT_NE(read_rank(answer.dump(), none).error().find("of version 2"), std::string::npos);
  answer = stats_answer();
  answer["stats"]["requests"] = "many";
  EXPECT_FALSE(read_rank(answer.dump(), none).ok());
  answer["stats"].erase("requests");
  EXPECT_FALSE(read_rank(answer.dump(), none).ok());
  for (const char* text : {"", "<html>", "[]", "{}", "{\"schema\":1}"}) {
    EXPECT_FALSE(read_rank(text, none).ok()) << text;
    EXPECT_FALSE(read_rank(stats_answer().dump(), text).ok() && text[0] != '{') << text;
    EXPECT_FALSE(read_pools(text).ok()) << text;
    EXPECT_EQ(full_in_seconds(text), std::nullopt) << text;
  }
  const auto pools = read_pools(R"({"pools":[{"pool":"a","device":1}]})");
  ASSERT_TRUE(pools.ok());
  EXPECT_EQ(pools.value()[0].name, "a");
  EXPECT_EQ(pools.value()[0].device, 1u);
}

/// A row each 15 s.
std::string history_of(const std::vector<double>& peaks, double limit) {
  json times = json::array();
  for (std::size_t i = 0; i < peaks.size(); ++i) times.push_back(15'000 * i);
  return json({{"schema", "gpupool.history"},
               {"version", 1},
               {"time_ms", times},
               {"columns",
                {{"window_peak_requested_bytes", peaks},
                 {"limit_in_force_bytes", std::vector<double>(peaks.size(), limit)}}}})
      .dump();
}

TEST(TopRank, FullInIsTheGrowthOfThePeaks) {
  std::vector<double> peaks;
  for (int i = 0; i < 60; ++i) peaks.push_back(1000 + 10 * i);  // 2/3 a second, up to 1590
  const auto full = full_in_seconds(history_of(peaks, 2000));
  ASSERT_TRUE(full.has_value());
  EXPECT_NEAR(*full, (2000 - 1590) / (10 / 15.0), 20);
  EXPECT_EQ(full_in_seconds(history_of(peaks, 1000)), 0);
  EXPECT_EQ(full_in_seconds(history_of(std::vector<double>(60, 1000), 2000)), std::nullopt);
  EXPECT_EQ(full_in_seconds(history_of({1, 2, 3}, 2000)), std::nullopt);  // too short
  peaks.back() = 10;
  peaks[30] = 5000;  // a peak that is past is no growth
  EXPECT_EQ(full_in_seconds(history_of(peaks, 9000)), std::nullopt);
}

Rank of(Health health, const char* where, std::optional<double> full, std::uint64_t peak) {
  Rank rank;
  rank.where = where;
  rank.health = health;
  rank.reason = health == Health::ok ? "" : "because";
  rank.full_in_s = full;
  rank.limit_bytes = 100 * kGiB;
  rank.peak_bytes = peak;
  return rank;
}

TEST(TopView, WhoFailsFirstStandsFirst) {
  const Rank memory = of(Health::out_of_memory, "a:1", std::nullopt, kGiB);
  const Rank silent = of(Health::no_answer, "b:1", std::nullopt, 0);
  const Rank soon = of(Health::ok, "c:1", 60.0, kGiB);
  const Rank later = of(Health::ok, "d:1", 7200.0, 9 * kGiB);
  const Rank tight = of(Health::ok, "e:1", std::nullopt, 90 * kGiB);
  const Rank roomy = of(Health::ok, "f:1", std::nullopt, 10 * kGiB);
  const std::vector<Rank> order = {memory, silent, soon, later, tight, roomy};
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t j = 0; j < order.size(); ++j) {
      EXPECT_EQ(fails_before(order[i], order[j]), i < j) << i << " " << j;
    }
  }
  const std::string text = top_text(order, Terminal{}, 0);
  EXPECT_TRUE(text.starts_with("6 pools: 1 OUT OF MEMORY, 1 no answer, 4 ok\n")) << text;
  EXPECT_NE(text.find("60 s"), std::string::npos);
  EXPECT_NE(text.find("2.0 h"), std::string::npos);
  EXPECT_NE(text.find("     because\n"), std::string::npos);
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

TEST(TopView, FitsIntoTheTerminal) {
  std::vector<Rank> ranks(40, of(Health::at_risk, "somewhere:10064", std::nullopt, kGiB));
  for (Rank& rank : ranks) rank.reason = std::string(300, 'x');
  for (const std::size_t columns : {80u, 100u, 200u}) {
    const Terminal terminal{.is_terminal = true, .columns = columns, .lines = 24};
    const std::string text = top_text(ranks, terminal, 24);
    std::size_t lines = 0;
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos;
         end = text.find('\n', begin)) {
      EXPECT_LE(end - begin, columns) << text;
      begin = end + 1;
      ++lines;
    }
    EXPECT_LE(lines, 23u);  // a line is left for what stands below
    EXPECT_NE(text.find("more, which are no worse"), std::string::npos);
  }
}

}  // namespace
}  // namespace gpupool::tools
