#include "runs/page_tickets.h"

namespace gpupool::internal {

void PageTickets::Places::add_to_others(std::uint64_t place, const TicketSet& tickets,
                                        StreamTable& streams) {
  std::uint64_t& one = one_[place];
  TicketSet& set = several_[place];
  if (one != kSeveral) {
    const Ticket before = TicketSet::ticket_of(one);
    const bool is_over = one == 0 || streams.is_complete(before);
    if (is_over && !TicketSet::is_several(tickets.packed())) {
      one = tickets.packed();
      return;
    }
    set = is_over ? TicketSet() : TicketSet(before);
    one = kSeveral;
  }
  set.prune(streams);
  set.add(tickets, streams);
  if (!TicketSet::is_several(set.packed())) one = set.packed();
}

void PageTickets::Places::add_to(TicketSet& sum, std::uint64_t place, StreamTable& streams) const {
  const std::uint64_t one = one_[place];
  if (one == 0) return;
  TicketSet set = one == kSeveral ? several_[place] : TicketSet(TicketSet::ticket_of(one));
  set.prune(streams);
  sum.add(set, streams);
}

void PageTickets::add_long(std::uint64_t first, std::uint64_t end, const TicketSet& tickets,
                           StreamTable& streams) {
  for (std::uint64_t page = first; page < end;) {
    if (page % kGroupPages == 0 && page + kGroupPages <= end) {
      groups_.add(page / kGroupPages, tickets, streams);
      page += kGroupPages;
    } else {
      pages_.add(page++, tickets, streams);
    }
  }
}

void PageTickets::reset(PageSpan pages) {
  // A group's others are not: it keeps what it has until that is complete.
  for (std::uint64_t page = pages.first; page < pages.end(); ++page) pages_.clear(page);
}

TicketSet PageTickets::of(PageSpan pages, StreamTable& streams) const {
  TicketSet sum;
  std::uint64_t group = ~std::uint64_t{0};
  for (std::uint64_t page = pages.first; page < pages.end(); ++page) {
    pages_.add_to(sum, page, streams);
    if (page / kGroupPages == group) continue;
    group = page / kGroupPages;
    groups_.add_to(sum, group, streams);
  }
  return sum;
}

}  // namespace gpupool::internal
