#include "tools/replay/loop.h"

#include <gtest/gtest.h>

#include <string>

#include "tools/trace/trace.h"

namespace gpupool::tools {
namespace {

/// Writes down what it is asked; requests of 13 bytes fail, frees of address 99 are refused.
struct Recorder {
  Result<void*> allocate(std::uint64_t bytes, std::uint16_t stream) {
    text += " a" + std::to_string(bytes) + "/" + std::to_string(stream);
    if (bytes == 13) return Error::out_of_memory;
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(bytes));
  }
  bool deallocate(void* pointer, std::uint16_t stream) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    if (address != 0) text += " f" + std::to_string(address) + "/" + std::to_string(stream);
    return address != 99;
  }
  void pass_time(std::uint64_t ns) { text += " m" + std::to_string(ns); }

  std::string text;
};

struct Played {
  explicit Played(std::string_view lines) : trace(parse_trace("t", lines).value()) {}

  Trace trace;
  std::vector<Step> steps = make_plan(trace, {}).value();
  Loop loop{steps, trace.slot_count};
  Recorder recorder;
};

TEST(Loop, PlaysTheStepsInOrderOnTheirStreams) {
  Played played("a 0 8 0 0\na 1 16 7 2500\nf 0 0\nf 1 500\n");
  const LoopResult result = played.loop.play(played.recorder);
  EXPECT_EQ(played.recorder.text, " a8/0 m1000000 m1000000 a16/1 f8/0 m1000000 f16/1");
  EXPECT_EQ(result.failed, 0U);
  EXPECT_EQ(result.refused_frees, 0U);
  EXPECT_GT(result.ns, 0);
}

TEST(Loop, WhatFailsIsCountedAndNotFreed) {
  Played played("a 0 13 0 0\na 1 99 0 0\nf 0 0\nf 1 0\n");
  const LoopResult result = played.loop.play(played.recorder);
  EXPECT_EQ(played.recorder.text, " a13/0 a99/0 f99/0");
  EXPECT_EQ(result.failed, 1U);
  EXPECT_EQ(result.failed_bytes, 13U);
  EXPECT_EQ(result.refused_frees, 1U);
}

TEST(Loop, WhatIsLeftIsFreedOnceOnItsOwnStream) {
  Played played("a 0 8 0 0\na 1 16 7 0\na 2 99 7 0\nf 0 0\n");
  static_cast<void>(played.loop.play(played.recorder));
  played.recorder.text.clear();
  EXPECT_EQ(played.loop.free_rest(played.recorder), 1U);
  EXPECT_EQ(played.recorder.text, " f16/1 f99/1");
  played.recorder.text.clear();
  EXPECT_EQ(played.loop.free_rest(played.recorder), 0U);
  EXPECT_EQ(played.recorder.text, "");
}

}  // namespace
}  // namespace gpupool::tools
