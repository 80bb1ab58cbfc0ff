#include "cache/thread_caches.h"

#include <sched.h>

#include <algorithm>
#include <new>

#include "base/check.h"
#include "base/spin.h"
#include "stream/stream_table.h"

namespace gpupool::internal {
namespace {

/// How often to look whether an owner has left before it is passed over: its stay is some twenty
/// instructions, so that longer means that it does not run.
constexpr int kPatience = 2000;

}  // namespace

bool ThreadCaches::reserve(bool has_fence) {
  has_fence_ = has_fence;
  return record_memory_.reserve(kMaxThreads) && cache_memory_.reserve(kMaxCaches);
}

ThreadRecord* ThreadCaches::open_record() {
  ThreadRecord* record = unused_records_;
  if (record != nullptr) {
    unused_records_ = record->next;
  } else {
    if (record_end_ == record_memory_.size()) return nullptr;
    record = &record_memory_[record_end_++];
  }
  record = new (record) ThreadRecord();
  record->counters.start();
  record->next = list_;
  if (list_ != nullptr) list_->previous = record;
  list_ = record;
  ++record_count_;
  return record;
}

void ThreadCaches::close_record(ThreadRecord& record) {
  GPUPOOL_CHECK(record.caches == nullptr);
  record.counters.add_to(ended_);
  (record.previous != nullptr ? record.previous->next : list_) = record.next;
  if (record.next != nullptr) record.next->previous = record.previous;
  record.next = unused_records_;
  unused_records_ = &record;
  --record_count_;
}

ThreadCache* ThreadCaches::open_cache(ThreadRecord& record, const StreamState* state,
                                      StreamIndex stream, std::uint64_t small_limit_bytes) {
  drop_ended(record);
  ThreadCache* cache = unused_caches_;
  if (cache != nullptr) {
    unused_caches_ = cache->next;
  } else {
    if (cache_end_ == cache_memory_.size()) return nullptr;
    cache = new (&cache_memory_[cache_end_++]) ThreadCache();
  }
  cache->stream = stream;
  cache->stream_bits = BlockWord::stream_bits(stream);
  cache->state = state;
  cache->is_of_own_stream = state->raw() == per_thread_stream();
  cache->may_hold_runs = false;
  cache->takes_handed_over = false;
  cache->hands_over = false;
  cache->has_left_over.set(false);
  cache->runs.start();
  cache->small.start(small_limit_bytes);
  cache->claim.start(has_fence_, bars_ > 0);
  cache->next = record.caches;
  record.caches = cache;
  record.by_stream[stream % record.by_stream.size()] = cache;
  ++cache_count_;
  return cache;
}

void ThreadCaches::drop_ended(ThreadRecord& record) {
  for (ThreadCache* cache = record.caches; cache != nullptr;) {
    ThreadCache* const next = cache->next;
    if (cache->claim.has_ended()) close_cache(record, *cache);
    cache = next;
  }
}

void ThreadCaches::close_cache(ThreadRecord& record, ThreadCache& cache) {
  GPUPOOL_CHECK(cache.is_empty());
  cache.claim.end();
  std::replace(record.by_stream.begin(), record.by_stream.end(), &cache,
               static_cast<ThreadCache*>(nullptr));
  // Its memory may be another thread's soon, who writes it while this one would look there.
  for (ThreadRecord::RawName& known : record.raw_names) {
    if (known.cache == &cache) known = {};
  }
  ThreadCache** link = &record.caches;
  while (*link != &cache) link = &(*link)->next;
  *link = cache.next;
  cache.next = unused_caches_;
  unused_caches_ = &cache;
  --cache_count_;
}

std::size_t ThreadCaches::claim(std::vector<ThreadCache*>& caches, bool must_have_all) const {
  if (caches.empty()) return 0;
  for (ThreadCache* cache : caches) cache->claim.claim();
  if (has_fence_) heavy_fence();
  const auto is_outside = [&](ThreadCache* cache) {
    for (int i = 0; i < kPatience; ++i) {
      if (cache->claim.is_outside()) return true;
      pause_briefly();
    }
    while (must_have_all && !cache->claim.is_outside()) ::sched_yield();
    if (must_have_all) return true;
    cache->claim.release();
    return false;
  };
  const auto end = std::stable_partition(caches.begin(), caches.end(), is_outside);
  return static_cast<std::size_t>(end - caches.begin());
}

void ThreadCaches::bar_all() {
  if (bars_++ > 0) return;
  for_each_cache([](const ThreadRecord&, ThreadCache& cache) { cache.claim.bar(); });
  if (has_fence_) heavy_fence();
}

void ThreadCaches::unbar_all() {
  if (--bars_ > 0) return;
  for_each_cache([](const ThreadRecord&, ThreadCache& cache) { cache.claim.unbar(); });
}

bool ThreadCaches::are_all_outside() const {
  bool is_any_inside = false;
  for_each_cache([&](const ThreadRecord&, const ThreadCache& cache) {
    is_any_inside = is_any_inside || !cache.claim.is_outside();
  });
  return !is_any_inside;
}

CounterTotals ThreadCaches::totals() const {
  CounterTotals totals = ended_;
  for (const ThreadRecord* record = list_; record != nullptr; record = record->next) {
    record->counters.add_to(totals);
  }
  return totals;
}

ThreadCaches::LiveBytes ThreadCaches::live_bytes() const {
  LiveBytes sum{ended_.net_bytes(), ended_.net_bytes()};
  for (const ThreadRecord* record = list_; record != nullptr; record = record->next) {
    const ThreadCounters& counters = record->counters;
    const std::int64_t live = counters.live();
    sum.now += live;
    sum.highest += counters.is_alone.get() ? std::max(live, counters.high.get()) : live;
  }
  return sum;
}

}  // namespace gpupool::internal
