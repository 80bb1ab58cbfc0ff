// What `gpupool advise` prints: table, JSON and the configuration's text.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tools/advise/report.h"
#include "tools/advise/yaml.h"

namespace gpupool::tools {
namespace {

Trace trace_called(const std::string& name) {
  Trace trace;
  trace.path = "folder/" + name + ".trace";
  trace.name = name;
  trace.operation_count = 933'477;
  trace.seconds = 56.08;
  return trace;
}

TraceCost cost(std::uint64_t held, double wait_seconds) {
  TraceCost cost;
  cost.seconds = 56.08;
  cost.peak_requested_bytes = 11'987'654'321;
  cost.peak_held_bytes = held;
  cost.cold = {2 * wait_seconds, 12.3456, 123'456};
  cost.warm = {wait_seconds, 10.3456, 103'456};
  cost.cache_hit_share = 1;
  cost.smallest_capacity_bytes = held;
  cost.smallest_capacity_wait_seconds = 12.5;
  return cost;
}

class AdviseReport : public ::testing::Test {
 protected:
  AdviseReport() {
    options_.searches_capacity = true;
    add({Recycling::eager, 0.5, AliasReuse::same_stream, 0}, 12'000'000'000, 12.5);
    add({Recycling::eager, 0.5, AliasReuse::wait, std::uint64_t{128} << 20}, 13'000'000'000, 0.1);
    add({}, 44'000'000'000, 0);
    advice_.chosen = 1;
    advice_.defaults = 2;
    advice_.with_same_stream = 0;
    advice_.unavailable = {"recycling 'pressure' is not available yet"};
  }

  void add(const Setting& setting, std::uint64_t held, double wait_seconds) {
    Trial trial;
    trial.setting = setting;
    for (std::size_t i = 0; i < traces_.size(); ++i) {
      trial.traces.push_back(cost(held, wait_seconds));
    }
    advice_.trials.push_back(trial);
  }
  std::string text() const { return to_text(advice_, traces_, options_, Terminal()); }

  std::vector<Trace> traces_ = {trace_called("serve_interleaved-s1"),
                                trace_called("resnet_multiscale-s1")};
  AdviseOptions options_;
  Advice advice_;
};

std::vector<std::string> keys_of(const nlohmann::ordered_json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  return keys;
}

TEST_F(AdviseReport, FitsIn120Columns) {
  for (const bool searches : {true, false}) {
    options_.searches_capacity = searches;
    std::istringstream lines(text());
    std::string line;
    std::size_t longest = 0;
    while (std::getline(lines, line)) {
      EXPECT_LE(line.size(), 120u) << line;
      longest = std::max(longest, line.size());
    }
    EXPECT_GT(longest, 80u);
  }
}

TEST_F(AdviseReport, MarksTheChosenTheDefaultAndWhatIsOverTheBudget) {
  options_.allows_same_stream = true;
  std::istringstream lines(text());
  std::string line;
  std::vector<std::string> rows;
  while (std::getline(lines, line)) {
    const bool is_row = line.find("  off ") == 0 || line.find("eager ") == 2;
    if (is_row) rows.push_back(line);
  }
  ASSERT_EQ(rows.size(), 3u) << text();
  EXPECT_EQ(rows[0].find("  eager"), 0u);
  EXPECT_NE(rows[0].find("over budget"), std::string::npos);
  EXPECT_EQ(rows[1].find("* eager"), 0u);
  EXPECT_NE(rows[1].find("chosen"), std::string::npos);
  EXPECT_NE(rows[2].find("default"), std::string::npos);
}

TEST_F(AdviseReport, WhatWasNotAllowedIsOnlyHintedAt) {
  EXPECT_EQ(text().find("over budget"), std::string::npos);
  EXPECT_NE(text().find("Shown are 2 of the 3 settings that were played; the other 1 have "
                        "same_stream and need --allow-same-stream.\n"),
            std::string::npos)
      << text();
  EXPECT_NE(text().find("1 settings with alias_reuse same_stream were played, too. With "
                        "--allow-same-stream it would be eager 0.5%, same_stream,\n"
                        "cache_large 0: ratio 1.001, waiting 22.29%."),
            std::string::npos)
      << text();
  advice_.with_same_stream.reset();
  EXPECT_NE(text().find("None of them would be better."), std::string::npos);
  options_.allows_same_stream = true;
  EXPECT_EQ(text().find("were played, too"), std::string::npos);
  EXPECT_EQ(text().find("Shown are"), std::string::npos);
}

TEST_F(AdviseReport, SaysWhatIsSavedAndWhatWasNotTried) {
  const std::string all = text();
  for (const char* part :
       {"Saves up to 28.9 GiB of 41.0 GiB against the defaults (70.5%, serve_interleaved-s1), "
        "waiting "
        "0.18%",
        "Not tried: recycling 'pressure' is not available yet."}) {
    EXPECT_NE(all.find(part), std::string::npos) << part << "\n" << all;
  }
}

TEST_F(AdviseReport, NothingToChangeAndNothingToAdviseAreSaid) {
  advice_.chosen = advice_.defaults;
  EXPECT_NE(text().find("Nothing to change"), std::string::npos);
  advice_.chosen.reset();
  advice_.with_same_stream.reset();
  for (Trial& trial : advice_.trials) {
    trial.traces[0].failed = 12'345;
    trial.traces[0].failed_bytes = std::uint64_t{5} << 30;
  }
  Setting pressure;
  pressure.recycling = Recycling::pressure;
  Setting off = pressure;
  off.recycling = Recycling::off;
  advice_.needs = {{off, std::nullopt}, {pressure, std::uint64_t{3} << 30}};
  EXPECT_NE(text().find("No setting serves every request"), std::string::npos);
  EXPECT_NE(text().find("fails 5.00 GiB"), std::string::npos) << text();
  EXPECT_NE(text().find("what was asked for and not served, all passes; rows in that order"),
            std::string::npos);
  EXPECT_NE(text().find("The smallest capacity with which one would:\n"
                        "  off           more than 1TiB\n"
                        "  pressure      3GiB\n"),
            std::string::npos)
      << text();
  EXPECT_EQ(text().find("version: 1"), std::string::npos);
  // What is held where requests failed is no ratio.
  EXPECT_EQ(text().find("1.084"), std::string::npos) << text();
  const auto object = nlohmann::json::parse(to_json(advice_, traces_, options_));
  EXPECT_TRUE(object["yaml"].is_null());
  EXPECT_TRUE(object["settings"][0]["held_ratio"].is_null());
  EXPECT_TRUE(object["settings"][0]["held_ratio_mean"].is_null());
  EXPECT_TRUE(object["settings"][0]["traces"][0]["held_ratio"].is_null());
  EXPECT_FALSE(object["settings"][0]["traces"][1]["held_ratio"].is_null());
  EXPECT_EQ(object["settings"][0]["failed_bytes"], std::uint64_t{5} << 30);
  EXPECT_TRUE(object["needs"][0]["smallest_capacity_bytes"].is_null());
  EXPECT_EQ(object["needs"][1]["recycling"], "pressure");
  EXPECT_EQ(object["needs"][1]["smallest_capacity_bytes"], std::uint64_t{3} << 30);
  advice_.needs[1].capacity_bytes.reset();
  EXPECT_NE(text().find("Nor does any with 1TiB."), std::string::npos);
}

TEST_F(AdviseReport, FitsIn120ColumnsWhereRequestsFail) {
  advice_.chosen.reset();
  advice_.with_same_stream.reset();
  options_.allows_same_stream = true;
  for (Trial& trial : advice_.trials) {
    trial.traces[0].failed = 12'345;
    trial.traces[0].failed_bytes = std::uint64_t{1'023} << 30;
  }
  for (const bool searches : {true, false}) {
    options_.searches_capacity = searches;
    std::istringstream lines(text());
    std::string line;
    while (std::getline(lines, line)) EXPECT_LE(line.size(), 120u) << line;
  }
}

TEST_F(AdviseReport, JsonHasExactlyTheKeysOfTheContractInOrder) {
  const auto object = nlohmann::ordered_json::parse(to_json(advice_, traces_, options_));
  EXPECT_EQ(keys_of(object),
            (std::vector<std::string>{"device", "device_capacity_bytes", "capacity_bytes",
                                      "backing", "passes", "scale", "completions", "budget_percent",
                                      "recycling_wait_percent", "unavailable", "traces", "settings",
                                      "needs", "yaml"}));
  EXPECT_EQ(keys_of(object["traces"][0]),
            (std::vector<std::string>{"trace", "operations", "trace_seconds", "share_of_seconds"}));
  const auto& setting = object["settings"][0];
  EXPECT_EQ(keys_of(setting), (std::vector<std::string>{"recycling",
                                                        "slack_percent",
                                                        "alias_reuse",
                                                        "cache_large_bytes",
                                                        "is_chosen",
                                                        "is_default",
                                                        "is_allowed",
                                                        "is_within_budget",
                                                        "failed",
                                                        "failed_bytes",
                                                        "peak_requested_bytes",
                                                        "peak_held_bytes",
                                                        "held_ratio",
                                                        "held_ratio_mean",
                                                        "wait_share_warm",
                                                        "wait_share_cold",
                                                        "driver_wait_seconds_warm",
                                                        "driver_wait_seconds_cold",
                                                        "driver_seconds_warm",
                                                        "driver_seconds_cold",
                                                        "driver_calls_warm",
                                                        "driver_calls_cold",
                                                        "cache_hit_share",
                                                        "traces"}));
  EXPECT_EQ(keys_of(setting["traces"][0]),
            (std::vector<std::string>{
                "trace", "failed", "failed_bytes", "peak_requested_bytes", "peak_held_bytes",
                "held_ratio", "wait_share_warm", "wait_share_cold", "driver_wait_seconds_warm",
                "driver_wait_seconds_cold", "driver_seconds_warm", "driver_seconds_cold",
                "driver_calls_warm", "driver_calls_cold", "cache_hit_share",
                "smallest_capacity_bytes", "smallest_capacity_wait_seconds"}));
  // Of a setting: sums, or of the trace with the most.
  EXPECT_EQ(setting["driver_calls_warm"], 2 * 103'456);
  EXPECT_EQ(setting["driver_calls_cold"], 2 * 123'456);
  EXPECT_EQ(setting["driver_wait_seconds_warm"], 2 * 12.5);
  EXPECT_EQ(setting["driver_wait_seconds_cold"], 2 * 25.0);
  EXPECT_EQ(setting["peak_requested_bytes"], 11'987'654'321);
  EXPECT_EQ(setting["is_allowed"], false);
  EXPECT_EQ(setting["is_within_budget"], false);
  EXPECT_EQ(object["settings"][1]["is_chosen"], true);
  EXPECT_EQ(object["settings"][2]["is_default"], true);
  EXPECT_EQ(object["yaml"], to_yaml(advice_, traces_, options_));
}

TEST_F(AdviseReport, NamesOfFilesStayInTheirComments) {
  traces_[0].name = "x\n  capacity: 1\n\xff\xfe\t";
  std::istringstream lines(to_yaml(advice_, traces_, options_));
  std::string line;
  while (std::getline(lines, line)) {
    EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; }));
    EXPECT_NE(line.find("  capacity:"), 0u) << line;
  }
  EXPECT_NO_THROW(nlohmann::json::parse(to_json(advice_, traces_, options_)));
}

TEST_F(AdviseReport, NothingRequestedIsNoNumberNowhere) {
  for (Trial& trial : advice_.trials) {
    for (TraceCost& each : trial.traces) {
      each.peak_requested_bytes = each.peak_held_bytes = 0;
      each.smallest_capacity_bytes.reset();
    }
  }
  for (const std::string& all : {text(), to_json(advice_, traces_, options_)}) {
    EXPECT_EQ(all.find("nan"), std::string::npos);
    EXPECT_EQ(all.find("inf"), std::string::npos);
  }
}

}  // namespace
}  // namespace gpupool::tools
