// All records and caches that threads have in one pool, in memory of their own: a thread that frees
// for the first time gets its cache without the host's heap.
//
// Thread safety: under the pool's lock, except what thread_cache.h leaves to the owner. Cost: O(1),
// but for walks over all, and claims, which cost one heavy_fence() for any number of caches.
#ifndef GPUPOOL_CACHE_THREAD_CACHES_H_
#define GPUPOOL_CACHE_THREAD_CACHES_H_

#include <cstdint>
#include <vector>

#include "base/heavy_fence.h"
#include "base/lazy_array.h"
#include "cache/thread_cache.h"

namespace gpupool::internal {

class ThreadCaches {
 public:
  static constexpr std::size_t kMaxThreads = 16384;
  static constexpr std::size_t kMaxCaches = 65536;

  /// `has_fence`: claims are made by heavy_fence(), else by a locked exchange of each owner.
  bool reserve(bool has_fence = has_heavy_fence());

  /// A record for the calling thread, not watched yet; nullptr where kMaxThreads have one.
  ThreadRecord* open_record();
  /// Requires: its caches are closed. Its counters go to the totals of threads that ended.
  void close_record(ThreadRecord& record);
  /// nullptr where kMaxCaches are in use.
  ThreadCache* open_cache(ThreadRecord& record, const StreamState* state, StreamIndex stream,
                          std::uint64_t small_limit_bytes);
  /// Takes caches that have ended, because their streams have, out of the owner's record.
  void drop_ended(ThreadRecord& record);
  /// By the owner, or once it is gone. Requires: empty.
  void close_cache(ThreadRecord& record, ThreadCache& cache);

  ThreadRecord* records() noexcept { return list_; }
  const ThreadRecord* records() const noexcept { return list_; }
  std::size_t record_count() const noexcept { return record_count_; }
  std::size_t cache_count() const noexcept { return cache_count_; }
  template <class F>
  void for_each_cache(F visit) const {
    for (ThreadRecord* record = list_; record != nullptr; record = record->next) {
      for (ThreadCache* cache = record->caches; cache != nullptr; cache = cache->next) {
        visit(*record, *cache);
      }
    }
  }

  /// Keeps the owners of `caches` out, and returns how many of them, moved to the front, they have
  /// been kept out of: an owner that the scheduler has stopped inside is not waited for, unless
  /// `must_have_all`.
  std::size_t claim(std::vector<ThreadCache*>& caches, bool must_have_all) const;

  /// Has every owner, of caches opened later too, go through the pool's lock until it is unbarred;
  /// none is inside any more once are_all_outside().
  void bar_all();
  void unbar_all();
  bool are_all_outside() const;
  /// The same for one owner, from the next claim on.
  void bar(ThreadCache& cache) const noexcept { cache.claim.bar(); }
  void unbar(ThreadCache& cache) const noexcept {
    if (!is_barred_) cache.claim.unbar();
  }

  /// Adds up all shards, threads that have ended included.
  CounterTotals totals() const;
  struct LiveBytes {
    std::int64_t now = 0;
    /// The most that they were since a lone shard was last looked at; the others stand still then.
    std::int64_t highest = 0;
  };
  LiveBytes live_bytes() const;
  std::uint64_t metadata_bytes() const noexcept {
    return record_end_ * sizeof(ThreadRecord) + cache_end_ * sizeof(ThreadCache);
  }

 private:
  LazyArray<ThreadRecord> record_memory_;
  LazyArray<ThreadCache> cache_memory_;
  bool has_fence_ = false;
  bool is_barred_ = false;
  ThreadRecord* list_ = nullptr;
  ThreadRecord* unused_records_ = nullptr;
  ThreadCache* unused_caches_ = nullptr;
  std::size_t record_end_ = 0;
  std::size_t cache_end_ = 0;
  std::size_t record_count_ = 0;
  std::size_t cache_count_ = 0;
  CounterTotals ended_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_CACHE_THREAD_CACHES_H_
