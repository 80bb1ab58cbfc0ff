// A misuse in words has all that its report has.
#include "gpupool/misuse_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpupool {
namespace {

const void* address(std::uintptr_t value) { return reinterpret_cast<const void*>(value); }

TEST(MisuseText, NamesKindAddressBlockAndWhatWasGiven) {
  EXPECT_EQ(misuse_text({.kind = Misuse::double_free, .pointer = address(0x7000)}),
            "double_free of 0x7000");
  EXPECT_EQ(misuse_text({.kind = Misuse::interior_pointer,
                         .pointer = address(0x7010),
                         .block = address(0x7000),
                         .block_bytes = 300}),
            "interior_pointer of 0x7010, of the block 0x7000 of 300 bytes");
  MisuseReport report{.pointer = address(0x7000), .block = address(0x7000), .block_bytes = 300};
  report.given = 17;
  report.kind = Misuse::wrong_size;
  EXPECT_EQ(misuse_text(report), "wrong_size of 0x7000, a block of 300 bytes, given as 17 bytes");
  report.kind = Misuse::wrong_device;
  EXPECT_EQ(misuse_text(report),
            "wrong_device of 0x7000, a block of 300 bytes, given with device 17");
  EXPECT_EQ(misuse_text({.kind = Misuse::leak, .block_bytes = 4096, .given = 3}),
            "leak of 3 blocks, 4096 bytes");
}

TEST(MisuseText, NamesTheTagOfACanaryWhereTheNamesAreGiven) {
  const MisuseReport report{.kind = Misuse::canary,
                            .pointer = address(0x7000),
                            .block = address(0x7000),
                            .block_bytes = 300,
                            .given = 304,
                            .tag = Tag(1)};
  const std::string text =
      "canary of 0x7000, a block of 300 bytes, written to from byte 304 on, tag ";
  const std::vector<std::string> tags = {"weights", "gradients"};
  EXPECT_EQ(misuse_text(report, tags), text + "gradients");
  EXPECT_EQ(misuse_text(report), text + "1");
}

}  // namespace
}  // namespace gpupool
