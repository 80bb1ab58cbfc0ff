// What a pool that recycles pages owes to a request, judged from outside (occupancy.h).
#include <algorithm>
#include <utility>

#include "tests/support/units.h"
#include "tests/support/world.h"

namespace gpupool::test {

bool World::is_judged() const {
  return options.owes_empty_pages && !has_faults && taken_by_others == 0;
}

Occupancy::Busy World::busy_streams() {
  Occupancy::Busy busy = unannounced_;
  for (const auto& [key, raw] : raw_by_key_) {
    if (!device.is_idle(raw)) busy.insert(key);
  }
  for (const auto& [key, event] : last_event_) {
    const auto is_done = device.query_event(event);
    if (!is_done.ok() || !is_done.value()) busy.insert(key);
  }
  return busy;
}

void World::note_flush(const Occupancy::Busy& busy, std::uint64_t others) {
  // What others freed meanwhile may have come after the caches were emptied.
  if (is_judged() && others_let_in == others) occupancy.clear(busy);
}

void World::judge_refusal(const Allocate& request, const Occupancy::Busy& busy) {
  if (!is_judged() || request.bytes > options.capacity_bytes) return;
  const bool is_plain = request.allocation_class == AllocationClass::contiguous;
  const std::uint64_t room = is_plain ? occupancy.plain_room_bytes(busy)
                                      : occupancy.room_pages(busy) * Occupancy::kPageBytes;
  const std::uint64_t need = is_plain ? plain_bytes_of(request) : request.bytes;
  if (need > room) return;
  fail("refused, though " + std::to_string(room / Occupancy::kPageBytes) +
       " pages are empty: " + pool->last_failure().text());
}

void World::check_growth(const StatsV1& stats) {
  if (options.recycling != Recycling::eager || options.backing != Backing::vmm || has_faults)
    return;
  const auto add_pages = [](std::set<std::uint64_t>& pages, std::uint64_t address,
                            std::uint64_t bytes) {
    for (std::uint64_t page = address / kPage; page * kPage < address + bytes; ++page) {
      pages.insert(page);
    }
  };
  // What was pending when a request came may be complete when it is served.
  std::set<std::uint64_t> at_once = std::move(occupied_pages_);
  for (; known_blocks_ < handed_out.size(); ++known_blocks_) {
    const auto address = reinterpret_cast<std::uint64_t>(handed_out[known_blocks_]);
    const auto block = model.blocks().find(address);
    if (block == model.blocks().end()) continue;  // freed within the same operation
    add_pages(at_once, address, block->second.bytes);
  }
  occupied_pages_.clear();
  pool->visit_blocks([&](const BlockInfo& info) {
    if (info.is_fallback || info.state == BlockState::free) return;
    add_pages(occupied_pages_, info.address, info.bytes);
  });
  // Where one stream is known alone, all that it freed is shown as free.
  occupancy.add_pending_pages(busy_streams(), occupied_pages_);
  const std::uint64_t at_most = std::max(at_once.size(), occupied_pages_.size());
  most_occupied_pages_ = std::max(most_occupied_pages_, at_most);
  const auto allowed =
      static_cast<std::uint64_t>(static_cast<double>(most_occupied_pages_) * (1.0 + options.slack));
  const std::uint64_t before = std::max(arena_pages_, options.reserve_bytes / kPage);
  arena_pages_ = (stats.held_bytes - stats.fallback_bytes) / kPage;
  if (arena_pages_ > std::max(before, allowed)) {
    fail(std::to_string(arena_pages_) + " pages are held, and " +
         std::to_string(most_occupied_pages_) + " at most were ever occupied");
  }
}

void World::check_moves() {
  if (options.recycling == Recycling::off || options.alias_reuse != AliasReuse::wait) return;
  std::set<std::uint64_t> pages;
  pool->visit_blocks([&](const BlockInfo& info) {
    for (std::uint64_t page = info.address / kPage; page * kPage < info.address + info.bytes;
         ++page) {
      pages.insert(page);
    }
  });
  // One that has moved is where it was no more.
  model.for_each_unfinished([&](std::uint64_t address, std::uint64_t bytes) {
    for (std::uint64_t page = address / kPage; page * kPage < address + bytes; ++page) {
      if (pages.count(page) == 0) fail("a page was moved before the work on it was complete");
    }
  });
}

}  // namespace gpupool::test
