#include "gpupool/size_text.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

namespace gpupool {
namespace {

TEST(SizeText, ReadsNumbersWithEveryUnit) {
  const std::vector<std::pair<const char*, std::uint64_t>> cases = {
      {"0", 0},
      {"0B", 0},
      {"1", 1},
      {"7B", 7},
      {"64KiB", std::uint64_t{64} << 10},
      {"512MiB", std::uint64_t{512} << 20},
      {"8GiB", std::uint64_t{8} << 30},
      {"8 GiB", std::uint64_t{8} << 30},
      {"2TiB", std::uint64_t{2} << 40},
      {"3KB", 3'000},
      {"4MB", 4'000'000},
      {"20GB", 20'000'000'000},
      {"1TB", 1'000'000'000'000},
      {"16777215TiB", std::uint64_t{16777215} << 40},
      {"18446744073709551615", std::numeric_limits<std::uint64_t>::max()},
  };
  for (const auto& [text, bytes] : cases) {
    const auto parsed = parse_size(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.error();
    EXPECT_EQ(parsed.value(), bytes) << text;
  }
}

TEST(SizeText, RefusesEverythingElseAndSaysWhatIsAllowed) {
  for (const char* text : {"",
                           " ",
                           " 8",
                           "8 ",
                           "8  GiB",
                           "-1",
                           "+1",
                           "010",
                           "00",
                           "007MiB",
                           "0x10",
                           "1e3",
                           "1.5GiB",
                           "8gib",
                           "8GIB",
                           "8G",
                           "8Gi",
                           "8 giga",
                           "GiB",
                           "8GiB ",
                           "8GiBx",
                           "8,5",
                           "18446744073709551616",
                           "16777216TiB",
                           "99999999999999999999999999",
                           "\t8",
                           "8\n"}) {
    const auto parsed = parse_size(text);
    ASSERT_FALSE(parsed.ok()) << "'" << text << "' was read as " << parsed.value();
    EXPECT_NE(parsed.error().find("8GiB"), std::string::npos) << parsed.error();
  }
}

TEST(SizeText, NamesTheReason) {
  EXPECT_NE(parse_size("-1").error().find("negative"), std::string::npos);
  EXPECT_NE(parse_size("010").error().find("leading zero"), std::string::npos);
  EXPECT_NE(parse_size("1.5GiB").error().find("fraction"), std::string::npos);
  EXPECT_NE(parse_size("16777216TiB").error().find("64 bits"), std::string::npos);
  EXPECT_NE(parse_size("8gib").error().find("unit"), std::string::npos);
}

TEST(SizeText, ErrorsAreShortAndPrintable) {
  const auto parsed = parse_size(std::string(5000, '\x01'));
  ASSERT_FALSE(parsed.ok());
  EXPECT_LT(parsed.error().size(), 300U);
  EXPECT_EQ(parsed.error().find('\x01'), std::string::npos);
}

TEST(SizeText, FormatTakesTheLargestUnitThatDivides) {
  EXPECT_EQ(format_size(0), "0");
  EXPECT_EQ(format_size(1), "1");
  EXPECT_EQ(format_size(1023), "1023");
  EXPECT_EQ(format_size(1024), "1KiB");
  EXPECT_EQ(format_size(1536), "1536");
  EXPECT_EQ(format_size(std::uint64_t{8} << 30), "8GiB");
  EXPECT_EQ(format_size((std::uint64_t{8} << 30) + (std::uint64_t{1} << 20)), "8193MiB");
  EXPECT_EQ(format_size(std::uint64_t{5000} << 40), "5000TiB");
}

TEST(SizeText, FormatThenParseIsIdentity) {
  std::vector<std::uint64_t> sizes = {0, 1, 999, 1'000'000, 20'000'000'000};
  for (int shift = 0; shift < 64; ++shift) {
    for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1}}) {
      sizes.push_back((std::uint64_t{1} << shift) + offset);
      sizes.push_back((std::uint64_t{1} << shift) - offset);
    }
  }
  sizes.push_back(std::numeric_limits<std::uint64_t>::max());
  for (const std::uint64_t bytes : sizes) {
    const auto parsed = parse_size(format_size(bytes));
    ASSERT_TRUE(parsed.ok()) << bytes;
    EXPECT_EQ(parsed.value(), bytes);
  }
}

}  // namespace
}  // namespace gpupool
