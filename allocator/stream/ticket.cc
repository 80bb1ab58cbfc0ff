#include "stream/ticket.h"

#include <algorithm>

#include "stream/stream_table.h"

namespace gpupool::internal {

void TicketSet::add(Ticket ticket, StreamTable& streams) {
  for (std::size_t i = 0; i < count_; ++i) {
    if (tickets_[i].stream == ticket.stream) {
      tickets_[i].epoch = std::max(tickets_[i].epoch, ticket.epoch);
      return;
    }
  }
  if (count_ == kCapacity) prune(streams);
  if (count_ < kCapacity) {
    tickets_[count_++] = ticket;
    return;
  }
  // The fence covers all that is unfinished now on the streams of the four and the fifth, and what
  // an earlier one covered.
  fence_.sequence = streams.make_fence();
  fence_.groups |= Fence::group_of(ticket.stream);
  for (const Ticket& covered : tickets_) fence_.groups |= Fence::group_of(covered.stream);
  count_ = 0;
}

void TicketSet::add(const TicketSet& other, StreamTable& streams) {
  // Fences first: one made below, on overflow, is later than either.
  fence_.sequence = std::max(fence_.sequence, other.fence_.sequence);
  fence_.groups |= other.fence_.groups;
  for (std::size_t i = 0; i < other.count_; ++i) add(other.tickets_[i], streams);
}

void TicketSet::prune(const StreamTable& streams) {
  if (has_fence() && streams.is_fence_complete(fence_)) fence_ = {};
  std::uint32_t kept = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    if (!streams.is_complete(tickets_[i])) tickets_[kept++] = tickets_[i];
  }
  count_ = kept;
}

StreamIndex TicketSet::holder() const noexcept {
  if (has_fence() || count_ > 1) return kNobody;
  return count_ == 0 ? kAnybody : tickets_[0].stream;
}

}  // namespace gpupool::internal
