// The records and caches that threads have in the pool: how they come, are found, and end with
// their threads.
#include <algorithm>

#include "pool/pool_impl.h"

namespace gpupool {

using internal::HotSlot;
using internal::MutexLock;
using internal::ThreadCache;
using internal::ThreadRecord;

ThreadRecord* Pool::Impl::find_own_record() const {
  const HotSlot& hot = internal::hot_slot;
  for (const HotSlot::Known& known : hot.known) {
    if (known.pool == serial_) return known.record;
  }
  return nullptr;
}

ThreadRecord* Pool::Impl::own_record() {
  if (ThreadRecord* const known = find_own_record()) return known;
  HotSlot& hot = internal::hot_slot;
  if (hot.is_ending) return nullptr;
  if (!has_watched_exit_.exchange(true)) watch_process();
  ThreadRecord* record = nullptr;
  if (const internal::ThreadExitEntry* const entry = internal::find_own_entry(this)) {
    record = static_cast<ThreadRecord*>(entry->context);
  } else {
    {
      MutexLock lock(mu_);
      record = caches_.open_record();
      if (record == nullptr) return nullptr;
      record->exit.on_exit = on_thread_exit;
      record->exit.owner = this;
      record->exit.context = record;
      arm_all();
    }
    if (!internal::watch_thread(record->exit)) {
      MutexLock lock(mu_);
      caches_.close_record(*record);
      arm_all();
      return nullptr;
    }
  }
  std::shift_right(hot.known.begin(), hot.known.end(), 1);
  hot.known[0] = {serial_, record};
  return record;
}

internal::ThreadCounters& Pool::Impl::counters_of(ThreadRecord* record) {
  if (record != nullptr) return record->counters;
  if (!is_orphan_used_) {
    is_orphan_used_ = true;
    arm_all();
  }
  return orphan_->counters;
}

void Pool::Impl::on_thread_exit(void* impl, void* record) {
  static_cast<Impl*>(impl)->end_thread(*static_cast<ThreadRecord*>(record));
}

void Pool::Impl::end_thread(ThreadRecord& record) {
  if (record.own_stream != 0) end_own_stream(record);
  MutexLock lock(mu_);
  while (ThreadCache* const cache = record.caches) {
    flush(*cache);
    caches_.close_cache(record, *cache);
  }
  fold_peaks();
  caches_.close_record(record);
  arm_all();
}

void Pool::Impl::forget_threads() {
  // One at a time and without the pool's lock, which a thread that ends right now waits for while
  // it holds the other.
  for (;;) {
    ThreadRecord* record = nullptr;
    {
      MutexLock lock(mu_);
      record = caches_.records();
      while (record != nullptr && record->is_forgotten) record = record->next;
      if (record == nullptr) break;
      record->is_forgotten = true;
    }
    internal::forget_thread(record->exit);
  }
  internal::wait_for_exits(this);
}

void Pool::Impl::end_own_stream(const ThreadRecord& record) {
  // Its own thread is here for the last time, and nobody else could close the stream's epoch.
  MutexLock events(events_mu_);
  std::optional<internal::EpochEnd> last;
  {
    MutexLock lock(mu_);
    internal::StreamState* const stream = streams_.find(record.own_stream);
    if (stream != nullptr) last = let_go(stream, &record);
  }
  // As where a stream is released: a second time where the driver refuses the first.
  if (last.has_value() && !this->record(*last)) this->record(*last);
}

// Caches of the calling thread.

ThreadCache* Pool::Impl::switch_to(ThreadRecord& record, const internal::StreamState* stream) {
  if (stream == nullptr || keeps_none_at_hand_) return nullptr;
  ThreadCache* const cache = record.find(stream, stream->index());
  if (cache == nullptr) return nullptr;
  HotSlot& hot = internal::hot_slot;
  hot.pool = hot.is_timing_due ? 0 : serial_;
  hot.stream = stream;
  hot.cache = cache;
  hot.record = &record;
  return cache;
}

bool Pool::Impl::has_at_hand(ThreadRecord& record, const internal::StreamState* stream) {
  const HotSlot& hot = internal::hot_slot;
  return (hot.pool == serial_ && hot.stream == stream) || switch_to(record, stream) != nullptr;
}

ThreadCache* Pool::Impl::open_cache(ThreadRecord* record, const internal::StreamState* stream) {
  if (record == nullptr || stream->is_pseudo()) return nullptr;
  ThreadCache* cache = record->find(stream, stream->index());
  if (cache == nullptr) {
    // What is at hand may be dropped now, because its stream has ended.
    internal::hot_slot.pool = 0;
    cache = caches_.open_cache(*record, stream, stream->index(), options_.cache_small_bytes);
    if (cache == nullptr) return nullptr;
    cache->depot = depots_[stream->index()].get();
  }
  switch_to(*record, stream);
  return cache;
}

}  // namespace gpupool
