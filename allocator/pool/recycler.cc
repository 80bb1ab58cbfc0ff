#include "pool/recycler.h"

#include <algorithm>
#include <bit>

#include "base/units.h"

namespace gpupool::internal {
namespace {

/// The largest handle. The driver's cost is per handle (about 28 us), hardly per byte, so that few
/// large ones are cheaper to map; larger still would be too coarse to give back.
constexpr std::uint64_t kMaxHandlePages = 16;
/// Where pages move, a handle is at most this part of what is held: larger ones are cheaper to map
/// (a third of the driver's time where 20 GB are held), and pin what is empty beside what is not.
constexpr std::uint64_t kHandleShare = 2000;

/// Goes through the pages of a plan from first to last.
class Cursor {
 public:
  explicit Cursor(const std::vector<PageSpan>& spans) : spans_(spans) {}
  std::uint64_t left_in_span() const {
    return index_ < spans_.size() ? spans_[index_].count - offset_ : 0;
  }
  PageSpan next(std::uint64_t count) {
    const PageSpan pages{spans_[index_].first + offset_, count};
    offset_ += count;
    if (offset_ == spans_[index_].count) {
      ++index_;
      offset_ = 0;
    }
    return pages;
  }

 private:
  const std::vector<PageSpan>& spans_;
  std::size_t index_ = 0;
  std::uint64_t offset_ = 0;
};

/// `held_pages`: once they are there.
std::uint64_t handle_pages(const RuntimeOptions& options, std::uint64_t held_pages) {
  if (options.recycling == Recycling::off) return kMaxHandlePages;
  const std::uint64_t share = std::max<std::uint64_t>(1, held_pages / kHandleShare);
  return std::min(kMaxHandlePages, std::bit_floor(share));
}

/// New handles for what is left of the plan, or a segment for all of it.
void fill_up(Cursor& cursor, bool is_segment, std::uint64_t most_pages, PageSupply& supply) {
  while (const std::uint64_t left = cursor.left_in_span()) {
    Mapping target;
    target.pages = cursor.next(is_segment ? left : std::min(most_pages, std::bit_floor(left)));
    supply.targets.push_back(target);
  }
}

bool overlap(PageSpan a, PageSpan b) { return a.first < b.end() && b.first < a.end(); }

}  // namespace

PageSupply Recycler::new_pages(const std::vector<PageSpan>& spans,
                               const RuntimeOptions& options) const {
  PageSupply supply;
  for (const PageSpan& span : spans) supply.new_pages += span.count;
  Cursor cursor(spans);
  const std::uint64_t held = arena_.backed_pages() + supply.new_pages;
  fill_up(cursor, !arena_.is_contiguous(), handle_pages(options, held), supply);
  return supply;
}

std::uint64_t Recycler::allowed_pages(const GrowthPlan& plan, const RuntimeOptions& options,
                                      std::uint64_t limit_pages) const {
  if (options.recycling != Recycling::eager || holds_more_) return limit_pages;
  const std::uint64_t occupied =
      std::max(peak_occupied_pages_, occupied_pages() + plan.fresh_pages);
  const auto allowed =
      static_cast<std::uint64_t>(static_cast<double>(occupied) * (1.0 + options.slack));
  return std::min(limit_pages, allowed);
}

bool Recycler::can_serve(const GrowthPlan& plan, const RuntimeOptions& options, StreamIndex stream,
                         std::uint64_t headroom) const {
  if (plan.pages <= headroom) return true;
  if (!moves_pages(options)) return false;
  const bool at_once = moves_at_once(options, stream);
  std::uint64_t missing = plan.pages - headroom;
  for (const EmptyMapping& victim : choose(plan, missing, at_once ? stream : kAnybody)) {
    missing -= victim.mapping.pages.count;
  }
  return missing == 0;
}

std::vector<EmptyMapping> Recycler::choose(const GrowthPlan& plan, std::uint64_t pages,
                                           StreamIndex stream) const {
  std::vector<EmptyMapping> victims;
  Cursor cursor(plan.spans);
  if (pages == 0) return victims;
  for_each_free(arena_, runs_, stream, [&](RunId id, const Mapping& mapping) {
    const PageSpan lies = mapping.pages;
    const bool fits = lies.count <= pages && lies.count <= cursor.left_in_span();
    if (!fits || overlap(lies, plan.window)) return true;
    if (stream == kAnybody && !runs_.are_idle(id, lies)) return true;
    cursor.next(lies.count);
    victims.push_back({mapping, id});
    pages -= lies.count;
    return pages > 0;
  });
  return victims;
}

PageSupply Recycler::prepare(const GrowthPlan& plan, const RuntimeOptions& options,
                             StreamIndex stream, std::uint64_t limit_pages, bool is_needed) {
  PageSupply supply;
  const std::uint64_t backed = arena_.backed_pages();
  const std::uint64_t allowed = allowed_pages(plan, options, limit_pages);
  const std::uint64_t may_create = std::min(plan.pages, allowed - std::min(allowed, backed));
  if (is_needed) supply.occupied_pages = occupied_pages() + plan.fresh_pages;
  std::vector<EmptyMapping> victims;
  if (moves_pages(options)) {
    const bool at_once = moves_at_once(options, stream);
    victims = choose(plan, plan.pages - may_create, at_once ? stream : kAnybody);
  }
  Cursor cursor(plan.spans);
  for (const EmptyMapping& victim : victims) {
    Mapping target = victim.mapping;
    target.pages = cursor.next(victim.mapping.pages.count);
    target.aliases = 0;
    supply.targets.push_back(target);
    const PageSpan lies = victim.mapping.pages;
    TicketSet tickets = runs_.tickets_of(victim.run, lies);
    const RunId leaving =
        runs_.take_at(victim.run, lies.first * kUnitsPerPage,
                      static_cast<std::uint32_t>(lies.count * kUnitsPerPage), RunKind::leaving);
    supply.moved.push_back({leaving, tickets});
    supply.moved_pages += lies.count;
  }
  supply.new_pages = plan.pages - supply.moved_pages;
  const std::uint64_t headroom = limit_pages - std::min(limit_pages, backed);
  supply.missing_pages = supply.new_pages - std::min(supply.new_pages, headroom);
  fill_up(cursor, !arena_.is_contiguous(), handle_pages(options, backed + supply.new_pages),
          supply);
  return supply;
}

void Recycler::commit(const PageSupply& supply) {
  auto moved = supply.moved.begin();
  for (const Mapping& target : supply.targets) {
    if (target.index == 0) {
      arena_.commit({target});
      continue;
    }
    runs_.remove(moved->run);
    arena_.relocate(target, moved->tickets);
    ++moved;
  }
  recycled_pages_ += supply.moved_pages;
  peak_occupied_pages_ = std::max(peak_occupied_pages_, supply.occupied_pages);
  runs_.set_end(arena_.high_water() * kUnitsPerPage);
  // Neighbours with the same tickets in one go.
  moved = supply.moved.begin();
  PageSpan row;
  const auto add_row = [&] {
    if (row.count == 0) return;
    runs_.add(row.first * kUnitsPerPage, static_cast<std::uint32_t>(row.count * kUnitsPerPage));
    row = {};
  };
  for (const Mapping& target : supply.targets) {
    TicketSet tickets;
    if (target.index != 0) tickets = (moved++)->tickets;
    const bool is_ready = tickets.empty();
    if (!is_ready || row.end() != target.pages.first) add_row();
    if (!is_ready) {
      runs_.add(target.pages.first * kUnitsPerPage,
                static_cast<std::uint32_t>(target.pages.count * kUnitsPerPage), tickets);
    } else if (row.count == 0) {
      row = target.pages;
    } else {
      row.count += target.pages.count;
    }
  }
  add_row();
}

void Recycler::call_off(const PageSupply& supply) {
  // With what its pages have, and not with all that the run had that it was cut out of: idle pages
  // would count as in use until that is done.
  for (const PageSupply::Moved& moved : supply.moved) runs_.put(moved.run, moved.tickets);
}

}  // namespace gpupool::internal
