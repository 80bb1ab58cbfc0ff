#include "stream/ticket_set.h"

namespace gpupool::internal {

TicketSet::Several TicketSet::several() const noexcept {
  Several several;
  if ((head_ & ~kMore) != 0) several.tickets[several.count++] = unpack(head_);
  if (!has_more()) return several;
  for (const std::uint64_t packed : rest_.packed) {
    if (packed != 0) several.tickets[several.count++] = unpack(packed);
  }
  several.fence = {rest_.fence_sequence, rest_.fence_groups};
  return several;
}

void TicketSet::set(const Several& several) noexcept {
  head_ = several.count > 0 ? pack(several.tickets[0]) : 0;
  if (several.count < 2 && several.fence.sequence == 0) return;
  head_ |= kMore;
  for (std::size_t i = 1; i < kCapacity; ++i) {
    rest_.packed[i - 1] = i < several.count ? pack(several.tickets[i]) : 0;
  }
  rest_.fence_sequence = several.fence.sequence;
  rest_.fence_groups = several.fence.groups;
}

void TicketSet::Several::add(Ticket ticket, StreamTable& streams) {
  for (std::size_t i = 0; i < count; ++i) {
    if (tickets[i].stream == ticket.stream) {
      tickets[i].epoch = std::max(tickets[i].epoch, ticket.epoch);
      return;
    }
  }
  if (count == kCapacity) prune(streams);
  if (count < kCapacity) {
    tickets[count++] = ticket;
    return;
  }
  // The fence covers all that is unfinished now on the streams of the four and the fifth, and what
  // an earlier one covered.
  fence.sequence = streams.make_fence();
  fence.groups |= streams.group_of(ticket.stream);
  for (const Ticket& covered : tickets) fence.groups |= streams.group_of(covered.stream);
  count = 0;
}

void TicketSet::Several::prune(const StreamTable& streams) {
  if (fence.sequence != 0 && streams.is_fence_complete(fence)) fence = {};
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!streams.is_complete(tickets[i])) tickets[kept++] = tickets[i];
  }
  count = kept;
}

void TicketSet::Several::forget_shared(const StreamTable& streams) {
  if (fence.sequence != 0 && streams.is_fence_shared(fence)) fence = {};
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!streams.is_shared(tickets[i])) tickets[kept++] = tickets[i];
  }
  count = kept;
}

void TicketSet::add_to_several(Ticket ticket, StreamTable& streams) {
  Several all = several();
  all.add(ticket, streams);
  set(all);
}

void TicketSet::add_several(const TicketSet& other, StreamTable& streams) {
  const Several others = other.several();
  Several all = several();
  // Fences first: one made below, on overflow, is later than either.
  all.fence.sequence = std::max(all.fence.sequence, others.fence.sequence);
  all.fence.groups |= others.fence.groups;
  for (std::size_t i = 0; i < others.count; ++i) all.add(others.tickets[i], streams);
  set(all);
}

void TicketSet::forget_shared_several(const StreamTable& streams) {
  Several all = several();
  all.forget_shared(streams);
  set(all);
}

void TicketSet::keep_first_if_complete(const StreamTable& streams) {
  if (!has_more()) return;
  TicketSet unfinished = *this;
  unfinished.prune(streams);
  if (!unfinished.empty()) return;
  // With a fence nobody knows who freed it.
  const Several all = several();
  head_ = all.count > 0 && !has_fence() ? pack(all.tickets[0]) : 0;
}

bool TicketSet::is_pinned(const StreamTable& streams) const noexcept {
  if (head_ == 0) return false;
  const Several all = several();
  if (has_fence() && (all.fence.groups & Fence::kPseudo) != 0) return true;
  return std::any_of(all.tickets.begin(),
                     all.tickets.begin() + static_cast<std::ptrdiff_t>(all.count),
                     [&](Ticket ticket) { return streams.is_pseudo(ticket.stream); });
}

void TicketSet::prune_several(const StreamTable& streams) {
  Several all = several();
  all.prune(streams);
  set(all);
}

}  // namespace gpupool::internal
