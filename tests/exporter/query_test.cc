// What stands behind a path's question mark.
#include "exporter/http/query.h"

#include <gtest/gtest.h>

namespace gpupool::internal {
namespace {

constexpr std::string_view kKnown[] = {"since", "resolution"};

std::string error_of(std::string_view text) {
  const auto query = Query::parse(text, kKnown);
  return query.ok() ? "" : query.error();
}

TEST(QueryTest, ParametersAreFoundByName) {
  const auto query = Query::parse("since=17&&resolution=1%35s&", kKnown).value();
  EXPECT_EQ(query.number("since", 0).value(), 17u);
  ASSERT_NE(query.find("resolution"), nullptr);
  EXPECT_EQ(*query.find("resolution"), "15s");
  const auto empty = Query::parse("", kKnown).value();
  EXPECT_EQ(empty.number("since", 5).value(), 5u);
  EXPECT_EQ(empty.find("resolution"), nullptr);
}

TEST(QueryTest, WhatIsNotKnownIsNamed) {
  EXPECT_EQ(error_of("sinse=1"), "unknown parameter 'sinse'; known here: since, resolution");
  EXPECT_EQ(Query::parse("a=1", {}).error(), "unknown parameter 'a'; none is known here");
  EXPECT_EQ(error_of("since=1&since=2"), "parameter 'since' is given twice");
  EXPECT_EQ(error_of("since=%4"), "not a valid code in 'since=%4'");
  EXPECT_EQ(error_of("since=%zz"), "not a valid code in 'since=%zz'");
  EXPECT_EQ(error_of("a\n<script>=1"),
            "unknown parameter 'a?<script>'; known here: since, resolution");
  EXPECT_LT(error_of(std::string(100'000, 'x')).size(), 200u);
}

TEST(QueryTest, NumbersAreWhole) {
  for (const char* text : {"since=", "since=-1", "since=1.5", "since=x", "since=1x", "since=+1",
                           "since=99999999999999999999", "since"}) {
    const auto number = Query::parse(text, kKnown).value().number("since", 0);
    ASSERT_FALSE(number.ok()) << text;
    EXPECT_NE(number.error().find("'since'"), std::string::npos);
    EXPECT_NE(number.error().find("allowed is a whole number"), std::string::npos);
  }
}

}  // namespace
}  // namespace gpupool::internal
