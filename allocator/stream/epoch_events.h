// The events that close epochs: recorded into streams, asked whether they are complete, used again.
//
//   in flight on one stream: rising epochs, the oldest first; with no room for another the newest
//   moves on, and covers what the newer one would have
//
// Rules kept here:
//   - nothing is recorded into a stream that is being captured;
//   - nothing is recorded by a handle that has become another stream's.
//
// What is here is all that the pool asks of the driver about streams it knows. Any of these calls
// may take milliseconds while another thread frees memory of the device, so none is made under the
// lock that requests need: StreamTable keeps the epochs under that lock, and gives and takes only
// numbers (EpochEnd, Ticket).
//
// Thread safety: under one lock of its own, the pool's events_mu_. Cost: an identity, a capture
// state and a record a closed epoch; a query for the oldest event of each stream that has one.
#ifndef GPUPOOL_STREAM_EPOCH_EVENTS_H_
#define GPUPOOL_STREAM_EPOCH_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/fixed_ring.h"
#include "gpupool/backend.h"
#include "stream/ticket.h"

namespace gpupool::internal {

/// Closed epochs of one stream that are told apart; with more, the newest ones are as one.
inline constexpr std::size_t kMaxClosedEpochs = 64;

/// The events in flight on one stream. It lies with the stream's epochs, since a free may record
/// one and must not take memory from the heap; but it is EpochEvents' alone.
struct InFlightEvents {
  struct Entry {
    std::uint64_t epoch = 0;
    EventHandle event;
  };
  FixedRing<Entry, kMaxClosedEpochs> ring;
  StreamIndex stream = 0;
  InFlightEvents* next = nullptr;  // by stream, once there was an event
  bool is_listed = false;
};

/// An epoch that is to be closed by an event: all that recording it needs to know.
struct EpochEnd {
  StreamIndex stream = 0;
  std::uint64_t epoch = 0;
  std::uint64_t stream_id = 0;
  RawStream raw = nullptr;
  InFlightEvents* events = nullptr;
  bool is_recorded = false;  // the answer
};

class EpochEvents {
 public:
  explicit EpochEvents(Backend& backend);
  /// Requires: the streams' InFlightEvents are still there.
  ~EpochEvents();
  EpochEvents(const EpochEvents&) = delete;
  EpochEvents& operator=(const EpochEvents&) = delete;

  /// Records an event for `end`; end.is_recorded says whether that was possible. Requires: epochs
  /// of a stream come in rising order.
  void record(EpochEnd& end);
  /// Looks at the oldest events. The epochs that they say are complete, by stream, rising; valid
  /// until the next call.
  const std::vector<Ticket>& poll();
  /// Makes `stream` wait for the first event of `events` that covers the epoch. The epoch that it
  /// covers; nothing where there is none any more, or the driver refuses.
  std::optional<std::uint64_t> wait(RawStream stream, const InFlightEvents& events,
                                    std::uint64_t epoch);
  /// Waits for every event in flight. Errors of the driver end the wait.
  void synchronize();

 private:
  bool may_record(const EpochEnd& end) const;
  bool record_another(const EpochEnd& end);
  void list(InFlightEvents& events);

  Backend& backend_;
  InFlightEvents* first_ = nullptr;
  std::vector<EventHandle> spare_;  // not in flight
  std::vector<Ticket> completed_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_STREAM_EPOCH_EVENTS_H_
