// Which run is got ready ahead of need.
#include "pool/growth_forecast.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/support/units.h"

namespace gpupool::internal {
namespace {

TEST(GrowthForecastTest, AtFirstNothing) {
  GrowthForecast forecast;
  EXPECT_EQ(forecast.wanted_units(0), 0u);
  EXPECT_EQ(forecast.wanted_units(5000 * kMs), 0u);
}

TEST(GrowthForecastTest, TheLongestOfASecondOrTwo) {
  GrowthForecast forecast;
  forecast.note(10'100 * kMs, 700);
  forecast.note(10'200 * kMs, 900);
  forecast.note(10'300 * kMs, 800);
  EXPECT_EQ(forecast.wanted_units(10'400 * kMs), 900u);
  forecast.note(11'200 * kMs, 300);
  EXPECT_EQ(forecast.wanted_units(11'300 * kMs), 900u);
  EXPECT_EQ(forecast.wanted_units(12'300 * kMs), 300u);
  EXPECT_EQ(forecast.wanted_units(13'400 * kMs), 0u);
}

TEST(GrowthForecastTest, AfterALongPauseNothingIsLeft) {
  GrowthForecast forecast;
  forecast.note(10'000 * kMs, 700);
  EXPECT_EQ(forecast.wanted_units(12'500 * kMs), 0u);
  forecast.note(20'000 * kMs, 500);
  EXPECT_EQ(forecast.wanted_units(20'100 * kMs), 500u);
}

TEST(GrowthForecastTest, WhileRequestsComeOneAfterTheOtherNothingIsDone) {
  GrowthForecast forecast;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const std::uint64_t now = (10'000 + i * 10) * kMs;
    forecast.note(now, 700);
    EXPECT_EQ(forecast.wanted_units(now), 0u);
    EXPECT_EQ(forecast.wanted_units(now + 9 * kMs), 0u);
  }
  EXPECT_EQ(forecast.wanted_units(10'510 * kMs), 700u);
}

}  // namespace
}  // namespace gpupool::internal
