// Records and caches of threads: opened, found, claimed, closed, used again; and their counters,
// none of which ever falls.
#include "cache/thread_caches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "stream/stream_table.h"

namespace gpupool::internal {
namespace {

class ThreadCachesTest : public testing::TestWithParam<bool> {
 protected:
  ThreadCachesTest() {  // Where the system refuses the fence, the other form is tested twice.
    EXPECT_TRUE(caches_.reserve(GetParam() && has_heavy_fence()));
  }

  ThreadCache& open(ThreadRecord& record, StreamIndex stream) {
    return *caches_.open_cache(record, state(stream), stream, 1 << 20);
  }

  const StreamState* state(std::uint32_t number) { return &states_[number]; }

  ThreadCaches caches_;
  std::map<std::uint32_t, StreamState> states_;
};

TEST_P(ThreadCachesTest, FindsTheOpenCacheOfAStream) {
  ThreadRecord& record = *caches_.open_record();
  // 0 and 64 share a place in the table of what was found last.
  for (const StreamIndex stream : {0u, 1u, 64u, 128u, 65535u}) {
    EXPECT_EQ(record.find(state(stream), stream), nullptr);
    ThreadCache& cache = open(record, stream);
    EXPECT_EQ(cache.stream, stream);
    EXPECT_EQ(cache.stream_bits, BlockWord::stream_bits(stream));
    EXPECT_TRUE(cache.is_empty());
  }
  for (const StreamIndex stream : {0u, 64u, 128u, 1u, 0u, 65535u}) {
    ThreadCache* const cache = record.find(state(stream), stream);
    ASSERT_NE(cache, nullptr);
    EXPECT_EQ(cache->stream, stream);
  }
  EXPECT_EQ(record.find(state(2), 2), nullptr);
  // The same index, but another stream that has it now.
  EXPECT_EQ(record.find(state(1000), 0), nullptr);
  EXPECT_EQ(caches_.cache_count(), 5u);
}

TEST_P(ThreadCachesTest, ABarIsForAllCachesThatThereAreAndThatCome) {
  ThreadRecord& record = *caches_.open_record();
  ThreadCache& before = open(record, 1);
  ASSERT_TRUE(before.claim.enter());
  caches_.bar_all();
  EXPECT_FALSE(caches_.are_all_outside());
  before.claim.leave();
  EXPECT_TRUE(caches_.are_all_outside());
  ThreadCache& meanwhile = open(*caches_.open_record(), 1);
  EXPECT_FALSE(before.claim.enter());
  EXPECT_FALSE(meanwhile.claim.enter());
  EXPECT_EQ(record.find(state(1), 1), &before);
  // Whoever had one barred before lifts only his own bar.
  caches_.unbar(before);
  EXPECT_FALSE(before.claim.enter());
  caches_.unbar_all();
  caches_.bar(before);
  EXPECT_FALSE(before.claim.enter());
  caches_.unbar(before);
  for (ThreadCache* const cache : {&before, &meanwhile, &open(record, 2)}) {
    EXPECT_TRUE(cache->claim.enter());
    cache->claim.leave();
  }
}

TEST_P(ThreadCachesTest, AnEndedCacheIsNotFoundAndLeavesAtTheNextOpening) {
  ThreadRecord& record = *caches_.open_record();
  ThreadCache& cache = open(record, 5);
  cache.claim.end();
  EXPECT_EQ(record.find(state(5), 5), nullptr);
  EXPECT_EQ(caches_.cache_count(), 1u);
  ThreadCache& next = open(record, 5);
  EXPECT_EQ(caches_.cache_count(), 1u);
  EXPECT_EQ(record.find(state(5), 5), &next);
  EXPECT_TRUE(next.claim.enter());
  next.claim.leave();
}

TEST_P(ThreadCachesTest, MemoryOfWhatIsClosedIsUsedAgain) {
  std::set<const void*> places;
  for (int i = 0; i < 100; ++i) {
    ThreadRecord* const record = caches_.open_record();
    places.insert(record);
    record->counters.count_small(1, 700);
    record->own_stream = 7;
    for (StreamIndex stream = 0; stream < 3; ++stream) places.insert(&open(*record, stream));
    while (record->caches != nullptr) caches_.close_cache(*record, *record->caches);
    caches_.close_record(*record);
  }
  EXPECT_EQ(places.size(), 4u);
  EXPECT_EQ(caches_.record_count(), 0u);
  EXPECT_EQ(caches_.cache_count(), 0u);
  EXPECT_EQ(caches_.metadata_bytes(), sizeof(ThreadRecord) + 3 * sizeof(ThreadCache));
  const ThreadRecord& last = *caches_.open_record();
  EXPECT_EQ(last.own_stream, 0u);
  EXPECT_EQ(last.caches, nullptr);
  EXPECT_EQ(last.counters.live(), 0);
  EXPECT_EQ(last.by_stream[1], nullptr);
}

TEST_P(ThreadCachesTest, AHandleNamesItsStreamAsLongAsTheCacheIsThere) {
  ThreadRecord& record = *caches_.open_record();
  const auto raw = reinterpret_cast<RawStream>(std::uintptr_t{0x1000});
  ThreadCache& cache = open(record, 5);
  auto* const named = const_cast<StreamState*>(state(5));
  record.name(raw, 77, cache, named);
  EXPECT_EQ(record.find_named(raw, 77), named);
  EXPECT_EQ(record.find_named(raw, 78), nullptr);  // the handle is another stream's
  cache.claim.end();
  EXPECT_EQ(record.find_named(raw, 77), nullptr);
  caches_.drop_ended(record);
  // What becomes of its memory is of no concern here.
  EXPECT_EQ(&open(*caches_.open_record(), 5), &cache);
  EXPECT_EQ(record.find_named(raw, 77), nullptr);
}

TEST_P(ThreadCachesTest, CountersOfThreadsThatEndedStay) {
  ThreadRecord* const first = caches_.open_record();
  ThreadRecord* const second = caches_.open_record();
  first->counters.count_small(1, 700);
  first->counters.count_run(1 << 20, 1 << 20);
  first->counters.count_tagged(4, 700);
  second->counters.count_small_free(1, 700);
  second->counters.count_tagged_free(4, 700);
  second->counters.count_hit_duration(100);
  const auto check = [&] {
    const CounterTotals totals = caches_.totals();
    EXPECT_EQ(totals.served(), 2u);
    EXPECT_EQ(totals.freed(), 1u);
    EXPECT_EQ(totals.live_bytes(), 1u << 20);
    EXPECT_EQ(totals.tag_bytes[4], 0u);
    EXPECT_EQ(totals.hit_duration.sum_ns, 100u);
    EXPECT_EQ(caches_.live_bytes().now, 1 << 20);
  };
  check();
  caches_.close_record(*second);
  check();
  caches_.close_record(*first);
  check();
}

TEST_P(ThreadCachesTest, RecordsAreBounded) {
  std::vector<ThreadRecord*> records;
  while (ThreadRecord* const record = caches_.open_record()) records.push_back(record);
  EXPECT_EQ(records.size(), ThreadCaches::kMaxThreads);
  EXPECT_EQ(caches_.record_count(), ThreadCaches::kMaxThreads);
  caches_.close_record(*records[77]);
  EXPECT_EQ(caches_.open_record(), records[77]);
  EXPECT_EQ(caches_.open_record(), nullptr);
}

TEST_P(ThreadCachesTest, AClaimGetsAllOwnersThatAreOutside) {
  ThreadRecord& record = *caches_.open_record();
  std::vector<ThreadCache*> claimed;
  EXPECT_EQ(caches_.claim(claimed, false), 0u);
  for (StreamIndex stream = 0; stream < 5; ++stream) claimed.push_back(&open(record, stream));
  ThreadCache* const busy = claimed[1];
  ASSERT_TRUE(busy->claim.enter());
  EXPECT_EQ(caches_.claim(claimed, false), 4u);
  EXPECT_EQ(claimed[4], busy);  // at the end, and not claimed
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(claimed[i]->claim.enter());
    claimed[i]->claim.release();
  }
  busy->claim.leave();
  EXPECT_TRUE(busy->claim.enter());
  busy->claim.leave();
}

TEST_P(ThreadCachesTest, WhoMustHaveAllWaits) {
  ThreadRecord& record = *caches_.open_record();
  std::vector<ThreadCache*> claimed = {&open(record, 0), &open(record, 1)};
  std::atomic<bool> is_inside{false};
  std::atomic<bool> has_left{false};
  std::thread owner([&] {
    ThreadCache& cache = *record.find(state(1), 1);
    EXPECT_TRUE(cache.claim.enter());
    is_inside = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    has_left = true;
    cache.claim.leave();
  });
  while (!is_inside) std::this_thread::yield();
  EXPECT_EQ(caches_.claim(claimed, true), 2u);
  EXPECT_TRUE(has_left);
  owner.join();
}

TEST_P(ThreadCachesTest, EveryCacheIsVisited) {
  std::set<const ThreadCache*> opened;
  for (int i = 0; i < 3; ++i) {
    ThreadRecord& record = *caches_.open_record();
    for (StreamIndex stream = 0; stream < 4; ++stream) opened.insert(&open(record, stream));
  }
  std::set<const ThreadCache*> visited;
  caches_.for_each_cache([&](const ThreadRecord&, ThreadCache& cache) { visited.insert(&cache); });
  EXPECT_EQ(visited, opened);
}

INSTANTIATE_TEST_SUITE_P(Both, ThreadCachesTest, testing::Values(true, false),
                         [](const auto& form) { return form.param ? "Fence" : "Exchange"; });

}  // namespace
}  // namespace gpupool::internal
