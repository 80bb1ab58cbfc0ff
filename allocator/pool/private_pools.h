// The private pools: which calls each of them serves, and which pseudo-streams it consists of.
//
// A private pool is what a graph capture, or a MemPool of PyTorch, gets its memory from. It has no
// memory of its own apart from everybody's: what it serves comes from the ordinary tiers, and its
// frees are put back there with the ticket of a pseudo-stream (Note [Pseudo-streams] in
// stream_table.h), one for each stream that it serves, and for that stream's captures another one.
//
// Which one serves a call, the first that applies:
//   the one that the request names;   of those that were begun, the latest that takes the stream;
//   the one that was announced for the stream;   one of its own for a capture that nobody announced
//
//   pinned bytes = chunks and free runs of its pseudo-streams + its live runs + its fallbacks
//   What is freed and waits for others as well is nobody's alone: RunTable counts that.
//
// Releasing is two steps: released() takes a pool out of use, so that its id begins anew; once all
// work of the device that was given until then is complete, its pseudo-streams are, too
// (take_done).
//
// What a private pool pins at the least is a chunk (128 KiB) for each stream that asks it for
// anything small: a chunk is one stream's, and two graphs, which may run beside each other, must
// not share what they write. So a capture that nobody announced, and that asks for 512 bytes, pins
// 128 KiB until its private pool is released, whether the block was freed in it or not: the graph
// writes there at each launch. One that asks for nothing has no private pool, and pins nothing.
//
// Thread safety: under the pool's lock; is_in_use() from any thread, and Routes are not changed
// once they are there. Cost: of a search a step for each stream of the private pool, however many
// there are (by a list, with 4000 of them, a pair of calls took 5.4 us instead of 0.3); bytes() one
// for each stream of each.
#ifndef GPUPOOL_POOL_PRIVATE_POOLS_H_
#define GPUPOOL_POOL_PRIVATE_POOLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/relaxed.h"
#include "cache/thread_caches.h"
#include "gpupool/pool.h"
#include "stream/stream_table.h"

namespace gpupool::internal {

/// What serves a call with a stream, as far as that can be said without the pool's lock.
struct Placement {
  CapturePoolId pool;  // {0, 0}: the stream itself
  bool is_capturing = false;
  bool is_same_stream = true;  // the handle is still that of the stream
  bool is_private() const noexcept { return !(pool == CapturePoolId{}); }
};

/// A capture that will end in an error is one until it ends.
inline bool is_captured(CaptureState state) noexcept {
  return state == CaptureState::active || state == CaptureState::invalidated;
}

/// Whose requests go where, from one moment to the next change.
struct Routes {
  struct Filter {
    CapturePoolId pool;
    std::shared_ptr<const std::function<bool(RawStream)>> takes;
  };
  struct Announced {
    const StreamState* stream = nullptr;
    CapturePoolId pool;
  };
  std::vector<Filter> filters;  // in the order in which they were begun
  std::vector<Announced> announced;
  bool are_any() const noexcept { return !filters.empty() || !announced.empty(); }
};

class PrivatePools {
 public:
  /// What a block is to the books.
  enum class Kind : std::uint8_t { in_chunk, run, fallback };

  explicit PrivatePools(ThreadCaches& caches)
      : caches_(caches), routes_(std::make_shared<const Routes>()) {}

  /// Whether any call may have to do with a private pool.
  bool is_in_use() const noexcept { return is_in_use_.get(); }

  // Routes. While there are any, each call goes through the pool's lock, where it is asked what
  // serves it: the caches are barred, as while the pool records.
  const std::shared_ptr<const Routes>& routes() const noexcept { return routes_; }
  /// False: it was there.
  bool begin(CapturePoolId pool, std::shared_ptr<const std::function<bool(RawStream)>> takes);
  /// False: there was none.
  bool end(CapturePoolId pool);
  void announce(const StreamState& stream, CapturePoolId pool);
  bool withdraw(const StreamState& stream);

  // Pseudo-streams.
  /// nullptr where the private pool has not served that stream so.
  StreamState* find(const Placement& placement, std::uint64_t stream_id) const;
  void add(const Placement& placement, std::uint64_t stream_id, StreamState& pseudo);
  /// Whether both are of one private pool.
  bool is_of(StreamIndex pseudo, const CapturePoolId& pool) const;

  // The end.
  /// The id's pool, if there is one, serves nobody any more.
  void release(CapturePoolId pool);
  void release_all();  // routes too
  std::uint64_t released_count() const noexcept { return released_.size(); }
  /// The pseudo-streams of those that were released first, `count` of them, which are forgotten.
  std::vector<StreamState*> take_released(std::uint64_t count);

  // The books.
  void note_taken(StreamIndex pseudo, Kind kind, std::uint64_t bytes);
  void note_freed(StreamIndex pseudo, Kind kind, std::uint64_t bytes);
  struct Bytes {
    std::uint64_t pinned = 0;
    std::uint64_t free = 0;  // of those, nobody's block; tails of slabs among them
  };
  /// `bytes_of(pseudo)`: of its chunks, and of its free runs.
  template <class ChunkBytes, class RunBytes>
  Bytes bytes(ChunkBytes chunk_bytes_of, RunBytes run_bytes_of) const;

 private:
  struct Member {
    std::uint64_t stream_id = 0;
    bool is_capturing = false;
    StreamState* state = nullptr;
  };
  struct PrivatePool {
    std::vector<Member> members;
    std::uint64_t live_chunk_bytes = 0;
    std::uint64_t live_run_bytes = 0;
    std::uint64_t fallback_bytes = 0;        // until the end
    std::uint64_t freed_fallback_bytes = 0;  // of those
  };
  using Pointer = std::unique_ptr<PrivatePool>;
  struct IdHash {
    std::size_t operator()(CapturePoolId id) const noexcept {
      // Ids of one kind differ in one of the two, by little.
      return static_cast<std::size_t>(id.first * 0x9e3779b97f4a7c15U ^ id.second);
    }
  };

  PrivatePool* find_pool(CapturePoolId id) const;
  void set_routes(Routes routes);
  void update() noexcept {
    is_in_use_.set(!pools_.empty() || !released_.empty() || routes_->are_any());
  }

  ThreadCaches& caches_;
  std::shared_ptr<const Routes> routes_;
  std::unordered_map<CapturePoolId, Pointer, IdHash> pools_;  // in use
  std::vector<Pointer> released_;                             // the first first
  std::vector<PrivatePool*> by_pseudo_;
  Relaxed<bool> is_in_use_;
};

template <class ChunkBytes, class RunBytes>
PrivatePools::Bytes PrivatePools::bytes(ChunkBytes chunk_bytes_of, RunBytes run_bytes_of) const {
  Bytes sum;
  const auto add = [&](const PrivatePool& pool) {
    std::uint64_t chunks = 0;
    std::uint64_t runs = 0;
    for (const Member& member : pool.members) {
      chunks += chunk_bytes_of(member.state->index());
      runs += run_bytes_of(member.state->index());
    }
    sum.pinned += chunks + runs + pool.live_run_bytes + pool.fallback_bytes;
    sum.free += chunks - pool.live_chunk_bytes + runs + pool.freed_fallback_bytes;
  };
  for (const auto& [id, pool] : pools_) add(*pool);
  for (const Pointer& pool : released_) add(*pool);
  return sum;
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_PRIVATE_POOLS_H_
