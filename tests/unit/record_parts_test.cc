// The parts of a recording: the ring between two threads, the file that ends after a whole line,
// and what makes events a trace.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "record/event_ring.h"
#include "record/line_file.h"
#include "record/trace_writer.h"
#include "tests/support/recorded_trace.h"
#include "tests/support/units.h"

namespace gpupool::internal {
namespace {

RecordEvent event_at(std::uint64_t address) {
  RecordEvent event;
  event.address = address;
  return event;
}

TEST(EventRingTest, GivesWhatItWasGivenAndNoMoreThanItHasRoomFor) {
  EventRing ring;
  ASSERT_TRUE(ring.reserve(5 * sizeof(RecordEvent)));  // down to four
  RecordEvent event;
  EXPECT_FALSE(ring.pop(event));
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  for (int round = 0; round < 10; ++round) {
    while (ring.push(event_at(in))) ++in;
    EXPECT_EQ(in - out, 4u);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(ring.pop(event));
      EXPECT_EQ(event.address, out++);
    }
  }
  while (ring.pop(event)) EXPECT_EQ(event.address, out++);
  EXPECT_EQ(in, out);
}

TEST(EventRingTest, OneThreadPutsAnotherTakes) {
  constexpr std::uint64_t kEvents = 100'000;
  EventRing ring;
  ASSERT_TRUE(ring.reserve(64 * sizeof(RecordEvent)));
  std::thread producer([&] {
    for (std::uint64_t i = 0; i < kEvents;) {
      if (ring.push(event_at(i))) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kEvents;) {
    RecordEvent event;
    if (!ring.pop(event)) {
      std::this_thread::yield();
    } else if (event.address != i++) {
      ++wrong;
    }
  }
  producer.join();
  EXPECT_EQ(wrong, 0u);
}

TEST(LineFileTest, WritesWhatItTook) {
  const ScratchFile scratch;
  LineFile file;
  ASSERT_TRUE(file.create(scratch.path()).ok());
  std::uint64_t bytes = 0;
  for (int i = 0; i < 100'000; ++i) {
    const std::string line = "# line " + std::to_string(i) + "\n";
    file.append(line);
    bytes += line.size();
  }
  EXPECT_EQ(file.bytes(), bytes);
  EXPECT_TRUE(file.close().ok());
  const RecordedTrace trace = read_recorded_trace(scratch.path());
  EXPECT_EQ(trace.bytes, bytes);
  EXPECT_EQ(trace.remarks.size(), 100'000u);
  EXPECT_EQ(trace.remarks.back(), "# line 99999");
}

TEST(LineFileTest, AnErrorStaysAndWhatComesLaterIsCounted) {
  LineFile file;
  ASSERT_TRUE(file.create("/dev/full").ok());
  file.append("# head\n");
  file.append("a 0 512 0 0\n");
  EXPECT_FALSE(file.has_failed());
  file.flush();
  EXPECT_TRUE(file.has_failed());
  file.append("f 0 0\n");
  file.flush();
  EXPECT_EQ(file.lost_lines(), 2u);
  EXPECT_EQ(file.bytes(), 0u);
  const auto closed = file.close();
  ASSERT_FALSE(closed.ok());
  EXPECT_EQ(closed.error().message,
            "/dev/full: cannot be written: No space left on device; it ends after 0 bytes");
}

class TraceWriterTest : public testing::Test {
 protected:
  void SetUp() override { create(kMiB); }
  void create(std::uint64_t max_bytes) {
    ASSERT_TRUE(writer_.create(scratch_.path(), max_bytes, {"p\"\n", "a \\ card", 5}).ok());
  }
  void allocate(std::uint64_t address, std::uint64_t bytes, std::uint32_t stream,
                std::uint64_t time_ns) {
    writer_.write({address, bytes, time_ns, stream, RecordEventKind::allocate});
  }
  void free(std::uint64_t address, std::uint32_t stream, std::uint64_t time_ns) {
    writer_.write({address, 0, time_ns, stream, RecordEventKind::free});
  }
  RecordedTrace finish(std::uint64_t missed = 0) {
    const auto report = writer_.finish(9'000, missed);
    EXPECT_TRUE(report.ok());
    if (report.ok()) report_ = report.value();
    RecordedTrace trace = read_recorded_trace(scratch_.path());
    EXPECT_EQ(trace.fault, "");
    return trace;
  }

  ScratchFile scratch_;
  TraceWriter writer_;
  RecordReport report_;
};

TEST_F(TraceWriterTest, TheHeadIsJsonWhateverTheNamesAre) {
  const RecordedTrace trace = finish();
  EXPECT_EQ(trace.remarks[2],
            "# {\"source\": \"gpupool\", \"pool\": \"p??\", \"device\": \"a ? card\", "
            "\"limit_bytes\": 5}");
}

TEST_F(TraceWriterTest, AFreeWithoutItsAllocationIsLeftOut) {
  writer_.begin({{0x1000, 512, 0, 1}}, 1'000);
  free(0x2000, 1, 2'000);
  free(0x1000, 1, 3'000);
  free(0x1000, 1, 4'000);
  allocate(0x1000, 600, 2, 5'000);
  allocate(0x1000, 700, 2, 5'000);  // which is there already
  EXPECT_EQ(finish(10).text(), "a512/1 f512/1 a600/2");
  EXPECT_EQ(report_.live_at_start, 1u);
  EXPECT_EQ(report_.allocations, 1u);
  EXPECT_EQ(report_.frees, 1u);
  EXPECT_EQ(report_.left_out, 13u);
  EXPECT_EQ(report_.duration_ns, 8'000u);
}

TEST_F(TraceWriterTest, StreamsBeyondTheFormatsAreLeftOut) {
  writer_.begin({}, 0);
  allocate(0x1000, 512, 4095, 0);
  allocate(0x2000, 513, 4096, 0);
  free(0x2000, 4096, 0);
  free(0x1000, 5000, 0);
  free(0x1000, 7, 0);
  EXPECT_EQ(finish().text(), "a512/4095 f512/7");
  EXPECT_EQ(report_.left_out, 3u);
}

TEST_F(TraceWriterTest, TimeNeverGoesBack) {
  writer_.begin({}, 10'000);
  allocate(0x1000, 512, 0, 9'000);
  allocate(0x2000, 512, 0, 15'999);
  free(0x1000, 0, 12'000);
  free(0x2000, 0, 17'000);
  const RecordedTrace trace = finish();
  ASSERT_EQ(trace.events.size(), 4u);
  EXPECT_EQ(trace.events[0].time_us, 0u);
  EXPECT_EQ(trace.events[1].time_us, 5u);
  EXPECT_EQ(trace.events[2].time_us, 5u);
  EXPECT_EQ(trace.events[3].time_us, 7u);
}

TEST_F(TraceWriterTest, TheLargestNumbersFitInALine) {
  constexpr std::uint64_t kLargest = ~std::uint64_t{0};
  writer_.begin({}, 0);
  allocate(kLargest, kLargest, 4095, kLargest);
  free(kLargest, 4094, kLargest);
  EXPECT_EQ(finish().text(), "a18446744073709551615/4095 f18446744073709551615/4094");
}

}  // namespace
}  // namespace gpupool::internal
