// The section `torch`, and what a file that is wrong says of itself.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "gpupool/exporter/config.h"

namespace gpupool {
namespace {

TEST(TorchConfig, EveryKeyIsRead) {
  const auto config = parse_config(
      "torch: {on_config_error: defaults, device: simulated, default_stream: per_thread,"
      " maintain_every: 250ms}");
  ASSERT_TRUE(config.ok());
  const TorchOptions& torch = config.value().torch;
  EXPECT_EQ(torch.on_config_error, OnConfigError::defaults);
  EXPECT_EQ(torch.device, TorchDevice::simulated);
  EXPECT_EQ(torch.default_stream, DefaultStream::per_thread);
  EXPECT_EQ(torch.maintain_every_ns, 250'000'000u);
}

TEST(TorchConfig, DefaultsAreTheOnesThatStop) {
  const auto config = parse_config("version: 1");
  ASSERT_TRUE(config.ok());
  const TorchOptions& torch = config.value().torch;
  EXPECT_EQ(torch.on_config_error, OnConfigError::stop);
  EXPECT_EQ(torch.device, TorchDevice::cuda);
  EXPECT_EQ(torch.default_stream, DefaultStream::legacy);
  EXPECT_EQ(torch.maintain_every_ns, 10'000'000u);
}

TEST(TorchConfig, UnknownWordsAreRefusedWithWhatIsAllowed) {
  for (const auto& [yaml, allowed] : std::vector<std::pair<std::string, std::string>>{
           {"torch: {on_config_error: ignore}", "stop, defaults"},
           {"torch: {device: tpu}", "cuda, simulated"},
           {"torch: {default_stream: 0}", "legacy, per_thread"},
           {"torch: {maintain_every: soon}", "60s"},
           {"torch: {stop: true}", "on_config_error"}}) {
    const auto config = parse_config(yaml);
    ASSERT_FALSE(config.ok()) << yaml;
    EXPECT_NE(config.error()[0].text("f").find(allowed), std::string::npos)
        << config.error()[0].text("f");
  }
}

TEST(TorchConfig, WhatAWrongFileSaysOfItselfIsFound) {
  for (const std::string before : {"", "pool: [\n", "version: 7\n\t\x01\n", "torch:\n"}) {
    EXPECT_EQ(find_on_config_error(before + "  on_config_error: defaults # goes on\r\n{{{"),
              OnConfigError::defaults)
        << before;
    EXPECT_EQ(find_on_config_error(before + "  on_config_error:   stop\n"), OnConfigError::stop);
  }
  for (const char* none : {"", "\n", "on_config_error:", "on_config_error", "x: on_config_error: d",
                           "# on_config_error: defaults", "on_config_error: defaultsx"}) {
    EXPECT_EQ(find_on_config_error(none), OnConfigError::stop) << none;
  }
  // Where it is YAML, however that is written.
  for (const char* defaults :
       {"torch: {on_config_error: defaults}\npool: {capacity: -1}\n",
        "pool: {capacity: -1}\ntorch:\n  {device: tpu, on_config_error: \"defaults\"}\n",
        "{torch: {\"on_config_error\": defaults}, pool: [1, 2]}",
        "torch:\n  on_config_error:\n    defaults\nnothing: true\n",
        "torch: {on_config_error: defaults}\nversion: 1\nversion: 1\n"}) {
    EXPECT_FALSE(parse_config(defaults).ok()) << defaults;
    EXPECT_EQ(find_on_config_error(defaults), OnConfigError::defaults) << defaults;
  }
  for (const char* stop :
       {"torch: {on_config_error: stop}\nnothing: true\n", "torch: [on_config_error, defaults]\n",
        "torch: {on_config_error: [defaults]}\n", "pool: {on_config_error: defaults}\n",
        "torch: {device: tpu}\npool:\n  on_config_error: defaults\n", "[torch]", "torch"}) {
    EXPECT_EQ(find_on_config_error(stop), OnConfigError::stop) << stop;
  }
  // The first one counts, as a key given twice is an error in itself.
  EXPECT_EQ(find_on_config_error("on_config_error: stop\non_config_error: defaults\n"),
            OnConfigError::stop);
  EXPECT_EQ(find_on_config_error_in_file("/nowhere/at/all.yaml"), OnConfigError::stop);
}

}  // namespace
}  // namespace gpupool
