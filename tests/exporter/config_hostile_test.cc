// Files that were not written as a configuration, or were written to break its reader.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "gpupool/exporter/config.h"

namespace gpupool {
namespace {

std::string repeat(std::string_view part, std::size_t count) {
  std::string result;
  for (std::size_t i = 0; i < count; ++i) result += part;
  return result;
}

std::string first_message(const std::string& yaml) {
  const auto result = parse_config(yaml);
  return result.ok() || result.error().empty() ? "" : result.error().front().message;
}

TEST(ConfigHostileTest, Depth16IsReadAndDepth17IsRefused) {
  // One level is the mapping itself.
  const auto nested = [](std::size_t lists) {
    return "x: " + repeat("[", lists) + repeat("]", lists) + "\n";
  };
  EXPECT_NE(first_message(nested(15)).find("unknown key"), std::string::npos);
  EXPECT_NE(first_message(nested(16)).find("nested deeper than 16"), std::string::npos);
}

class DeepNestingTest : public testing::TestWithParam<const char*> {};

TEST_P(DeepNestingTest, HundredThousandLevelsAreRefusedSoon) {
  const auto start = std::chrono::steady_clock::now();
  const std::string yaml = "a: " + repeat(GetParam(), 100'000);
  EXPECT_NE(first_message(yaml), "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

INSTANTIATE_TEST_SUITE_P(Openers, DeepNestingTest,
                         testing::Values("[", "{", "{a: ", "[\n", "{a: [", "? ", "- ", "!a [",
                                         "&a [", "\"", "'", ": ", "[{", "* "));

TEST(ConfigHostileTest, DeepIndentationIsRefusedSoon) {
  std::string yaml;
  for (std::size_t i = 0; i < 1'300; ++i) yaml += std::string(i, ' ') + "a:\n";
  ASSERT_LT(yaml.size(), std::size_t{1} << 20);
  EXPECT_NE(first_message(yaml).find("nested deeper than 16"), std::string::npos);
}

TEST(ConfigHostileTest, AnAliasToItself) {
  EXPECT_NE(first_message("tags: &t [*t]\n"), "");
  EXPECT_NE(first_message("&r\npool: *r\n"), "");
  EXPECT_NE(first_message("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n"), "");
}

TEST(ConfigHostileTest, ManyErrorsAreCountedNotListed) {
  std::string yaml;
  for (int i = 0; i < 5'000; ++i) yaml += "key" + std::to_string(i) + ": 1\n";
  const auto result = parse_config(yaml);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().size(), 101u);
  EXPECT_EQ(result.error().back().message, "4900 more errors are not listed");
}

TEST(ConfigHostileTest, AMebibyteIsReadAndMoreIsRefused) {
  const std::string comment = "#" + std::string((1 << 20) - 20, 'x') + "\n";
  EXPECT_TRUE(parse_config(comment + "version: 1\n").ok());
  EXPECT_NE(first_message(comment + "version: 1\n" + std::string(40, '#')).find("1MiB"),
            std::string::npos);
}

TEST(ConfigHostileTest, LongListsAndManyKeysTakeNoLongTime) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NE(first_message("tags: [" + repeat("a,", 500'000) + "]"), "");
  std::string keys;
  for (int i = 0; keys.size() < 1'000'000; ++i) keys += std::to_string(i) + ": 1\n";
  EXPECT_NE(first_message(keys), "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(ConfigHostileTest, NoBytesCrashTheReader) {
  const std::string base =
      "version: 1\npool: {capacity: 90%, watched_sizes: [1GiB]}\ntags:\n- a\n- \"b\"\n";
  std::mt19937_64 random(20'240'229);
  for (int round = 0; round < 3'000; ++round) {
    std::string yaml = base;
    const int edits = 1 + static_cast<int>(random() % 6);
    for (int i = 0; i < edits; ++i) {
      const std::size_t at = random() % yaml.size();
      switch (random() % 3) {
        case 0: yaml[at] = static_cast<char>(random()); break;
        case 1: yaml.erase(at, random() % 4); break;
        default: yaml.insert(at, 1, "{}[]&*!|>%@`\"'#:-?,\n\t "[random() % 23]);
      }
    }
    const auto result = parse_config(yaml);
    if (!result.ok()) {
      ASSERT_FALSE(result.error().empty()) << yaml;
      for (const ConfigError& error : result.error()) ASSERT_FALSE(error.message.empty()) << yaml;
    }
  }
}

class ConfigFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("gpupool-config-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const auto path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  std::string message_of(const std::string& path) {
    const auto result = load_config_file(path);
    return result.ok() ? "" : result.error().at(0).message;
  }

  std::filesystem::path folder_;
};

TEST_F(ConfigFileTest, IsRead) {
  const auto result = load_config_file(write("a.yaml", "pool: {name: from-file}\n"));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().pool.name, "from-file");
}

TEST_F(ConfigFileTest, MissingDirectoryEmptyAndBinaryAreRefused) {
  EXPECT_EQ(message_of((folder_ / "none.yaml").string()),
            "cannot be opened: No such file or directory");
  EXPECT_EQ(message_of(folder_.string()), "cannot be read: Is a directory");
  EXPECT_NE(message_of(write("empty.yaml", "")).find("empty"), std::string::npos);
  EXPECT_NE(message_of(write("b.yaml", std::string("\x7f"
                                                   "ELF\0\0",
                                                   6)))
                .find("not a text file"),
            std::string::npos);
  EXPECT_NE(message_of("/dev/zero").find("1MiB"), std::string::npos);
}

TEST_F(ConfigFileTest, UnreadableIsRefused) {
  const std::string path = write("secret.yaml", "version: 1\n");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  // Root may read everything, so where this runs as root there is nothing to refuse.
  if (geteuid() == 0) {
    EXPECT_TRUE(load_config_file(path).ok());
  } else {
    EXPECT_EQ(message_of(path), "cannot be opened: Permission denied");
  }
}

}  // namespace
}  // namespace gpupool
