// What a thread needs at hand to serve a hit: its cache for the pool and stream that it used last,
// and its current tag.
//
// Plain data, so that an access is a load off the thread pointer, without a guard; whoever puts
// something in sees to it that the thread is told when it ends (thread_exits.h). A pool is known by
// a serial number that no other pool of the process has or had, so that what is left of one that is
// gone is never taken for another's.
//
// The library is built for the initial-exec TLS model, which serves programs linked with it and,
// since this block is small, libraries that are loaded late as well. Where the room for those is
// used up, the build for dlopen (GPUPOOL_TLS_DLOPEN) takes the general model.
//
// Thread safety: each thread has its own.
#ifndef GPUPOOL_BASE_HOT_SLOT_H_
#define GPUPOOL_BASE_HOT_SLOT_H_

#include <array>
#include <cstdint>

#include "gpupool/stream.h"
#include "gpupool/tag.h"

#ifndef GPUPOOL_TLS_DLOPEN
#define GPUPOOL_TLS_DLOPEN 0
#endif
#if GPUPOOL_TLS_DLOPEN
#define GPUPOOL_TLS_MODEL
#else
#define GPUPOOL_TLS_MODEL __attribute__((tls_model("initial-exec")))
#endif

namespace gpupool::internal {

struct ThreadCache;
struct ThreadRecord;

struct HotSlot {
  std::uint64_t pool = 0;  // serial number; 0: none
  const StreamState* stream = nullptr;
  ThreadCache* cache = nullptr;
  ThreadRecord* record = nullptr;
  Tag tag = kUntagged;
  bool is_ending = false;      // the thread has given back what it had, and gets nothing more
  bool is_timing_due = false;  // the next allocation is to be timed; until then `pool` stays 0

  /// Records of the pools used lately, for threads that go back and forth between devices.
  struct Known {
    std::uint64_t pool = 0;
    ThreadRecord* record = nullptr;
  };
  std::array<Known, 4> known{};
};

extern constinit thread_local HotSlot hot_slot GPUPOOL_TLS_MODEL;

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_HOT_SLOT_H_
