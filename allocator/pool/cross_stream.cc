#include "pool/cross_stream.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

namespace gpupool::internal {
namespace {

/// How often a piece is looked for anew, where streams could not be waited for or others took it.
constexpr int kMaxTries = 4;
/// As long as growing takes at least: what another thread's look at the events may cost.
constexpr std::chrono::microseconds kBriefly{50};

}  // namespace

BlockRef CrossStream::take_of_others(const Shape& shape, const StreamState& stream) {
  const CrossStreamPolicy policy = options_.runtime.policy;
  if (policy == CrossStreamPolicy::never || stream.is_pseudo() || stream.is_released()) return {};
  if (const BlockRef block = take_ordered(shape, stream.index()); block.exists()) return block;
  if (policy != CrossStreamPolicy::wait || !streams_.is_own_handle(stream)) return {};
  const std::uint32_t align_units = shape.tier == Tier::run ? shape.align_units : kWithinPage;
  std::vector<StreamIndex> refused;
  for (int i = 0; i < kMaxTries && !stream.is_released(); ++i) {
    const RunId id = tiers_.runs().find_of_others(
        shape.units_needed(), align_units, [&](Ticket ticket) GPUPOOL_REQUIRES(mu_) {
          return !streams_.is_pseudo(ticket.stream) &&
                 std::find(refused.begin(), refused.end(), ticket.stream) == refused.end();
        });
    if (id == 0) return {};
    const TicketSet tickets = tiers_.runs()[id].tickets;
    {
      MutexUnlock unlock(mu_);
      // Who holds it may be stuck in the driver: then growing is as good.
      if (!events_mu_.try_lock_for(kBriefly)) break;
      const bool waits = wait_for(tickets, stream);
      events_mu_.unlock();
      if (!waits) {
        for (std::size_t t = 0; t < tickets.count(); ++t) refused.push_back(tickets[t].stream);
      }
    }
    if (stream.is_released()) return {};
    if (const BlockRef block = take_ordered(shape, stream.index()); block.exists()) return block;
  }
  return {};
}

BlockRef CrossStream::take_ordered(const Shape& shape, StreamIndex stream) {
  if (!streams_.has_order(stream)) return {};
  const bool is_run = shape.tier == Tier::run;
  const std::uint32_t align_units = is_run ? shape.align_units : kWithinPage;
  const RunId id = tiers_.find_ordered(shape.units_needed(), align_units, stream);
  if (id == 0) return {};
  auto how = CrossStreamReuse::dependency;
  const TicketSet& tickets = tiers_.runs()[id].tickets;
  for (std::size_t i = 0; i < tickets.count(); ++i) {
    if (streams_.has_waited_for(stream, tickets[i])) how = CrossStreamReuse::waited;
  }
  ++counted_.cross_stream_reuse[static_cast<std::size_t>(how)];
  if (is_run) return tiers_.take_found(id, shape.units, align_units, stream);
  tiers_.make_chunk_of(id, stream);
  return shape.tier == Tier::buddy ? tiers_.take_buddy(shape.units, stream, Reach::before_end)
                                   : tiers_.take_slot(shape.size_class, stream, Reach::before_end);
}

bool CrossStream::wait_for(const TicketSet& tickets, const StreamState& stream) {
  // Whoever ends a stream holds that lock: its handle is good as long as this one does.
  if (stream.is_released()) return false;
  bool waits_for_all = true;
  for (std::size_t i = 0; i < tickets.count(); ++i) {
    waits_for_all = wait_for(tickets[i], stream) && waits_for_all;
  }
  return waits_for_all;
}

bool CrossStream::wait_for(Ticket ticket, const StreamState& stream) {
  const InFlightEvents* events = nullptr;
  std::optional<EpochEnd> end;
  {
    MutexLock lock(mu_);
    if (streams_.is_after(stream.index(), ticket)) return true;
    // A wait would go into the capture that another thread may have begun.
    if (streams_.is_left_alone(stream)) return false;
    events = &streams_.events_of(ticket.stream);
    if (!streams_.is_recorded(ticket)) {
      end = streams_.begin_close(ticket.stream);
      // Of another thread's own stream, of one that is gone: nobody here can.
      if (!end.has_value()) return false;
    }
  }
  if (end.has_value()) {
    events_.record(*end);
    MutexLock lock(mu_);
    streams_.end_close(*end);
    if (!end->is_recorded) return false;
  }
  const auto covered = events_.wait(stream.raw(), *events, ticket.epoch);
  if (!covered.has_value()) return false;
  MutexLock lock(mu_);
  ++counted_.stream_waits;
  const Ticket waited{ticket.stream, *covered};
  if (end.has_value()) {
    streams_.order_after_all(stream.index(), waited, true);
  } else {
    // What its stream was made to wait for since the event, this one does not wait for.
    streams_.order(stream.index(), waited, true);
  }
  return true;
}

void CrossStream::note_order(StreamIndex source, StreamIndex destination) {
  streams_.order_after_all(destination, streams_.last_ended(source), false);
  if (options_.runtime.policy != CrossStreamPolicy::never) tiers_.note_order(destination);
}

}  // namespace gpupool::internal
