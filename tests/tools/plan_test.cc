#include "tools/replay/plan.h"

#include <gtest/gtest.h>

#include <string>

#include "tools/trace/trace.h"

namespace gpupool::tools {
namespace {

/// The plan in short: a<bytes>, f<slot>, m<ns>.
std::string plan_text(std::string_view text, const PlanOptions& options = {}) {
  const Trace trace = parse_trace("t", text).value();
  const auto plan = make_plan(trace, options);
  if (!plan.ok()) return plan.error().message;
  std::string result;
  for (const Step& step : plan.value()) {
    if (!result.empty()) result += " ";
    switch (step.kind) {
      case StepKind::allocate: result += "a" + std::to_string(step.amount); break;
      case StepKind::free: result += "f" + std::to_string(step.slot); break;
      case StepKind::maintain: result += "m" + std::to_string(step.amount); break;
    }
  }
  return result;
}

TEST(Plan, MaintainsAtEachMillisecondOfRecordedTime) {
  EXPECT_EQ(plan_text("a 0 8 0 999\nf 0 0\n"), "a8 f0");
  EXPECT_EQ(plan_text("a 0 8 0 999\nf 0 1\n"), "a8 m1000000 f0");
  EXPECT_EQ(plan_text("a 0 8 0 600\na 1 8 0 600\na 2 8 0 600\na 3 8 0 600\n"),
            "a8 m1000000 a8 a8 m1000000 a8");
  EXPECT_EQ(plan_text("a 0 8 0 3500\nf 0 500\n"), "m1000000 m1000000 m1000000 a8 m1000000 f0");
}

TEST(Plan, ALongPauseIsBounded) {
  // A year: 10 000 steps, which pass as much time as was recorded, in whole milliseconds.
  const Trace trace = parse_trace("t", "a 0 8 0 31536000000700\nf 0 300\n").value();
  const auto plan = make_plan(trace, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan.value().size(), kMaxStepsPerPause + 3);
  std::uint64_t passed = 0;
  for (const Step& step : plan.value()) {
    if (step.kind == StepKind::maintain) passed += step.amount;
  }
  EXPECT_EQ(passed, std::uint64_t{31536000001} * kMaintainPeriodNs);
}

TEST(Plan, CompletionsDecideWhereABlockEnds) {
  const std::string_view text = "a 0 8 0 0\na 1 9 1 0\nf 0 0\nf 1 0\nc 1 0\n";
  EXPECT_EQ(plan_text(text), "a8 a9 f0 f1");
  PlanOptions honour;
  honour.honour_completions = true;
  EXPECT_EQ(plan_text(text, honour), "a8 a9 f0 f1");
  const std::string_view later = "a 0 8 0 0\nf 0 0\na 1 9 1 0\nc 0 0\nf 1 0\n";
  EXPECT_EQ(plan_text(later), "a8 f0 a9 f1");
  EXPECT_EQ(plan_text(later, honour), "a8 a9 f0 f1");
}

TEST(Plan, ScaleMultipliesSizesAndRefusesOverflow) {
  PlanOptions options;
  options.scale = 8192;
  EXPECT_EQ(plan_text("a 0 3 0 0\n", options), "a24576");
  const std::string error = plan_text("a 0 9223372036854775808 0 0\n", options);
  EXPECT_NE(error.find("t: a size of 9223372036854775808 bytes times --scale 8192"),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace gpupool::tools
