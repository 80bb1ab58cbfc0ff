// What a request that failed is told: the numbers, for a person, for a log and for a program.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"

namespace gpupool {
namespace {

using Json = nlohmann::ordered_json;

std::size_t count_lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
}

void expect_parts(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
  }
}

class FailureReportTest : public PoolFixture {
 protected:
  void SetUp() override {}
  void start(CapacityLimit capacity, std::vector<std::string> tags = {"weights", "activations"}) {
    PoolOptions options;
    options.name = "trainer";
    options.capacity = capacity;
    options.tags = std::move(tags);
    options.cache_small_bytes = 0;
    options.cache_large_bytes = 0;
    options.runtime.out_of_memory.wait_ns = 1'000'000;
    make_pool(options);
  }
  void* allocate_tagged(std::uint64_t bytes, const char* tag) {
    const TagScope scope(pool_->find_tag(tag).value());
    return allocate(bytes);
  }
  FailureReport refuse(std::uint64_t bytes, StreamRef stream) {
    EXPECT_FALSE(pool_->allocate(bytes, stream).ok());
    return pool_->last_failure();
  }
};

TEST_F(FailureReportTest, NothingHasFailed) {
  const FailureReport report;
  EXPECT_EQ(report.text(), "no request has failed");
  EXPECT_EQ(report.headline(), "no request has failed");
  EXPECT_EQ(report.json(), "{\"happened\":false}");
}

TEST_F(FailureReportTest, TheHeadlineIsOneLine) {
  FailureReport report;
  report.happened = true;
  report.error = Error::out_of_memory;
  report.reason = MissReason::fragmented;
  report.requested_bytes = 3 << 19;
  report.limit_bytes = report.limit_in_force_bytes = std::uint64_t{8} << 30;
  report.held_bytes = 1000;
  expect_parts(report.headline(),
               {"out_of_memory", "1.50 MiB requested", "reason fragmented",
                "limit 8.00 GiB (capacity)", "held 1000 B", "largest free block 0 B"});
  EXPECT_EQ(report.headline().find('\n'), std::string::npos);
}

TEST_F(FailureReportTest, SaysWhatIsHeldByWhomAndWhatWasTried) {
  start(64 * kPage);
  void* const weights = allocate_tagged(30 * kPage, "weights");
  void* const activations = allocate_tagged(10 * kPage, "activations");
  void* const plain = allocate(4 * kPage);
  void* const busy = allocate(20 * kPage);
  EXPECT_TRUE(work(raw_a_, busy, 20 * kPage));
  free(busy);
  const FailureReport report = refuse(16 * kPage, b_);

  EXPECT_EQ(report.pool, "trainer");
  EXPECT_EQ(report.requested_alignment, kDefaultAlignment);
  EXPECT_EQ(report.stream_id, device_.stream_id(raw_b_).value());
  EXPECT_EQ(report.held_bytes, report.live_requested_bytes + report.waste_bytes +
                                   report.cached_bytes + report.pending_bytes + report.free_bytes);
  ASSERT_EQ(report.live_by_tag.size(), 3u);
  EXPECT_EQ(report.live_by_tag[0].tag, "weights");
  EXPECT_EQ(report.live_by_tag[0].bytes, 30 * kPage);
  EXPECT_EQ(report.live_by_tag[1].tag, "activations");
  EXPECT_EQ(report.live_by_tag[2].tag, "untagged");
  EXPECT_EQ(report.live_by_tag[2].bytes, 4 * kPage);
  ASSERT_EQ(report.pending_streams.size(), 1u);
  EXPECT_EQ(report.pending_streams[0].stream_id, device_.stream_id(raw_a_).value());
  EXPECT_EQ(report.pending_streams[0].bytes, 20 * kPage);
  EXPECT_TRUE(report.pending_streams[0].is_awaited);
  EXPECT_EQ(report.pending_elsewhere_bytes, 0u);
  for (const LadderRung rung : {LadderRung::caches, LadderRung::events, LadderRung::recycle,
                                LadderRung::grow, LadderRung::trim, LadderRung::wait}) {
    EXPECT_TRUE(report.rungs[static_cast<std::size_t>(rung)].was_tried) << to_string(rung);
  }
  EXPECT_FALSE(report.rungs[static_cast<std::size_t>(LadderRung::callback)].was_tried);
  // The newest first; what failed is not among them, what grew is.
  ASSERT_EQ(report.last_misses.size(), 4u);
  EXPECT_EQ(report.last_misses[0].bytes, 20 * kPage);
  EXPECT_EQ(report.last_misses[3].bytes, 30 * kPage);

  const std::string text = report.text();
  EXPECT_TRUE(text.starts_with("out_of_memory: 32.00 MiB requested, at most ")) << text;
  expect_parts(text, {"alignment 512 B, stream ", "capacity", "pool trainer", "weights 60.00 MiB",
                      "untagged 8.00 MiB", "40.00 MiB  stream ", "wait 0 B in 1.0 ms", "ago"});
  EXPECT_LE(count_lines(text), 25u);
  EXPECT_NE(refuse(17 * kPage, b_).last_misses[0].failed, false);
  free(weights);
  free(activations);
  free(plain);
}

TEST_F(FailureReportTest, TheLargestThatWouldHaveWorkedDoes) {
  start(64 * kPage);
  std::vector<void*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(allocate(4 * kPage));
  for (std::size_t i = 0; i < 16; i += 2) free(blocks[i]);
  const FailureReport report = refuse(33 * kPage, b_);
  EXPECT_EQ(report.largest_satisfiable_bytes, 32 * kPage);
  free(allocate(report.largest_satisfiable_bytes, b_), b_);
  for (std::size_t i = 1; i < 16; i += 2) free(blocks[i]);
}

TEST_F(FailureReportTest, NamesTheLimit) {
  start(8 * kPage);
  void* live = allocate(8 * kPage);
  EXPECT_EQ(refuse(kPage, a_).limit_kind, LimitKind::capacity_bytes);
  free(live);
  start(0.25);
  live = allocate(256 * kMiB);
  const FailureReport report = refuse(kPage, a_);
  EXPECT_EQ(report.limit_kind, LimitKind::capacity_fraction);
  EXPECT_EQ(report.capacity_fraction, 0.25);
  expect_parts(report.text(), {"256.00 MiB  capacity: 0.25 of what the device had free"});
  expect_parts(report.headline(), {"capacity: 0.25 of what the device had free"});
  ASSERT_TRUE(device_.set_taken_by_others(1024 * kMiB - device_.held_bytes()).ok());
  free(live);
  pool_->trim(0);
  ASSERT_TRUE(device_.set_taken_by_others(1000 * kMiB).ok());
  const FailureReport device = refuse(100 * kMiB, a_);
  EXPECT_EQ(device.limit_kind, LimitKind::device);
  expect_parts(device.text(), {"the device has no more; capacity 256.00 MiB"});
  ASSERT_TRUE(device_.set_taken_by_others(0).ok());
}

TEST_F(FailureReportTest, OfManyStreamsTheLargestAndTheRest) {
  start(64 * kPage);
  std::vector<RawStream> raw;
  std::vector<StreamRef> refs;
  std::vector<void*> blocks;
  constexpr std::size_t kStreams = FailureReport::kMaxStreams + 2;
  for (std::size_t i = 0; i < kStreams; ++i) {
    raw.push_back(device_.create_stream());
    refs.push_back(pool_->adopt_stream(raw.back()).value());
    blocks.push_back(allocate((i + 1) * kPage, refs.back()));
  }
  for (std::size_t i = 0; i < kStreams; ++i) {
    EXPECT_TRUE(work(raw[i], blocks[i], kPage));
    free(blocks[i], refs[i]);
  }
  const FailureReport report = refuse(64 * kPage, a_);
  ASSERT_EQ(report.pending_streams.size(), FailureReport::kMaxStreams);
  EXPECT_EQ(report.pending_streams[0].bytes, kStreams * kPage);
  EXPECT_EQ(report.further_pending_streams, 2u);
  EXPECT_EQ(report.pending_elsewhere_bytes, 3 * kPage);
  const auto add = [](std::uint64_t sum, const PendingOfStream& it) { return sum + it.bytes; };
  EXPECT_EQ(std::accumulate(report.pending_streams.begin(), report.pending_streams.end(),
                            report.pending_elsewhere_bytes, add),
            report.pending_bytes);
  EXPECT_LE(count_lines(report.text()), 25u);
}

TEST_F(FailureReportTest, PendingSlotsAndFallbacksHaveTheirStream) {
  start(64 * kPage);
  AllocationRequest request;
  request.bytes = 4 * kPage;
  request.allocation_class = AllocationClass::contiguous;
  void* const fallback = pool_->allocate(request, a_).value();
  void* const slot = allocate(1000, b_);
  void* const kept = allocate(1000, b_);
  EXPECT_TRUE(work(raw_a_, fallback, kPage));
  EXPECT_TRUE(work(raw_b_, slot, 1000));
  free(fallback, a_);
  free(slot, b_);
  EXPECT_FALSE(pool_->allocate(64 * kPage, a_).ok());
  const FailureReport report = pool_->last_failure();
  ASSERT_EQ(report.pending_streams.size(), 2u);
  EXPECT_EQ(report.pending_streams[0].bytes, 4 * kPage);
  EXPECT_GE(report.pending_streams[1].bytes, 1000u);
  EXPECT_EQ(report.pending_elsewhere_bytes, 0u);
  free(kept, b_);
}

TEST_F(FailureReportTest, StreamsHaveTheHandlesThatTheProgramKnows) {
  start(64 * kPage);
  const auto number = [](RawStream raw) { return reinterpret_cast<std::uintptr_t>(raw); };
  const auto hex = [&](RawStream raw) {
    std::ostringstream text;
    text << "0x" << std::hex << number(raw);
    return text.str();
  };
  void* const block = allocate(20 * kPage, a_);
  void* const of_ended = allocate(10 * kPage, b_);
  EXPECT_TRUE(work(raw_a_, block));
  EXPECT_TRUE(work(raw_b_, of_ended));
  free(block, a_);
  free(of_ended, b_);
  const RawStream raw_c = device_.create_stream();
  const StreamRef c = pool_->adopt_stream(raw_c).value();
  FailureReport report = refuse(60 * kPage, c);
  EXPECT_EQ(report.stream_handle, number(raw_c));
  ASSERT_EQ(report.pending_streams.size(), 2u);
  EXPECT_EQ(report.pending_streams[0].stream_handle, number(raw_a_));
  EXPECT_EQ(report.pending_streams[1].stream_handle, number(raw_b_));
  ASSERT_FALSE(report.last_misses.empty());
  EXPECT_EQ(report.last_misses[0].stream_handle, number(raw_b_));
  const std::string id_a = std::to_string(device_.stream_id(raw_a_).value());
  const std::string id_c = std::to_string(device_.stream_id(raw_c).value());
  expect_parts(report.text(), {("stream " + id_c + " (" + hex(raw_c) + ")").c_str(),
                               ("stream " + id_a + " (" + hex(raw_a_) + "): 40.00 MiB").c_str()});
  const Json json = Json::parse(report.json());
  EXPECT_EQ(json["stream_handle"], hex(raw_c));
  EXPECT_EQ(json["pending_streams"][0]["stream_handle"], hex(raw_a_));
  EXPECT_EQ(json["last_misses"][0]["stream_handle"], hex(raw_b_));
  // Of a stream that has ended the handle may be another's by now.
  EXPECT_TRUE(pool_->release_stream(b_));
  report = refuse(60 * kPage, c);
  ASSERT_EQ(report.pending_streams.size(), 2u);
  EXPECT_FALSE(report.pending_streams[1].stream_handle.has_value());
  EXPECT_TRUE(Json::parse(report.json())["pending_streams"][1]["stream_handle"].is_null());
}

TEST_F(FailureReportTest, OnlyTheLastMissesAreKept) {
  start(64 * kPage);
  for (std::uint64_t i = 1; i <= 40; ++i) {
    EXPECT_FALSE(pool_->allocate(64 * kPage + i, a_).ok());
  }
  const auto misses = pool_->last_failure().last_misses;
  ASSERT_EQ(misses.size(), FailureReport::kMaxMisses);
  for (std::size_t i = 0; i < misses.size(); ++i) EXPECT_EQ(misses[i].bytes, 64 * kPage + 39 - i);
}

TEST_F(FailureReportTest, TheJsonIsValidAndSaysTheSame) {
  start(0.5);
  void* const weights = allocate_tagged(500 * kMiB, "weights");
  const FailureReport report = refuse(64 * kMiB, b_);
  const Json json = Json::parse(report.json());
  EXPECT_EQ(json["happened"], true);
  EXPECT_EQ(json["error"], "out_of_memory");
  EXPECT_EQ(json["reason"], "budget");
  EXPECT_EQ(json["limit_kind"], "capacity_fraction");
  EXPECT_EQ(json["capacity_fraction"], 0.5);
  EXPECT_EQ(json["requested_bytes"], 64 * kMiB);
  EXPECT_EQ(json["live_by_tag"]["weights"], 500 * kMiB);
  EXPECT_EQ(json["rungs"].size(), kLadderRungCount);
  EXPECT_EQ(json["rungs"]["grow"]["was_tried"], true);
  EXPECT_EQ(json["rungs"]["callback"]["was_tried"], false);
  EXPECT_EQ(json["last_misses"].size(), report.last_misses.size());
  EXPECT_EQ(json["last_misses"][0]["reason"], "cold");
  EXPECT_EQ(json["retries"], 0);
  free(weights);
}

TEST_F(FailureReportTest, NamesAreEscaped) {
  FailureReport report;
  report.happened = true;
  report.pool = "a\"b\\c\n\x01";
  report.live_by_tag = {{"\t\"", 7}};
  report.time_ns = ~std::uint64_t{0};
  const Json json = Json::parse(report.json());
  EXPECT_EQ(json["pool"], report.pool);
  EXPECT_EQ(json["live_by_tag"]["\t\""], 7);
  EXPECT_EQ(json["time_ns"], report.time_ns);
}

}  // namespace
}  // namespace gpupool
