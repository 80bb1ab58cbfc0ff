// The part of a pool that lets one stream have what another has freed before the work on it is
// known to be complete: where the program has ordered the two (note_dependency), or the pool does
// (CrossStreamPolicy::wait).
//
// The pool never takes a piece and then waits: it makes the asking stream wait for what the piece
// waits for, notes that order (Note [Order] in stream_table.h), and then looks for a piece which
// the stream comes after anyhow. So there is nothing to put back where the driver refuses, and what
// others take meanwhile does no harm.
//
// Why a block that was got so needs no mark: whoever frees a block on a stream says that the stream
// comes after the block's allocation and its uses. So all streams that get it next come after the
// work that it was taken from.
//
// Thread safety: as each method says; driver calls under events_mu_ alone. Cost: below the shared
// tiers, before growth: that of RunTable::find_of_others(), for one that waits also up to four
// events.
#ifndef GPUPOOL_POOL_CROSS_STREAM_H_
#define GPUPOOL_POOL_CROSS_STREAM_H_

#include <utility>

#include "pool/private_serving.h"
#include "pool/shape.h"

namespace gpupool::internal {

class CrossStream : protected PrivateServing {
 protected:
  CrossStream(Backend& backend, PoolOptions options)
      : PrivateServing(backend, std::move(options)) {}

  /// A block of what others have freed, as the policy says. May let go of the lock.
  BlockRef take_of_others(const Shape& shape, const StreamState& stream) GPUPOOL_REQUIRES(mu_)
      GPUPOOL_EXCLUDES(events_mu_);
  /// What `source` has freed by now is ordered before what `destination` is given. Requires: its
  /// epoch has ended, and its caches are empty.
  void note_order(StreamIndex source, StreamIndex destination) GPUPOOL_REQUIRES(mu_);

 private:
  BlockRef take_ordered(const Shape& shape, StreamIndex stream) GPUPOOL_REQUIRES(mu_);
  /// Makes the stream wait for all of them. False: it does not for some.
  bool wait_for(const TicketSet& tickets, const StreamState& stream) GPUPOOL_REQUIRES(events_mu_)
      GPUPOOL_EXCLUDES(mu_);
  bool wait_for(Ticket ticket, const StreamState& stream) GPUPOOL_REQUIRES(events_mu_)
      GPUPOOL_EXCLUDES(mu_);
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_CROSS_STREAM_H_
