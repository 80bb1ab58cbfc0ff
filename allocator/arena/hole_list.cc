#include "arena/hole_list.h"

#include <algorithm>

#include "base/check.h"

namespace gpupool::internal {

std::optional<HoleList::Place> HoleList::last_up_to(std::uint64_t page) const noexcept {
  const auto next_block =
      std::upper_bound(blocks_.begin(), blocks_.end(), page,
                       [](std::uint64_t at, const Block& block) { return at < block.first; });
  if (next_block == blocks_.begin()) return std::nullopt;
  const std::vector<PageSpan>& holes = (next_block - 1)->holes;
  const auto next =
      std::upper_bound(holes.begin(), holes.end(), page,
                       [](std::uint64_t at, const PageSpan& hole) { return at < hole.first; });
  return Place{static_cast<std::size_t>(next_block - blocks_.begin()) - 1,
               static_cast<std::size_t>(next - holes.begin()) - 1};
}

void HoleList::update(std::size_t block) {
  Block& it = blocks_[block];
  it.first = it.holes.front().first;
  it.longest = 0;
  for (const PageSpan& hole : it.holes) it.longest = std::max(it.longest, hole.count);
}

void HoleList::insert(PageSpan hole, std::optional<Place> before) {
  ++size_;
  if (blocks_.empty()) blocks_.emplace_back();
  // What lies before all others goes into the first block.
  Place place;
  if (before.has_value()) place = {before->block, before->at + 1};
  std::vector<PageSpan>& holes = blocks_[place.block].holes;
  holes.insert(holes.begin() + static_cast<std::ptrdiff_t>(place.at), hole);
  if (holes.size() > kMost) {
    const auto half = holes.begin() + static_cast<std::ptrdiff_t>(kMost / 2);
    Block rest;
    rest.holes.assign(half, holes.end());
    holes.erase(half, holes.end());
    const auto next = blocks_.begin() + static_cast<std::ptrdiff_t>(place.block) + 1;
    blocks_.insert(next, std::move(rest));
    update(place.block + 1);
  }
  update(place.block);
}

void HoleList::erase(Place place) {
  --size_;
  std::vector<PageSpan>& holes = blocks_[place.block].holes;
  holes.erase(holes.begin() + static_cast<std::ptrdiff_t>(place.at));
  const auto block = blocks_.begin() + static_cast<std::ptrdiff_t>(place.block);
  if (holes.empty()) {
    blocks_.erase(block);
    return;
  }
  // A quarter, so that what is joined is not split again soon.
  const auto next = block + 1;
  if (next != blocks_.end() && holes.size() + next->holes.size() <= kMost / 4) {
    holes.insert(holes.end(), next->holes.begin(), next->holes.end());
    blocks_.erase(next);
  }
  update(place.block);
}

std::optional<HoleList::Place> HoleList::next(std::optional<Place> place) const noexcept {
  if (!place.has_value()) return size_ > 0 ? std::optional<Place>(Place()) : std::nullopt;
  if (place->at + 1 < blocks_[place->block].holes.size()) return Place{place->block, place->at + 1};
  if (place->block + 1 < blocks_.size()) return Place{place->block + 1, 0};
  return std::nullopt;
}

void HoleList::set(Place place, PageSpan hole) {
  Block& block = blocks_[place.block];
  PageSpan& it = block.holes[place.at];
  const bool may_be_longest = it.count == block.longest;
  it = hole;
  if (place.at == 0) block.first = hole.first;
  if (hole.count >= block.longest) {
    block.longest = hole.count;
  } else if (may_be_longest) {
    update(place.block);
  }
}

void HoleList::add(PageSpan pages) {
  const auto before = last_up_to(pages.first);
  const auto after = next(before);
  const bool joins_before = before.has_value() && hole_at(*before).end() == pages.first;
  const bool joins_after = after.has_value() && hole_at(*after).first == pages.end();
  PageSpan joined = pages;
  if (joins_before) joined = {hole_at(*before).first, hole_at(*before).count + pages.count};
  if (joins_after) joined.count += hole_at(*after).count;
  if (!joins_before && !joins_after) return insert(pages, before);
  set(joins_before ? *before : *after, joined);
  if (joins_before && joins_after) erase(*after);
}

void HoleList::remove(PageSpan pages) {
  const auto place = last_up_to(pages.first);
  GPUPOOL_CHECK(place.has_value());
  const PageSpan hole = hole_at(*place);
  GPUPOOL_CHECK(pages.end() <= hole.end());
  const PageSpan front{hole.first, pages.first - hole.first};
  const PageSpan back{pages.end(), hole.end() - pages.end()};
  if (front.count == 0 && back.count == 0) return erase(*place);
  set(*place, front.count > 0 ? front : back);
  if (front.count > 0 && back.count > 0) insert(back, place);
}

std::optional<PageSpan> HoleList::find_first(std::uint64_t pages) const noexcept {
  for (const Block& block : blocks_) {
    if (block.longest < pages) continue;
    for (const PageSpan& hole : block.holes) {
      if (hole.count >= pages) return hole;
    }
  }
  return std::nullopt;
}

std::uint64_t HoleList::longest() const noexcept {
  std::uint64_t longest = 0;
  for (const Block& block : blocks_) longest = std::max(longest, block.longest);
  return longest;
}

std::optional<PageSpan> HoleList::ending_at(std::uint64_t page) const noexcept {
  if (page == 0) return std::nullopt;
  const auto place = last_up_to(page - 1);
  if (!place.has_value() || hole_at(*place).end() != page) return std::nullopt;
  return hole_at(*place);
}

std::optional<PageSpan> HoleList::starting_at(std::uint64_t page) const noexcept {
  const auto place = last_up_to(page);
  if (!place.has_value() || hole_at(*place).first != page) return std::nullopt;
  return hole_at(*place);
}

std::uint64_t HoleList::metadata_bytes() const noexcept {
  return blocks_.capacity() * sizeof(Block) + size_ * 2 * sizeof(PageSpan);
}

std::uint64_t HoleList::check_invariants() const {
  std::uint64_t pages = 0;
  std::uint64_t end = 0;
  std::size_t count = 0;
  for (const Block& block : blocks_) {
    GPUPOOL_CHECK(!block.holes.empty() && block.holes.size() <= kMost);
    GPUPOOL_CHECK(block.first == block.holes.front().first);
    std::uint64_t longest = 0;
    for (const PageSpan& hole : block.holes) {
      GPUPOOL_CHECK(hole.count > 0 && (count == 0 || hole.first > end));
      longest = std::max(longest, hole.count);
      pages += hole.count;
      end = hole.end();
      ++count;
    }
    GPUPOOL_CHECK(block.longest == longest);
  }
  GPUPOOL_CHECK(count == size_);
  return pages;
}

}  // namespace gpupool::internal
