#include "tests/support/occupancy.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpupool::test {
namespace {

bool is_any_busy(const std::vector<StreamKey>& users, const Occupancy::Busy& busy) {
  return std::any_of(users.begin(), users.end(),
                     [&](StreamKey user) { return busy.count(user) > 0; });
}

}  // namespace

void Occupancy::add(std::uint64_t address, std::uint64_t bytes, std::uint64_t plain_bytes) {
  std::vector<StreamKey> former = cover(address, address + bytes);
  if (bytes > kMaxSmallBytes) former.clear();
  live_[address] = {bytes, plain_bytes, std::move(former)};
}

std::vector<StreamKey> Occupancy::cover(std::uint64_t begin, std::uint64_t end) {
  std::vector<StreamKey> former;
  auto it = freed_.lower_bound(begin);
  if (it != freed_.begin() && std::prev(it)->second.end > begin) --it;
  while (it != freed_.end() && it->first < end) {
    const std::uint64_t freed_begin = it->first;
    const Freed freed = it->second;
    it = freed_.erase(it);
    former.insert(former.end(), freed.users.begin(), freed.users.end());
    if (freed_begin < begin) freed_[freed_begin] = {begin, freed.users};
    if (freed.end > end) freed_[end] = {freed.end, freed.users};
  }
  return former;
}

void Occupancy::remove(std::uint64_t address, std::vector<StreamKey> users, bool for_ever) {
  const auto it = live_.find(address);
  const Live live = it->second;
  live_.erase(it);
  if (for_ever && live.bytes <= kMaxSmallBytes && live.plain_bytes == 0) {
    const std::uint64_t end = address + kMaxSmallBytes;
    for (std::uint64_t page = (address - kMaxSmallBytes) / kPageBytes; page * kPageBytes < end;
         ++page) {
      chunk_pages_.insert(page);
    }
  }
  users.insert(users.end(), live.former_users.begin(), live.former_users.end());
  std::sort(users.begin(), users.end());
  users.erase(std::unique(users.begin(), users.end()), users.end());
  if (live.plain_bytes > 0) {
    freed_plain_.push_back({live.plain_bytes, std::move(users)});
  } else {
    freed_[address] = {address + live.bytes, std::move(users)};
  }
}

void Occupancy::clear(const Busy& busy) {
  for (auto it = freed_.begin(); it != freed_.end();) {
    it = is_any_busy(it->second.users, busy) ? std::next(it) : freed_.erase(it);
  }
  freed_plain_.erase(
      std::remove_if(freed_plain_.begin(), freed_plain_.end(),
                     [&](const FreedPlain& freed) { return !is_any_busy(freed.users, busy); }),
      freed_plain_.end());
}

void Occupancy::add_pending_pages(const Busy& busy, std::set<std::uint64_t>& pages) const {
  for (const auto& [address, freed] : freed_) {
    if (!is_any_busy(freed.users, busy)) continue;
    for (std::uint64_t page = address / kPageBytes; page * kPageBytes < freed.end; ++page) {
      pages.insert(page);
    }
  }
}

Occupancy::Occupied Occupancy::occupied(const Busy& busy) const {
  Occupied all;
  std::vector<std::uint64_t> pages(chunk_pages_.begin(), chunk_pages_.end());
  const auto add_range = [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t page = begin / kPageBytes; page * kPageBytes < end; ++page) {
      pages.push_back(page);
    }
  };
  for (const auto& [address, live] : live_) {
    all.plain_bytes += live.plain_bytes;
    if (live.plain_bytes == 0) add_range(address, address + live.bytes);
  }
  for (const auto& [address, freed] : freed_) {
    if (is_any_busy(freed.users, busy)) add_range(address, freed.end);
  }
  for (const FreedPlain& freed : freed_plain_) {
    if (is_any_busy(freed.users, busy)) all.plain_bytes += freed.bytes;
  }
  std::sort(pages.begin(), pages.end());
  all.pages = static_cast<std::uint64_t>(
      std::distance(pages.begin(), std::unique(pages.begin(), pages.end())));
  return all;
}

std::uint64_t Occupancy::room_pages(const Busy& busy) const {
  const Occupied all = occupied(busy);
  const std::uint64_t taken = std::min(all.plain_bytes, capacity_bytes_);
  const std::uint64_t pages = (capacity_bytes_ - taken) / kPageBytes;
  return pages - std::min(pages, all.pages);
}

std::uint64_t Occupancy::plain_room_bytes(const Busy& busy) const {
  const Occupied all = occupied(busy);
  const std::uint64_t taken = all.plain_bytes + std::max(all.pages * kPageBytes, reserve_bytes_);
  return capacity_bytes_ - std::min(capacity_bytes_, taken);
}

}  // namespace gpupool::test
