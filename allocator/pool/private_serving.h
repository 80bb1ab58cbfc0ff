// The part of a pool that decides what serves a call, the stream that it names or a private pool
// (private_pools.h); makes blocks a private pool's, and ends private pools.
//
// A block that was served to a private pool has extra uses (base/block_record.h), so that each free
// of it comes to where its pseudo-stream is known, whatever thread and stream it is on. On that
// pseudo-stream it is freed with that one's ticket alone; elsewhere the freeing stream's own comes
// to it. Pseudo-streams have no caches.
//
// Thread safety: as each method says. Cost: of place() two questions to the driver, and where a
// private pool is in use the pool's lock and the program's functions.
#ifndef GPUPOOL_POOL_PRIVATE_SERVING_H_
#define GPUPOOL_POOL_PRIVATE_SERVING_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "pool/pool_state.h"

namespace gpupool::internal {

class PrivateServing : protected PoolState {
 protected:
  PrivateServing(Backend& backend, PoolOptions options) : PoolState(backend, std::move(options)) {}

  /// What serves a call with the stream. `capture`: what the driver has said of it, of a stream
  /// that is named by its handle; by a reference it is asked, also whether that is still what it
  /// was.
  Placement place(const StreamState* stream, std::optional<CaptureState> capture,
                  CapturePoolId named) GPUPOOL_EXCLUDES(mu_);
  /// The same of a free; `is_by_handle`: what the stream is was asked.
  Placement place_free(const StreamState* stream, bool is_by_handle) GPUPOOL_EXCLUDES(mu_);
  /// The stream, or the pseudo-stream in its place; nullptr where there is no index for that.
  StreamState* serving_stream(const Placement& placement, StreamState* stream)
      GPUPOOL_REQUIRES(mu_);
  /// Whose ticket a block with these uses needs for what the stream does with it; nullptr as
  /// before.
  StreamState* using_stream(const Placement& placement, StreamState* stream,
                            const std::vector<ExtraUse>& uses) GPUPOOL_REQUIRES(mu_);
  /// The word of a block that is served to a pseudo-stream.
  BlockWord make_private(BlockWord word, const void* pointer, StreamIndex pseudo,
                         PrivatePools::Kind kind, std::uint64_t bytes) GPUPOOL_REQUIRES(mu_);
  /// Makes room for a stream that was adopted; gives it back.
  StreamIndex know(StreamIndex stream) GPUPOOL_REQUIRES(mu_);

  /// Waits for the device, where that may be and anything is there that waits for no less: released
  /// private pools, and with `abandoned` work of which no event will tell. How many.
  std::uint64_t finish_releases(bool abandoned)
      GPUPOOL_EXCLUDES(release_mu_, growth_mu_, events_mu_, mu_);

 private:
  /// Whether another thread may capture the stream, or be about to.
  bool is_left_to_another(const StreamState& stream) GPUPOOL_EXCLUDES(mu_);
  void find_route(const StreamState& stream, Placement& placement) GPUPOOL_EXCLUDES(mu_);
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_PRIVATE_SERVING_H_
