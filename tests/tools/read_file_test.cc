#include "tools/trace/read_file.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tools/trace/trace.h"

namespace gpupool::tools {
namespace {

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  std::string input = text;
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

/// Lines that do not compress to nothing, of more than one of the reader's chunks.
std::string long_text() {
  std::string text;
  unsigned state = 1;
  for (int i = 0; i < 200'000; ++i) {
    state = state * 1664525U + 1013904223U;
    text += "a " + std::to_string(i) + " " + std::to_string(state) + " 0 0\n";
  }
  return text;
}

class ReadFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "gpupool_read_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::string reason(const std::string& path) {
    const auto text = read_text_file(path);
    return text.ok() ? "no error" : text.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(ReadFile, ReadsPlainAndPackedWhateverTheName) {
  const std::string text = long_text();
  EXPECT_EQ(read_text_file(write("plain.gz", text)).value(), text);
  EXPECT_EQ(read_text_file(write("packed", gzip(text))).value(), text);
}

TEST_F(ReadFile, ReadsSeveralMembersAsOne) {
  EXPECT_EQ(read_text_file(write("two", gzip("a 0 1 0 0\n") + gzip("f 0 0\n"))).value(),
            "a 0 1 0 0\nf 0 0\n");
}

TEST_F(ReadFile, RefusesEveryTruncation) {
  const std::string packed = gzip(long_text().substr(0, 2000));
  for (std::size_t size = 2; size < packed.size(); ++size) {
    const auto text = gunzip(std::string_view(packed).substr(0, size));
    ASSERT_FALSE(text.ok()) << size << " of " << packed.size();
    EXPECT_NE(text.error().message.find("gzip"), std::string::npos) << text.error().message;
  }
}

TEST_F(ReadFile, RefusesDamage) {
  std::string packed = gzip(long_text().substr(0, 2000));
  packed[packed.size() - 5] = static_cast<char>(packed[packed.size() - 5] ^ 0x40);  // checksum
  EXPECT_NE(gunzip(packed).error().message.find("damaged"), std::string::npos);
  EXPECT_NE(gunzip(gzip("x") + "garbage").error().message.find("damaged"), std::string::npos);
  EXPECT_NE(gunzip("\x1f\x8b"
                   "not gzip at all")
                .error()
                .message.find("damaged"),
            std::string::npos);
}

TEST_F(ReadFile, NamesWhatCannotBeRead) {
  EXPECT_EQ(reason(folder_ / "missing"), "No such file or directory");
  EXPECT_EQ(reason(folder_), "is a directory");
  EXPECT_EQ(reason(write("empty", "")), "is empty");
}

TEST_F(ReadFile, LoadTraceNamesTheFile) {
  const std::string path = folder_ / "missing";
  EXPECT_EQ(load_trace(path).error().message, path + ": No such file or directory");
  const std::string empty = write("empty.gz", gzip(""));
  EXPECT_EQ(load_trace(empty).error().message, empty + ": is empty");
}

}  // namespace
}  // namespace gpupool::tools
