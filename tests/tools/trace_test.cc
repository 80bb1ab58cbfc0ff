#include "tools/trace/trace.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpupool::tools {
namespace {

Trace parse_good(std::string_view text) {
  Result<Trace, Status> trace = parse_trace("t", text);
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  return trace.ok() ? std::move(trace).value() : Trace();
}

std::string error_of(std::string_view text) {
  const Result<Trace, Status> trace = parse_trace("dir/t.trace", text);
  return trace.ok() ? "no error" : trace.error().message;
}

/// The error is on `line` and says `reason`.
void expect_error(std::string_view text, int line, const std::string& reason) {
  const std::string error = error_of(text);
  EXPECT_EQ(error.find("dir/t.trace:" + std::to_string(line) + ": "), 0U) << error;
  EXPECT_NE(error.find(reason), std::string::npos) << error << "\nlacks: " << reason;
}

TEST(TraceFormat, ReadsHeaderAndEveryKindOfLine) {
  const Trace trace = parse_good(
      "# gpupool allocation trace, version 1\n"
      "# source: somewhere\n"
      "# {\"seconds\": 1.5, \"other\": [1, 2]}\n"
      "a 10 4096 0 0\n"
      "a 11 512 7 25\n"
      "f 10 3\n"
      "f 11 4\n"
      "c 11 5\n");
  ASSERT_EQ(trace.operations.size(), 5U);
  EXPECT_EQ(trace.operation_count, 4U);
  EXPECT_EQ(trace.seconds, 1.5);
  EXPECT_EQ(trace.streams, (std::vector<std::uint64_t>{0, 7}));
  EXPECT_EQ(trace.operations[1].bytes, 512U);
  EXPECT_EQ(trace.operations[1].stream, 1U);
  EXPECT_EQ(trace.operations[1].dt_us, 25U);
  EXPECT_EQ(trace.operations[2].kind, OperationKind::free);
  EXPECT_FALSE(trace.operations[2].completes_later);
  EXPECT_TRUE(trace.operations[3].completes_later);
  EXPECT_EQ(trace.operations[3].stream, 1U) << "a free has its block's stream";
  EXPECT_EQ(trace.operations[4].kind, OperationKind::complete);
}

TEST(TraceFormat, AFreeMayNameAnotherStream) {
  const Trace trace = parse_good("a 0 1 5 0\na 1 1 5 0\nf 0 3 9\nc 0 1\nf 1 0\n");
  EXPECT_EQ(trace.streams, (std::vector<std::uint64_t>{5, 9}));
  EXPECT_EQ(trace.operations[0].stream, 0U);
  EXPECT_EQ(trace.operations[2].stream, 1U);
  EXPECT_EQ(trace.operations[2].dt_us, 3U);
  EXPECT_EQ(trace.operations[3].stream, 1U);
  EXPECT_EQ(trace.operations[4].stream, 0U);
}

TEST(TraceFormat, HeaderIsOptionalAndSecondsAreThenTheSumOfDt) {
  const Trace trace = parse_good("a 0 1 0 500000\nf 0 250000\n");
  ASSERT_TRUE(trace.seconds.has_value());
  EXPECT_DOUBLE_EQ(*trace.seconds, 0.75);
}

TEST(TraceFormat, CommentsBetweenOperationsAreRemarks) {
  const Trace trace = parse_good("a 0 1 0 0\n# {\"seconds\": 9}\n# version 2\nf 0 0\n");
  EXPECT_EQ(trace.operation_count, 2U);
  EXPECT_EQ(*trace.seconds, 0.0);
}

TEST(TraceFormat, TakesCrLfAndALastLineWithoutEnd) {
  EXPECT_EQ(parse_good("a 0 1 0 0\r\nf 0 0\r\n").operation_count, 2U);
  EXPECT_EQ(parse_good("a 0 1 0 0\nf 0 0").operation_count, 2U);
}

TEST(TraceFormat, AllowsZeroBytesAndTheLargestNumber) {
  const Trace trace = parse_good("a 0 0 0 0\na 18446744073709551615 18446744073709551615 3 0\n");
  EXPECT_EQ(trace.operations[0].bytes, 0U);
  EXPECT_EQ(trace.operations[1].bytes, ~std::uint64_t{0});
}

TEST(TraceFormat, AnIdMayBeUsedAgainAfterItsEnd) {
  const Trace trace = parse_good("a 5 1 0 0\nf 5 0\nc 5 0\na 5 2 0 0\nf 5 0\na 5 3 0 0\n");
  EXPECT_EQ(trace.operation_count, 5U);
  EXPECT_EQ(trace.slot_count, 1U);
}

TEST(TraceFormat, ASlotIsUsedAgainOnlyAfterItsBlockIsOver) {
  // Block 0 ends at its `c`, so block 2, which begins before that, needs another slot.
  const Trace trace =
      parse_good("a 0 1 0 0\na 1 1 0 0\nf 0 0\na 2 1 0 0\nf 1 0\na 3 1 0 0\nc 0 0\na 4 1 0 0\n");
  const auto slot = [&](std::size_t i) { return trace.operations[i].slot; };
  EXPECT_EQ(slot(0), 0U);
  EXPECT_EQ(slot(1), 1U);
  EXPECT_EQ(slot(3), 2U);
  EXPECT_EQ(slot(5), 1U);
  EXPECT_EQ(slot(7), 0U);
  EXPECT_EQ(trace.slot_count, 3U);
}

TEST(TraceFormat, RefusesWhatNoProgramCanDo) {
  expect_error("a 0 1 0 0\nf 1 0\n", 2, "frees unknown block 1");
  expect_error("a 0 1 0 0\nf 0 0\nf 0 0\n", 3, "frees block 0 twice (freed on line 2)");
  expect_error("a 0 1 0 0\nf 0 0\nc 0 0\nf 0 0\n", 4, "frees block 0 twice (completed on line 3)");
  expect_error("a 0 1 0 0\n#\na 0 1 0 0\n", 3, "allocates block 0, which is live");
  expect_error("a 0 1 0 0\nc 0 0\n", 2, "completes block 0, which is not freed");
  expect_error("a 0 1 0 0\nc 3 0\n", 2, "completes unknown block 3");
  expect_error("a 0 1 0 0\nf 0 0\nc 0 0\nc 0 0\n", 4, "completes block 0 twice");
  expect_error("a 0 1 0 0\nf 0 0\na 0 1 0 0\nc 0 0\n", 4, "which is not freed");
}

TEST(TraceFormat, RefusesMalformedLines) {
  expect_error("a 0 1 0\n", 1, "too few fields");
  expect_error("a 0 1 0 0 0\n", 1, "too many fields");
  expect_error("a 0 1 0 0 0 0 0 0 0 0 0 0\n", 1, "too many fields");
  expect_error("a 0 1 0 0\nf 0\n", 2, "expected 'f ID DT [STREAM]'");
  expect_error("a 0 1 0 0\nf 0 1 2 3\n", 2, "too many fields (5)");
  expect_error("a 0 1 0 0\nf 0 1 x\n", 2, "'x' in field STREAM");
  expect_error("a 0 1 0 0\nc 0 1 2\n", 2, "expected 'c ID DT'");
  expect_error("x 0 1\n", 1, "unknown kind of line 'x'");
  expect_error("alloc 0 1 0 0\n", 1, "unknown kind of line 'alloc'");
  expect_error("a 0 1 0 0\n\nf 0 0\n", 2, "empty line");
  expect_error(" a 0 1 0 0\n", 1, "unknown kind of line ''");
  expect_error("a  0 1 0 0\n", 1, "too many fields");
  expect_error("a  1 0 0\n", 1, "empty value in field ID");
  expect_error("a 0 1 0 0 \n", 1, "too many fields");
  expect_error("a\t0\t1\t0\t0\n", 1, "unknown kind of line");
}

TEST(TraceFormat, RefusesNumbersThatAreNone) {
  expect_error("a 0 -5 0 0\n", 1, "negative number '-5' in field BYTES");
  expect_error("a -1 5 0 0\n", 1, "negative number '-1' in field ID");
  expect_error("a 0 5 0 -3\n", 1, "negative number '-3' in field DT");
  expect_error("a 0 18446744073709551616 0 0\n", 1, "does not fit in 64 bits");
  expect_error("a 99999999999999999999999 1 0 0\n", 1, "in field ID does not fit in 64 bits");
  expect_error("a 0 1.5 0 0\n", 1, "'1.5' in field BYTES is not a whole decimal number");
  expect_error("a 0 0x10 0 0\n", 1, "is not a whole decimal number");
  expect_error("a 0 1 default 0\n", 1, "'default' in field STREAM");
  expect_error("a 0 +1 0 0\n", 1, "is not a whole decimal number");
  expect_error("a 0 1 0 0\nf zero 0\n", 2, "'zero' in field ID");
}

TEST(TraceFormat, RefusesWhatIsBeyondItsBounds) {
  expect_error("a 0 1 0 18446744073709551615\n", 1, "recorded time is longer");
  expect_error("a 0 1 0 9007199254740992\nf 0 1\n", 2, "recorded time is longer");
  std::string streams;
  for (int i = 0; i < 4097; ++i) {
    const std::string number = std::to_string(i);
    streams += "a " + number + " 1 " + number + " 0\n";
  }
  expect_error(streams, 4097, "more than 4096 streams");
}

TEST(TraceFormat, RefusesABadHeader) {
  expect_error("# gpupool allocation trace, version 2\na 0 1 0 0\n", 1, "version '2'");
  expect_error("#\n# {\"seconds\": \n", 2, "not valid JSON");
  expect_error("# {\"seconds\": \"long\"}\n", 1, "'seconds' is not a number");
  expect_error("# {\"seconds\": -1}\n", 1, "negative");
}

TEST(TraceFormat, RefusesEmptyAndBinary) {
  EXPECT_EQ(error_of(""), "dir/t.trace: is empty");
  EXPECT_EQ(error_of("# only a remark\n"), "dir/t.trace: has no operations");
  expect_error(std::string_view("a 0 1 0 0\n\0\1\2", 13), 2, "binary data");
  expect_error(
      "\x7f"
      "ELF\x02\x01\n",
      1, "binary data");
}

TEST(TraceFormat, QuotesLongAndUnprintableTextSafely) {
  const std::string error = error_of("a 0 " + std::string(5000, '9') + "\xff 0 0\n");
  EXPECT_LT(error.size(), 200U);
  EXPECT_EQ(error_of("\xff\xfe 0\n").find('\xff'), std::string::npos);
}

TEST(Csv, OrdersEventsByTimeWithFreesFirst) {
  const Trace trace = parse_good(
      "id,lower,upper,size\n"
      "7,10,20,100\n"
      "8,0,10,200\n"
      "9,20,30,300\n");
  EXPECT_FALSE(trace.seconds.has_value());
  ASSERT_EQ(trace.operation_count, 6U);
  const std::vector<std::uint64_t> bytes = {200, 0, 100, 0, 300, 0};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(trace.operations[i].bytes, bytes[i]) << i;
    EXPECT_EQ(trace.operations[i].kind,
              bytes[i] != 0 ? OperationKind::allocate : OperationKind::free);
  }
  EXPECT_EQ(trace.slot_count, 1U) << "half-open intervals that touch do not overlap";
}

TEST(Csv, ColumnsMayComeInAnyOrder) {
  const Trace trace = parse_good("size,upper,id,lower\n64,9,3,4\n");
  ASSERT_EQ(trace.operation_count, 2U);
  EXPECT_EQ(trace.operations[0].bytes, 64U);
}

TEST(Csv, ABufferThatLivesNeverMakesNoOperation) {
  EXPECT_EQ(parse_good("id,lower,upper,size\n0,5,5,1\n1,5,6,1\n").operation_count, 2U);
  EXPECT_EQ(error_of("id,lower,upper,size\n0,5,5,1\n"), "dir/t.trace: has no operations");
}

TEST(Csv, RefusesABadHeader) {
  expect_error("id,lower,upper\n0,1,2\n", 1, "no column 'size'");
  expect_error("id,lower,upper,size,alignment\n", 1, "unknown column 'alignment'");
  expect_error("id,lower,upper,id\n", 1, "column 'id' twice");
  expect_error("0,1,2,3\n", 1, "unknown column '0'");
  expect_error("id, lower,upper,size\n", 1, "unknown column ' lower'");
}

TEST(Csv, RefusesMalformedLines) {
  const std::string header = "id,lower,upper,size\n";
  expect_error(header + "0,9,8,1\n", 2, "lower 9 is after upper 8");
  expect_error(header + "0,1,2,3\n0,5,6,3\n", 3, "id 0 twice (first on line 2)");
  expect_error(header + "0,1,2\n", 2, "too few fields");
  expect_error(header + "0,1,2,3,4\n", 2, "too many fields");
  expect_error(header + "0,1,2,-3\n", 2, "negative number '-3' in field size");
  expect_error(header + "zero,1,2,3\n", 2, "'zero' in field id");
  expect_error(header + "0,1,2,\n", 2, "empty value in field size");
  expect_error(header + "0,1,99999999999999999999,3\n", 2, "does not fit in 64 bits");
  expect_error(header + "0,1,2,3\n\n1,1,2,3\n", 3, "empty line");
  EXPECT_EQ(error_of(header), "dir/t.trace: has no operations");
}

TEST(Trace, IsNamedAfterItsFile) {
  const auto name = [](const std::string& path) {
    return parse_trace(path, "a 0 1 0 0\n").value().name;
  };
  EXPECT_EQ(name("/x/gpt-s1.trace.gz"), "gpt-s1");
  EXPECT_EQ(name("A.1048576.csv"), "A.1048576");
  EXPECT_EQ(name("plain"), "plain");
  EXPECT_EQ(name(".gz"), ".gz");
}

}  // namespace
}  // namespace gpupool::tools
