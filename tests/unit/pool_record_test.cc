// Recording: what is in the file is what the pool was asked for, in that order, and what cannot be
// in it is counted and said.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/hot_slot.h"
#include "cache/thread_cache.h"
#include "tests/support/recorded_trace.h"
#include "tests/support/units.h"
#include "tests/unit/pool_fixture.h"
#include "tests/unit/worker.h"

namespace gpupool {
namespace {

class PoolRecordTest : public PoolFixture {
 protected:
  void record(RecordOptions options = {}) {
    const auto started = pool_->record(file_.path(), options);
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  /// Ends the recording and reads what it has written, which is a trace.
  RecordedTrace stop() {
    const auto report = pool_->stop_recording();
    EXPECT_TRUE(report.ok()) << report.error().message;
    if (report.ok()) report_ = report.value();
    return read();
  }
  RecordedTrace read() {
    RecordedTrace trace = read_recorded_trace(file_.path());
    EXPECT_EQ(trace.fault, "");
    return trace;
  }
  std::string error_of(const std::string& path, RecordOptions options = {}) {
    const auto started = pool_->record(path, options);
    return started.ok() ? "no error" : started.error().message;
  }

  ScratchFile file_;
  RecordReport report_;
};

TEST_F(PoolRecordTest, WritesWhatIsAskedForInItsOrder) {
  record();
  void* const small = allocate(1000, a_);
  void* const large = allocate(3 * kMiB, b_);
  EXPECT_EQ(pool_->allocate(0, a_).value(), nullptr);
  EXPECT_TRUE(pool_->deallocate(nullptr, a_));
  free(small, a_);
  void* const again = allocate(900, a_);
  EXPECT_EQ(again, small);
  EXPECT_TRUE(pool_->deallocate(large, 3 * kMiB, b_));
  free(again, a_);
  const RecordedTrace trace = stop();
  EXPECT_EQ(trace.text(), "a1000/1 a3145728/2 f1000/1 a900/1 f3145728/2 f900/1");
  EXPECT_EQ(report_.allocations, 3u);
  EXPECT_EQ(report_.frees, 3u);
  EXPECT_EQ(report_.left_out, 0u);
  EXPECT_EQ(report_.end, RecordEnd::stopped);
  EXPECT_EQ(report_.file_bytes, trace.bytes);
  EXPECT_EQ(trace.remarks.front(), "# gpupool allocation trace, version 1");
  EXPECT_TRUE(trace.has_remark("\"pool\": \"default\""));
}

TEST_F(PoolRecordTest, WritesTheTimesOfThePoolsClock) {
  VirtualClock clock;
  PoolOptions options;
  options.clock = &clock;
  make_pool(options);
  clock.advance_ns(123'456'789);
  record();
  clock.advance_ns(2'600);
  void* const block = allocate(512);
  clock.advance_ns(2'600);  // 5.2 us since the start
  free(block);
  clock.advance_ns(1'000'000);
  free(allocate(512));
  clock.advance_ns(9'000);
  const RecordedTrace trace = stop();
  ASSERT_EQ(trace.events.size(), 4u);
  EXPECT_EQ(trace.events[0].time_us, 2u);
  EXPECT_EQ(trace.events[1].time_us, 5u);
  EXPECT_EQ(trace.events[2].time_us, 1005u);
  EXPECT_EQ(trace.events[3].time_us, 1005u);
  EXPECT_EQ(report_.duration_ns, 1'014'200u);
  end_pool();  // before its clock
}

// The driver's own handle, an alignment, a size that no cache serves, a block outside the arena.
TEST_F(PoolRecordTest, TakesEveryWayIn) {
  record();
  void* const by_handle = pool_->allocate(512, RawStream(nullptr)).value();
  AllocationRequest request;
  request.bytes = 5000;
  request.alignment = 64 * kKiB;
  void* const aligned = pool_->allocate(request, b_).value();
  request = {};
  request.bytes = 7000;
  request.allocation_class = AllocationClass::contiguous;
  void* const fallback = pool_->allocate(request, a_).value();
  EXPECT_TRUE(pool_->deallocate(by_handle, 512, RawStream(nullptr)));
  free(aligned, a_);  // on another stream than it was allocated on
  free(fallback, a_);
  EXPECT_EQ(stop().text(), "a512/0 a5000/2 a7000/1 f512/0 f5000/1 f7000/1");
}

TEST_F(PoolRecordTest, BlocksThatAreLiveAtTheStartComeFirst) {
  void* const small = allocate(700, a_);
  void* const buddy = allocate(60 * kKiB, b_);
  void* const run = allocate(2 * kMiB, a_);
  AllocationRequest request;
  request.bytes = 9000;
  request.allocation_class = AllocationClass::contiguous;
  void* const fallback = pool_->allocate(request, b_).value();
  free(allocate(4 * kKiB));  // cached, not live
  record();
  free(run, a_);
  free(fallback, b_);
  void* const next = allocate(512, a_);
  free(buddy, a_);
  const RecordedTrace trace = stop();
  EXPECT_EQ(report_.live_at_start, 4u);
  EXPECT_EQ(report_.allocations, 1u);
  EXPECT_EQ(report_.frees, 3u);
  EXPECT_EQ(report_.left_out, 0u);
  EXPECT_TRUE(trace.has_remark("# blocks that were live when the recording began: 4"));
  std::map<std::uint64_t, std::uint64_t> stream_of;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(trace.events[i].kind, 'a');
    EXPECT_EQ(trace.events[i].time_us, 0u);
    stream_of[trace.events[i].bytes] = trace.events[i].stream;
  }
  const std::map<std::uint64_t, std::uint64_t> expected = {
      {700, 1}, {60 * kKiB, 2}, {2 * kMiB, 1}, {9000, 2}};
  EXPECT_EQ(stream_of, expected);
  EXPECT_EQ(trace.live, 2u);
  free(small);
  free(next);
}

// The same work with and without: what is counted is the same, and so is what serves it.
TEST_F(PoolRecordTest, AHitIsAHitAllTheSame) {
  std::vector<StatsV1> counted;
  for (const bool is_recorded : {false, true}) {
    make_pool({});
    if (is_recorded) record();
    std::mt19937_64 random(3);
    std::vector<std::pair<void*, StreamRef>> blocks;
    for (int i = 0; i < 20'000; ++i) {
      const StreamRef stream = random() % 3 == 0 ? b_ : a_;
      if (blocks.size() < 60 && random() % 2 == 0) {
        const std::uint64_t step = random() % 3 == 0 ? 300 * kKiB : 900;
        blocks.emplace_back(allocate(step * (1 + random() % 20), stream), stream);
      } else if (!blocks.empty()) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        free(blocks.back().first, blocks.back().second);
        blocks.pop_back();
      }
      if (i % 1000 == 0) pool_->maintain();
    }
    for (const auto& [block, stream] : blocks) free(block, stream);
    counted.push_back(pool_->stats());
  }
  const RecordedTrace trace = stop();
  EXPECT_EQ(trace.count('a'), counted[1].requests);
  EXPECT_EQ(trace.count('f'), counted[1].frees);
  EXPECT_GT(counted[0].hits_by_tier[static_cast<std::size_t>(Tier::cache)], 5000u);
  EXPECT_EQ(counted[0].requests, counted[1].requests);
  EXPECT_EQ(counted[0].hits_by_tier, counted[1].hits_by_tier);
  EXPECT_EQ(counted[0].hits, counted[1].hits);
  EXPECT_EQ(counted[0].misses, counted[1].misses);
  EXPECT_EQ(counted[0].frees, counted[1].frees);
  EXPECT_EQ(counted[0].requests_by_size, counted[1].requests_by_size);
  EXPECT_EQ(counted[0].requested_bytes_total, counted[1].requested_bytes_total);
  EXPECT_EQ(counted[0].peak_requested_bytes, counted[1].peak_requested_bytes);
  EXPECT_EQ(counted[0].peak_held_bytes, counted[1].peak_held_bytes);
  EXPECT_EQ(counted[0].cached_bytes, counted[1].cached_bytes);
  EXPECT_EQ(counted[0].driver_calls, counted[1].driver_calls);
}

TEST_F(PoolRecordTest, AfterItsEndNothingIsNotedAndCachesServeAgain) {
  record();
  void* const block = allocate(512);
  EXPECT_EQ(stop().text(), "a512/1");
  const auto size = read().bytes;
  free(block);
  for (int i = 0; i < 100; ++i) free(allocate(512));
  EXPECT_EQ(read().bytes, size);
  // And again, over what is there.
  record();
  free(allocate(900));
  EXPECT_EQ(stop().text(), "a900/1 f900/1");
}

TEST_F(PoolRecordTest, ThreadsThatComeAndGoAreNoted) {
  std::vector<void*> blocks;
  Worker before;  // has its cache when the recording begins
  before.run([&] { free(allocate(512, b_), b_); });
  record();
  before.run([&] { blocks.push_back(allocate(512, b_)); });
  std::thread([&] { blocks.push_back(allocate(600, a_)); }).join();
  free(blocks[0], b_);
  before.run([&] { free(blocks[1], a_); });
  EXPECT_EQ(stop().text(), "a512/2 a600/1 f512/2 f600/1");
}

// Whoever is inside its cache may be about to free a block, which is not to be live in the trace.
TEST_F(PoolRecordTest, BeginsWhenNobodyIsInsideItsCache) {
  Worker owner;
  owner.run([&] { free(allocate(512, b_), b_); });
  std::atomic<bool> is_inside{false};
  std::atomic<bool> has_left{false};
  owner.start([&] {
    internal::ThreadCache& cache = *internal::hot_slot.cache;
    ASSERT_TRUE(cache.claim.enter());
    is_inside = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    has_left = true;
    cache.claim.leave();
  });
  while (!is_inside) std::this_thread::yield();
  record();
  EXPECT_TRUE(has_left);
  owner.run([&] { free(allocate(512, b_), b_); });
  EXPECT_EQ(stop().text(), "a512/2 f512/2");
}

TEST_F(PoolRecordTest, WhatFailsOrIsRefusedIsNoEvent) {
  make_pool_of(16 * kMiB);
  record();
  void* const block = allocate(512);
  EXPECT_FALSE(pool_->allocate(64 * kMiB, a_).ok());
  free(block);
  EXPECT_FALSE(pool_->deallocate(block, a_));      // a second time
  EXPECT_FALSE(pool_->deallocate(&misuses_, a_));  // none of ours
  EXPECT_FALSE(pool_->allocate(512, StreamRef()).ok());
  const RecordedTrace trace = stop();
  EXPECT_EQ(trace.text(), "a512/1 f512/1");
  EXPECT_EQ(report_.failed_requests, 2u);
  EXPECT_EQ(report_.left_out, 0u);
  EXPECT_TRUE(trace.has_remark("# failed request, bytes: 67108864"));
}

TEST_F(PoolRecordTest, AWrongSizeIsTheBlocksFreeAllTheSame) {
  record();
  void* const block = allocate(1000);
  EXPECT_TRUE(pool_->deallocate(block, 999, a_));
  EXPECT_EQ(stop().text(), "a1000/1 f1000/1");
}

// Every event as it was asked for, over every tier, by random.
TEST_F(PoolRecordTest, RandomOperationsAreAllThere) {
  for (const bool verifies : {false, true}) {
    for (const Backing backing : {Backing::vmm, Backing::cudamalloc}) {
      PoolOptions options;
      options.verify_streams = verifies;
      options.backing = backing;
      make_pool(options);
      record();
      std::mt19937_64 random(7);
      std::vector<std::pair<void*, std::uint64_t>> blocks;
      std::string expected;
      const auto note = [&](char kind, std::uint64_t bytes, int stream) {
        if (!expected.empty()) expected += ' ';
        expected += kind + std::to_string(bytes) + "/" + std::to_string(stream + 1);
      };
      const StreamRef streams[] = {a_, b_};
      for (int i = 0; i < 4000; ++i) {
        const auto stream = static_cast<int>(random() % 2);
        if (blocks.size() < 40 && random() % 2 == 0) {
          const std::uint64_t limit = random() % 3 == 0 ? 4 * kMiB : 40 * kKiB;
          const std::uint64_t bytes = 1 + random() % limit;
          blocks.emplace_back(allocate(bytes, streams[stream]), bytes);
          note('a', bytes, stream);
        } else if (!blocks.empty()) {
          std::swap(blocks[random() % blocks.size()], blocks.back());
          free(blocks.back().first, streams[stream]);
          note('f', blocks.back().second, stream);
          blocks.pop_back();
        }
        if (random() % 200 == 0) pool_->maintain();
        if (random() % 500 == 0) pool_->trim(0);
      }
      EXPECT_EQ(stop().text(), expected);
      EXPECT_EQ(report_.left_out, 0u);
      for (const auto& block : blocks) free(block.first);
      pool_->check_invariants();
    }
  }
}

// Bounds.

TEST_F(PoolRecordTest, AFullFileEndsWhereItIsATrace) {
  RecordOptions options;
  options.max_file_bytes = 8 * kKiB;
  record(options);
  for (int i = 0; i < 2000; ++i) free(allocate(512));
  const RecordedTrace trace = stop();
  EXPECT_EQ(report_.end, RecordEnd::file_full);
  EXPECT_LE(trace.bytes, 8 * kKiB);
  EXPECT_GT(trace.bytes, 7 * kKiB);
  EXPECT_LE(trace.live, 1u);
  EXPECT_EQ(trace.count('a'), report_.allocations);
  EXPECT_EQ(trace.count('f'), report_.frees);
  EXPECT_EQ(report_.allocations + report_.frees + report_.left_out, 4000u);
  EXPECT_TRUE(trace.has_remark("# end; " + std::to_string(trace.events.size()) + " operations, " +
                               std::to_string(report_.left_out) + " left out"));
}

TEST_F(PoolRecordTest, LiveBlocksThatDoNotFitAreLeftOut) {
  std::vector<void*> blocks(1000);
  for (void*& block : blocks) block = allocate(512);
  RecordOptions options;
  options.max_file_bytes = 4 * kKiB;
  record(options);
  for (void* const block : blocks) free(block);
  const RecordedTrace trace = stop();
  EXPECT_EQ(report_.end, RecordEnd::file_full);
  EXPECT_GT(report_.live_at_start, 50u);
  EXPECT_EQ(trace.count('a'), report_.live_at_start);
  EXPECT_EQ(report_.live_at_start + report_.frees + report_.left_out, 2000u);
}

TEST_F(PoolRecordTest, AFullBufferEndsTheTrace) {
  RecordOptions options;
  options.buffer_bytes = 4 * kKiB;  // 128 operations; the writer looks every few milliseconds
  record(options);
  for (int i = 0; i < 100'000; ++i) free(allocate(512));
  const RecordedTrace trace = stop();
  EXPECT_EQ(report_.end, RecordEnd::buffer_full);
  EXPECT_GE(trace.events.size(), 128u);
  EXPECT_EQ(trace.events.size() + report_.left_out, 200'000u);
}

// Errors.

TEST_F(PoolRecordTest, WhatCannotBeWrittenIsSaidWithItsPathAndReason) {
  EXPECT_EQ(error_of("/nonexistent/folder/x.trace"),
            "/nonexistent/folder/x.trace: cannot be written: No such file or directory");
  EXPECT_EQ(error_of("/"), "/: cannot be written: Is a directory");
  EXPECT_NE(error_of("/dev/full").find("/dev/full: cannot be written: No space left on device"),
            std::string::npos);
  EXPECT_NE(error_of(file_.path(), {.max_file_bytes = 100}).find("max_file_bytes: at least 4KiB"),
            std::string::npos);
  EXPECT_NE(error_of(file_.path(), {.buffer_bytes = 100}).find("buffer_bytes: at least 4KiB"),
            std::string::npos);
  EXPECT_NE(error_of(file_.path(), {.buffer_bytes = std::uint64_t{1} << 60}).find("no host memory"),
            std::string::npos);
  EXPECT_FALSE(pool_->stop_recording().ok());
  // The pool goes on, and so does the next attempt.
  free(allocate(512));
  record();
  free(allocate(512));
  EXPECT_EQ(stop().events.size(), 2u);
}

TEST_F(PoolRecordTest, OnlyOneRecordingAtATime) {
  EXPECT_FALSE(pool_->stop_recording().ok());
  record();
  void* const block = allocate(512);
  const ScratchFile other;
  EXPECT_EQ(error_of(other.path()), other.path() + ": the pool already records to " + file_.path());
  EXPECT_NE(read_recorded_trace(other.path()).fault, "");  // was not even made
  EXPECT_NE(error_of(file_.path()), "no error");           // nor emptied
  free(block);
  EXPECT_EQ(stop().text(), "a512/1 f512/1");
  const auto again = pool_->stop_recording();
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().message, "stop_recording: the pool does not record");
}

TEST_F(PoolRecordTest, ADiskThatFillsUpLeavesATraceAndSaysSo) {
  constexpr std::uint64_t kRoom = 64 * kKiB + 7;
  ::rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  record();
  ::rlimit small = before;
  small.rlim_cur = kRoom;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  constexpr std::uint64_t kPairs = 20'000;
  for (std::uint64_t i = 0; i < kPairs; ++i) free(allocate(512));
  const auto report = pool_->stop_recording();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, Error::limit_exceeded);
  const std::string& message = report.error().message;
  EXPECT_EQ(message.find(file_.path() + ": cannot be written: File too large"), 0u) << message;
  const RecordedTrace trace = read();
  EXPECT_LE(trace.bytes, kRoom);
  EXPECT_GT(trace.bytes, kRoom - 64);
  const std::uint64_t left_out = 2 * kPairs - trace.events.size();
  EXPECT_NE(message.find(" " + std::to_string(left_out) + " operations left out"),
            std::string::npos)
      << message << ", and there are " << trace.events.size();
}

TEST_F(PoolRecordTest, ThePoolsEndEndsIt) {
  record();
  free(allocate(512));
  free(allocate(3 * kMiB));
  end_pool();
  const RecordedTrace trace = read();
  EXPECT_EQ(trace.text(), "a512/1 f512/1 a3145728/1 f3145728/1");
  EXPECT_TRUE(trace.has_remark("# end; 4 operations, 0 left out"));
}

// A stream's number is used again when it ends, as its index is.
TEST_F(PoolRecordTest, StreamsComeAndGo) {
  record();
  for (int i = 0; i < 100; ++i) {
    const RawStream raw = device_.create_stream();
    const StreamRef stream = pool_->adopt_stream(raw).value();
    void* const block = allocate(512, stream);
    free(block, stream);
    pool_->maintain();
    EXPECT_TRUE(pool_->release_stream(stream));
    device_.destroy_stream(raw);
    pool_->maintain();
  }
  const RecordedTrace trace = stop();
  EXPECT_EQ(report_.left_out, 0u);
  EXPECT_EQ(trace.events.size(), 200u);
  for (const RecordedEvent& event : trace.events) EXPECT_LT(event.stream, 10u);
}

}  // namespace
}  // namespace gpupool
