#include "runs/page_tickets.h"

#include <bit>

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
  if (one_[place] != 0) sum.add(unfinished(place, streams), streams);
}

TicketSet PageTickets::Places::unfinished(std::uint64_t place, const StreamTable& streams) const {
  const std::uint64_t one = one_[place];
  if (one == 0) return TicketSet();
  TicketSet set = one == kSeveral ? several_[place] : TicketSet(TicketSet::ticket_of(one));
  set.prune(streams);
  return set;
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

void PageTickets::reset(PageSpan pages, StreamTable& streams) {
  if (pages.count == 0) return;
  // A group's others are not: what it has is theirs now.
  const std::uint64_t last = (pages.end() - 1) / kGroupPages;
  for (std::uint64_t group = pages.first / kGroupPages; group <= last; ++group) {
    const TicketSet set = groups_.unfinished(group, streams);
    groups_.clear(group);
    if (set.empty()) continue;
    const std::uint64_t first = group * kGroupPages;
    for (std::uint64_t page = first; page < first + kGroupPages; ++page) {
      if (page < pages.first || page >= pages.end()) pages_.add(page, set, streams);
    }
  }
  for (std::uint64_t page = pages.first; page < pages.end(); ++page) pages_.clear(page);
}

std::uint64_t PageTickets::busy(std::uint64_t first, std::uint64_t bits,
                                const StreamTable& streams) const {
  constexpr std::uint64_t kAllOfGroup = (std::uint64_t{1} << kGroupPages) - 1;
  std::uint64_t busy = 0;
  Look last;
  for (std::uint64_t at = 0; at < 64; at += kGroupPages) {
    const std::uint64_t of_group = bits & kAllOfGroup << at;
    if (of_group == 0) continue;
    if (groups_.is_unfinished((first + at) / kGroupPages, streams, last)) {
      busy |= of_group;
      continue;
    }
    for (std::uint64_t left = of_group; left != 0; left &= left - 1) {
      const auto bit = static_cast<unsigned>(std::countr_zero(left));
      if (pages_.is_unfinished(first + bit, streams, last)) busy |= std::uint64_t{1} << bit;
    }
  }
  return busy;
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
