#include "tools/replay/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace gpupool::tools {
namespace {

PassResult example_pass() {
  PassResult result;
  result.trace_path = "traces/serve_interleaved-s1.trace.gz";
  result.trace_name = "serve_interleaved-s1";
  result.pass = 2;
  result.operations = 933'477;
  result.failed = 0;
  result.ns_per_op = 1234.56;
  result.trace_seconds = 56.08;
  result.hits = 466'000;
  result.misses = 739;
  result.fallbacks = 12'345;
  result.driver_calls = 123'456;
  result.driver_seconds = 1.2345;
  result.driver_wait_seconds = 0.987;
  result.peak_requested_bytes = 687'075'328;
  result.peak_held_bytes = 721'420'288;
  result.largest_free_block_bytes = 12'345'678;
  return result;
}

TEST(Report, JsonHasExactlyTheKeysOfTheContractInOrder) {
  const auto array = nlohmann::ordered_json::parse(to_json({example_pass(), example_pass()}));
  ASSERT_TRUE(array.is_array());
  ASSERT_EQ(array.size(), 2U);
  std::vector<std::string> keys;
  for (const auto& item : array[0].items()) keys.push_back(item.key());
  EXPECT_EQ(keys, (std::vector<std::string>{
                      "trace", "pass", "operations", "failed", "ns_per_op", "trace_seconds", "hits",
                      "misses", "fallbacks", "driver_calls", "driver_seconds",
                      "driver_wait_seconds", "peak_requested_bytes", "peak_held_bytes",
                      "largest_free_block_bytes", "smallest_capacity_bytes"}));
  EXPECT_EQ(array[0]["trace"], "traces/serve_interleaved-s1.trace.gz");
  EXPECT_EQ(array[0]["operations"], 933'477);
  EXPECT_EQ(array[0]["trace_seconds"], 56.08);
  EXPECT_TRUE(array[0]["smallest_capacity_bytes"].is_null());
}

TEST(Report, JsonHasNullForNoTimesAndSurvivesAnyFileName) {
  PassResult result = example_pass();
  result.trace_seconds.reset();
  result.trace_path = "\xff\xfe\"\n.csv";
  const auto array = nlohmann::json::parse(to_json({result}));
  EXPECT_TRUE(array[0]["trace_seconds"].is_null());
}

TEST(Report, TableFitsIn120Columns) {
  ReplaySetting setting;
  setting.device_name = "simulated";
  setting.limit_bytes = std::uint64_t{140} << 30;
  std::istringstream table(to_table({example_pass()}, ReplayOptions(), setting, Terminal()));
  std::string line;
  std::size_t longest = 0;
  while (std::getline(table, line)) longest = std::max(longest, line.size());
  EXPECT_LE(longest, 120U);
  EXPECT_GT(longest, 80U);
}

TEST(Report, TableShowsNoRatioWhereRequestsFailed) {
  PassResult result = example_pass();
  const auto table = [&] {
    return to_table({result}, ReplayOptions(), ReplaySetting(), Terminal());
  };
  EXPECT_NE(table().find("1.050"), std::string::npos) << table();
  result.failed = 1;
  EXPECT_EQ(table().find("1.050"), std::string::npos) << table();
  EXPECT_NE(table().find("688 MiB     - "), std::string::npos) << table();
}

TEST(Report, TheHeadingHasOnlyWhatHasAnEffect) {
  ReplayOptions options;
  options.runtime.slack = 0.05;
  options.runtime.alias_reuse = AliasReuse::same_stream;
  const auto heading = [&] {
    const std::string table = to_table({example_pass()}, options, ReplaySetting(), Terminal());
    return table.substr(0, table.find('\n'));
  };
  EXPECT_NE(heading().find("eager with 5% slack, alias reuse same_stream"), std::string::npos);
  options.backing = Backing::cudamalloc;
  EXPECT_NE(heading().find("5% slack"), std::string::npos) << heading();
  EXPECT_EQ(heading().find("alias"), std::string::npos) << heading();
  options.backing = Backing::vmm;
  options.runtime.recycling = Recycling::pressure;
  EXPECT_EQ(heading().find("slack"), std::string::npos) << heading();
  EXPECT_NE(heading().find("alias reuse same_stream"), std::string::npos) << heading();
  options.runtime.recycling = Recycling::off;
  EXPECT_EQ(heading().find("alias"), std::string::npos) << heading();
}

TEST(Report, TableShowsNoNumberWhereThereIsNone) {
  PassResult result = example_pass();
  result.hits = result.misses = result.peak_requested_bytes = 0;
  const std::string table = to_table({result}, ReplayOptions(), ReplaySetting(), Terminal());
  EXPECT_EQ(table.find("nan"), std::string::npos);
  EXPECT_EQ(table.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace gpupool::tools
