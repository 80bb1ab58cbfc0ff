// Tier T0 as one thread has it: a record for the thread in each pool that it uses, and a cache for
// each stream that it uses there.
//
// Who may touch a cache's contents: its thread, inside the claim; its thread, under the pool's
// lock; and whoever holds that lock and has claimed it. Claims are made and given up under the
// pool's lock, so that an owner that is kept out waits for the lock and finds the cache open.
//
// Thread safety: as said; `next` and `by_stream` are changed by the owner under the pool's lock.
#ifndef GPUPOOL_CACHE_THREAD_CACHE_H_
#define GPUPOOL_CACHE_THREAD_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/thread_exits.h"
#include "cache/claim.h"
#include "cache/magazines.h"
#include "cache/run_bins.h"
#include "cache/thread_counters.h"
#include "gpupool/stream.h"
#include "stream/ticket.h"

namespace gpupool::internal {

class Depot;

struct alignas(64) ThreadCache {
  Claim claim;
  StreamIndex stream = 0;
  std::uint32_t stream_bits = 0;  // the same where it lies in a block's word
  const StreamState* state = nullptr;
  Depot* depot = nullptr;         // of the stream
  ThreadCache* next = nullptr;    // of the same thread, or unused
  bool is_of_own_stream = false;  // the thread's own default stream
  bool may_hold_runs = false;     // and so has a share of the device's limit; under the pool's lock
  /// The last miss was served by another thread's frees, and so may the next: worth the depot's
  /// lock without a look whether anything is there, which would cost as much.
  bool takes_handed_over = false;
  /// The last run for which there was no room made some by a hand-over, and so may the next: worth
  /// a look whether the cache is full of that size alone.
  bool hands_over = false;
  /// Its thread has taken a block back and found no room for it here: it is on its way to the
  /// shared tiers. Set inside the claim, so that whoever ends the stream meanwhile knows of it, and
  /// leaves the ticket that it needs.
  Relaxed<bool> has_left_over;
  Ticket last_ticket;
  RunBins runs;
  Magazines small;

  /// Empty as far as its owner needs to look for it.
  bool is_unused() const noexcept { return runs.bytes() == 0 && small.is_unused(); }
  bool is_empty() const noexcept { return runs.bytes() == 0 && small.is_empty(); }
};

struct alignas(64) ThreadRecord {
  ThreadCounters counters;
  ThreadExitEntry exit;
  std::uint64_t own_stream = 0;  // id of its per-thread default stream, where it has used that
  bool is_forgotten = false;     // its thread's end is of no interest any more
  ThreadCache* caches = nullptr;
  ThreadRecord* previous = nullptr;  // neighbours in the pool's list
  ThreadRecord* next = nullptr;
  std::array<ThreadCache*, 64> by_stream{};  // the last found, by the stream's index

  /// Streams named by their handles, as the driver last identified them.
  struct RawName {
    RawStream raw = nullptr;
    std::uint64_t id = 0;
    ThreadCache* cache = nullptr;
    StreamState* state = nullptr;
  };
  std::array<RawName, 16> raw_names{};
  /// The stream that a handle names, if the thread knows it with this identity. By the owner.
  StreamState* find_named(RawStream raw, std::uint64_t id) const noexcept {
    return raw_names[slot_of(raw)].id == id ? find_named(raw) : nullptr;
  }
  /// The stream that a handle named last. By the owner.
  StreamState* find_named(RawStream raw) const noexcept {
    const RawName& known = raw_names[slot_of(raw)];
    const bool is_known = known.raw == raw && known.cache != nullptr &&
                          known.cache->state == known.state && !known.cache->claim.has_ended();
    return is_known ? known.state : nullptr;
  }
  void name(RawStream raw, std::uint64_t id, ThreadCache& cache, StreamState* state) noexcept {
    raw_names[slot_of(raw)] = {raw, id, &cache, state};
  }

  static std::size_t slot_of(RawStream raw) noexcept {
    // Handles are pointers to large objects, or small numbers.
    const auto bits = reinterpret_cast<std::uintptr_t>(raw);
    return (bits ^ bits >> 4 ^ bits >> 12) % 16;
  }

  /// The thread's open cache for `state`; nullptr if it has none. By the owner.
  ThreadCache* find(const StreamState* state, StreamIndex stream) noexcept {
    ThreadCache*& last = by_stream[stream % by_stream.size()];
    const auto is_meant = [&](const ThreadCache* cache) {
      return cache->state == state && !cache->claim.has_ended();
    };
    if (last != nullptr && is_meant(last)) return last;
    for (ThreadCache* cache = caches; cache != nullptr; cache = cache->next) {
      if (is_meant(cache)) return last = cache;
    }
    return nullptr;
  }
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_CACHE_THREAD_CACHE_H_
