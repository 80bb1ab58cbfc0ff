// What `gpupool compare` counts, and how it says it.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/support/units.h"
#include "tools/compare/comparison.h"
#include "tools/compare/report.h"

namespace gpupool::tools {
namespace {

CompareOptions all_systems() {
  CompareOptions options;
  options.passes = 3;
  for (const auto& entry : baselines::catalog()) options.systems.push_back(&entry);
  return options;
}

const CompareHook kNoHook = [](const std::string&, std::uint64_t) {};

/// 40 blocks of 3 MiB on two streams, freed in another order; one stays to the end.
Trace example_trace() {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += "a " + std::to_string(i) + " 3145728 " + std::to_string(i % 2) + " 500\n";
  }
  for (int i = 39; i > 0; --i) text += "f " + std::to_string(i) + " 500\n";
  return parse_trace("folder/example.trace", text).value();
}

const TraceRow& row_of(const std::vector<TraceRow>& rows, std::string_view name) {
  return *std::find_if(rows.begin(), rows.end(),
                       [name](const TraceRow& row) { return row.system->name == name; });
}

TEST(Comparison, EverySystemServesATraceAndTheDriverPaysForEachRequest) {
  const CompareOptions options = all_systems();
  const auto result = compare_on_trace(example_trace(), options, kNoHook);
  ASSERT_TRUE(result.ok()) << result.error().message;
  const std::vector<TraceRow>& rows = result.value();
  ASSERT_EQ(rows.size(), options.systems.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TraceRow& row = rows[i];
    SCOPED_TRACE(row.system->name);
    EXPECT_EQ(row.system, options.systems[i]);
    EXPECT_EQ(row.operations, 79U);
    EXPECT_EQ(row.failed, 0U);
    EXPECT_EQ(row.peak_requested_bytes, 120 * kMiB);
    EXPECT_GE(row.peak_held_bytes, row.peak_requested_bytes);
    EXPECT_GT(row.cold_driver_calls, 0U);
    EXPECT_GT(row.cold_driver_seconds, 0.0);
    EXPECT_GT(row.warm_ns_per_op, 0.0);
    if (row.system->name == "driver") continue;
    EXPECT_EQ(row.warm_driver_calls, 0U) << "what is kept serves the next pass";
    EXPECT_EQ(row.warm_total_ns_per_op(), row.warm_ns_per_op);
  }
  const TraceRow& driver = row_of(rows, "driver");
  EXPECT_EQ(driver.cold_driver_calls, 79U) << "the block that is left is freed after the pass";
  EXPECT_EQ(driver.warm_driver_calls, 79U);
  EXPECT_EQ(driver.peak_held_bytes, 120 * kMiB);
  EXPECT_GT(driver.warm_total_ns_per_op(), 35'000.0) << "a cudaFree takes that long";
  EXPECT_EQ(row_of(rows, "size-classes").peak_held_bytes, 120 * kMiB) << "3 MiB is a class";
  EXPECT_EQ(row_of(rows, "buddy").peak_held_bytes, 256 * kMiB) << "4 MiB each, in 64 MiB";
}

TEST(Comparison, CountsRepeatExactly) {
  const Trace trace = example_trace();
  const CompareOptions options = all_systems();
  const auto first = compare_on_trace(trace, options, kNoHook).value();
  const auto second = compare_on_trace(trace, options, kNoHook).value();
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].cold_driver_calls, second[i].cold_driver_calls);
    EXPECT_EQ(first[i].cold_driver_seconds, second[i].cold_driver_seconds);
    EXPECT_EQ(first[i].warm_driver_seconds, second[i].warm_driver_seconds);
    EXPECT_EQ(first[i].peak_held_bytes, second[i].peak_held_bytes);
  }
}

TEST(Comparison, WhatCannotBeServedIsCountedAndTheRestGoesOn) {
  CompareOptions options = all_systems();
  options.capacity_bytes = 100 * kMiB;
  const auto rows = compare_on_trace(example_trace(), options, kNoHook).value();
  for (const TraceRow& row : rows) {
    SCOPED_TRACE(row.system->name);
    EXPECT_GE(row.failed, 7U);  // 33 blocks fit into 100 MiB
    EXPECT_LT(row.failed, 40U);
    EXPECT_EQ(row.operations, 79U);
    EXPECT_LE(row.peak_held_bytes, options.capacity_bytes);
  }
}

TEST(Comparison, SizesBeyondEveryDevice) {
  const Trace trace = parse_trace("t",
                                  "a 0 0 0 0\na 1 9223372036854775808 0 0\n"
                                  "a 2 18446744073709551615 0 0\nf 0 0\nf 1 0\n")
                          .value();
  const auto rows = compare_on_trace(trace, all_systems(), kNoHook).value();
  for (const TraceRow& row : rows) {
    EXPECT_EQ(row.failed, 2U) << row.system->name;
    EXPECT_EQ(row.peak_held_bytes, 0U);
    EXPECT_EQ(row.peak_requested_bytes, ~std::uint64_t{0}) << "as much as 64 bits can say";
  }
}

TEST(Comparison, TheHookHearsOfEachPass) {
  CompareOptions options = all_systems();
  std::uint64_t operations = 0;
  std::set<std::string> names;
  const CompareHook hook = [&](const std::string& what, std::uint64_t count) {
    operations += count;
    names.insert(what);
  };
  ASSERT_TRUE(compare_on_trace(example_trace(), options, hook).ok());
  EXPECT_EQ(operations, 79U * options.passes * options.systems.size());
  EXPECT_EQ(names.size(), options.systems.size());
  EXPECT_EQ(names.count("example, buddy"), 1U);
}

TEST(Comparison, ClassicTest) {
  const CompareOptions options = all_systems();
  const auto rows = compare_on_classic_test(options, kNoHook).value();
  ASSERT_EQ(rows.size(), 2 * options.systems.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ClassicRow& row = rows[i];
    SCOPED_TRACE(row.system->name);
    EXPECT_EQ(row.system, options.systems[i / 2]);
    EXPECT_EQ(row.is_warm, i % 2 == 1);
    EXPECT_EQ(row.failed, 0U);
    EXPECT_GE(row.peak_held_bytes, kClassicBlocks * kClassicBlockBytes);
    EXPECT_LE(row.peak_held_bytes, kClassicBlocks * kClassicBlockBytes + 64 * kMiB);
    const bool is_driver = row.system->name == "driver";
    EXPECT_EQ(row.free.driver_calls, is_driver ? kClassicBlocks : 0);
    if (is_driver) {
      EXPECT_EQ(row.allocate.driver_calls, kClassicBlocks);
      EXPECT_NEAR(row.allocate.driver_seconds, 10'000 * 41e-6, 1e-9);
      EXPECT_NEAR(row.free.driver_seconds, 10'000 * 35e-6, 1e-9);
      EXPECT_GT(row.total_seconds(), 0.76);
    } else {
      EXPECT_EQ(row.allocate.driver_calls == 0, row.is_warm);
    }
  }
}

TEST(Comparison, Median) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({9, 1, 2, 4}), 3);
}

// The report.

TraceRow large_row(std::size_t system) {
  TraceRow row;
  row.trace_path = "traces/serve_interleaved-s1.trace.gz";
  row.trace_name = "serve_interleaved-s1";
  row.system = &baselines::catalog()[system];
  row.operations = 933'477;
  row.warm_ns_per_op = 1234.56;
  row.cold_driver_calls = 933'477;
  row.warm_driver_calls = 933'477;
  row.cold_driver_seconds = row.warm_driver_seconds = 43.21;
  row.peak_requested_bytes = 687'075'328;
  row.peak_held_bytes = 721'420'288;
  return row;
}

Comparison example() {
  Comparison comparison;
  for (std::size_t system = 0; system < baselines::catalog().size(); ++system) {
    comparison.traces.push_back(large_row(system));
    for (const bool is_warm : {false, true}) {
      ClassicRow row;
      row.system = &baselines::catalog()[system];
      row.is_warm = is_warm;
      row.allocate = {41'000.0, 15'000, 0.41};
      row.free = {35'000.0, 10'000, 0.35};
      row.peak_held_bytes = 10'485'760'000;
      comparison.classic.push_back(row);
    }
  }
  return comparison;
}

TEST(CompareReport, JsonHasExactlyTheKeysOfTheContractInOrder) {
  const auto object = nlohmann::ordered_json::parse(to_json(example(), all_systems()));
  const auto keys = [](const nlohmann::ordered_json& of) {
    std::vector<std::string> names;
    for (const auto& item : of.items()) names.push_back(item.key());
    return names;
  };
  EXPECT_EQ(keys(object),
            (std::vector<std::string>{"device", "capacity_bytes", "passes", "classic", "traces"}));
  EXPECT_EQ(
      keys(object["traces"][0]),
      (std::vector<std::string>{"trace", "system", "operations", "failed", "ns_per_op",
                                "ns_per_op_cold", "ns_per_op_with_driver", "driver_calls_cold",
                                "driver_calls_warm", "driver_seconds_cold", "driver_seconds_warm",
                                "peak_requested_bytes", "peak_held_bytes"}));
  EXPECT_EQ(
      keys(object["classic"][0]),
      (std::vector<std::string>{
          "system", "pass", "blocks", "block_bytes", "failed", "ns_per_allocate", "ns_per_free",
          "driver_calls_allocate", "driver_calls_free", "driver_seconds_allocate",
          "driver_seconds_free", "total_seconds", "peak_requested_bytes", "peak_held_bytes"}));
  EXPECT_EQ(object["traces"].size(), 5U);
  EXPECT_EQ(object["classic"].size(), 10U);
  EXPECT_EQ(object["traces"][1]["system"], "driver");
  EXPECT_EQ(object["classic"][1]["pass"], "warm");
}

TEST(CompareReport, FitsIn100ColumnsAndMarksOurs) {
  std::istringstream tables(to_tables(example(), all_systems(), Terminal()));
  std::size_t longest = 0;
  int marked = 0;
  for (std::string line; std::getline(tables, line);) {
    longest = std::max(longest, line.size());
    if (line.rfind("* gpupool  ", 0) == 0) ++marked;
  }
  EXPECT_LE(longest, 100U);
  EXPECT_EQ(marked, 3) << "cold, warm, and the trace";
}

TEST(CompareReport, TimesOursIsOfTheSameTraceAndWithTheDriver) {
  Comparison comparison;
  for (const double factor : {1.0, 10.0}) {
    for (std::size_t system = 0; system < 2; ++system) {
      TraceRow row = large_row(system);
      row.trace_path += std::to_string(factor);
      row.warm_ns_per_op = factor * 100;
      row.operations = 1000;
      row.warm_driver_seconds = system == 0 ? 0 : factor * 0.0001;  // 100 ns an operation
      comparison.traces.push_back(row);
    }
  }
  const std::string text = to_tables(comparison, all_systems(), Terminal());
  std::size_t twice = 0;
  for (std::size_t at = 0; (at = text.find(" 2.00x ", at)) != std::string::npos; ++at) ++twice;
  EXPECT_EQ(twice, 2U) << text;
}

TEST(CompareReport, ShowsNoRatioWhereRequestsFailedNorWithoutOurs) {
  CompareOptions options = all_systems();
  options.systems = {&baselines::catalog()[1]};
  Comparison comparison;
  comparison.traces.push_back(large_row(1));
  EXPECT_NE(to_tables(comparison, options, Terminal()).find(" 1.050 "), std::string::npos);
  comparison.traces[0].failed = 1;
  const std::string text = to_tables(comparison, options, Terminal());
  EXPECT_EQ(text.find(" 1.050 "), std::string::npos);
  EXPECT_EQ(text.find("1.00x"), std::string::npos);
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(text.find("inf"), std::string::npos);
}

TEST(CompareReport, JsonSurvivesAnyFileName) {
  Comparison comparison = example();
  comparison.traces[0].trace_path = "\xff\xfe\"\n.csv";
  EXPECT_TRUE(nlohmann::json::accept(to_json(comparison, all_systems())));
}

}  // namespace
}  // namespace gpupool::tools
