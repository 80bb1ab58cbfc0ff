// The most that was requested at once, from shards that are each moved by their own thread.
//
// Note [Peak of several shards]
// One shard: its thread keeps the highest value itself, and the peak is exact. More: the sum is
// taken whenever a shard has risen by a step. A shard that has fallen by a step only lowers its own
// marks, so that it is looked at again when it rises: that needs no sum, since what falls makes no
// peak, and so a thread that mostly frees what others allocated takes no lock for it. When the sum
// is taken, no shard stands more than two steps below the mark up to which it may rise unseen: so
// the peak is at most (2 * shards * step) too low. The step is 1/256 of the peak divided by the
// number of shards, so that the error is 0.8 %; but at least 4 MiB, so that a block smaller than
// that shares nothing between threads: the error of a peak below (shards * 1 GiB) is up to 8 MiB
// for each shard. It may be too high by as much and a cached block: where blocks are freed by
// another thread than allocates them, the sum may miss a free and have an allocation that came
// after it. While the sum is taken nobody rises further above his mark, since that takes the lock.
#include <algorithm>
#include <limits>

#include "pool/pool_impl.h"

namespace gpupool {

using internal::MutexLock;
using internal::ThreadRecord;

namespace {

constexpr std::uint64_t kMinStepBytes = 4 << 20;
constexpr std::uint64_t kStepsInPeak = 256;

}  // namespace

void Pool::Impl::note_step(ThreadRecord& record) {
  // Most looks are for another reason, or were made already.
  if (!record.counters.has_stepped() || record.counters.sink()) return;
  MutexLock lock(mu_);
  note_step_locked(&record);
}

void Pool::Impl::note_step_locked(ThreadRecord* record) {
  fold_peaks();
  arm(record != nullptr ? *record : *orphan_);
}

std::uint64_t Pool::Impl::fold_peaks() {
  const internal::ThreadCaches::LiveBytes live = caches_.live_bytes();
  // Seen from outside, a block that one thread allocates and another frees may be less than none.
  const auto peak = static_cast<std::uint64_t>(std::max<std::int64_t>(live.highest, 0));
  counted_.peak_requested_bytes = std::max(counted_.peak_requested_bytes, peak);
  peak_window_.note_requested(peak);
  return static_cast<std::uint64_t>(std::max<std::int64_t>(live.now, 0));
}

void Pool::Impl::arm(ThreadRecord& record) {
  internal::ThreadCounters& counters = record.counters;
  const std::int64_t live = counters.live();
  if (counters.is_alone.get()) {
    // Its thread may be raising it right now, and then knows better.
    const std::int64_t high = counters.high.get();
    counters.high.exchange_if(high, live);
    return;
  }
  const auto step = static_cast<std::int64_t>(std::max(
      kMinStepBytes, counted_.peak_requested_bytes /
                         (kStepsInPeak * std::max<std::uint64_t>(caches_.record_count(), 1))));
  counters.high.set(live + step);
  counters.low.set(live - step);
}

void Pool::Impl::rearm_all() {
  for (ThreadRecord* record = caches_.records(); record != nullptr; record = record->next) {
    arm(*record);
  }
}

void Pool::Impl::arm_all() {
  fold_peaks();
  const bool is_alone = caches_.record_count() == 2 && !is_orphan_used_;
  for (ThreadRecord* record = caches_.records(); record != nullptr; record = record->next) {
    const bool stands_alone = is_alone && record != orphan_;
    if (stands_alone && record->counters.is_alone.get()) continue;
    record->counters.is_alone.set(stands_alone);
    if (stands_alone) {
      record->counters.low.set(std::numeric_limits<std::int64_t>::min());
      record->counters.high.set(record->counters.live());
    } else {
      arm(*record);
    }
  }
}

}  // namespace gpupool
