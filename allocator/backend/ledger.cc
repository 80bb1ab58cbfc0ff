#include "backend/ledger.h"

#include <iterator>

#include "base/check.h"

namespace gpupool::internal {

void Ledger::add_handle(PhysicalHandle handle, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  const bool is_new = handles_.emplace(handle.value, ++last_id_).second;
  GPUPOOL_CHECK(is_new);
  physical_[last_id_].bytes = bytes;
  held_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

std::optional<Ledger::Release> Ledger::take_handle(PhysicalHandle handle) {
  const MutexLock lock(mutex_);
  const auto it = handles_.find(handle.value);
  if (it == handles_.end()) return std::nullopt;
  const Release release{handle, it->second};
  handles_.erase(it);
  return release;
}

void Ledger::restore(const Release& release) {
  const MutexLock lock(mutex_);
  handles_.emplace(release.handle.value, release.id);
}

void Ledger::finish(const Release& release) {
  const MutexLock lock(mutex_);
  physical_.at(release.id).is_released = true;
  drop_if_unused(release.id);
}

void Ledger::drop_if_unused(std::uint64_t id) {
  const auto it = physical_.find(id);
  if (!it->second.is_released || it->second.mapping_count != 0) return;
  held_bytes_.fetch_sub(it->second.bytes, std::memory_order_relaxed);
  physical_.erase(it);
}

bool Ledger::add_mapping(DeviceAddress address, std::uint64_t bytes, PhysicalHandle handle) {
  const MutexLock lock(mutex_);
  const auto it = handles_.find(handle.value);
  if (it == handles_.end() || overlaps(address, bytes)) return false;
  Physical& physical = physical_.at(it->second);
  if (physical.bytes != bytes) return false;
  mappings_.emplace(address, Mapping{address, bytes, it->second});
  ++physical.mapping_count;
  return true;
}

bool Ledger::is_mapped(DeviceAddress address, std::uint64_t bytes) const {
  const MutexLock lock(mutex_);
  return find_whole(address, bytes) != mappings_.end();
}

std::vector<Ledger::Mapping> Ledger::take_mappings(DeviceAddress address, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  std::vector<Mapping> taken;
  auto it = find_whole(address, bytes);
  while (it != mappings_.end() && it->first - address < bytes) {
    taken.push_back(it->second);
    it = mappings_.erase(it);
  }
  return taken;
}

void Ledger::restore(const std::vector<Mapping>& mappings) {
  const MutexLock lock(mutex_);
  for (const Mapping& mapping : mappings) mappings_.emplace(mapping.address, mapping);
}

void Ledger::finish(const std::vector<Mapping>& mappings) {
  const MutexLock lock(mutex_);
  for (const Mapping& mapping : mappings) {
    --physical_.at(mapping.id).mapping_count;
    drop_if_unused(mapping.id);
  }
}

bool Ledger::has_mappings(DeviceAddress address, std::uint64_t bytes) const {
  const MutexLock lock(mutex_);
  return overlaps(address, bytes);
}

Ledger::Mappings::const_iterator Ledger::find_whole(DeviceAddress address,
                                                    std::uint64_t bytes) const {
  const auto first = mappings_.find(address);
  std::uint64_t covered = 0;
  for (auto it = first; it != mappings_.end() && covered < bytes; ++it) {
    if (it->first != address + covered) return mappings_.end();
    covered += it->second.bytes;
  }
  return covered == bytes && bytes != 0 ? first : mappings_.end();
}

bool Ledger::overlaps(DeviceAddress address, std::uint64_t bytes) const {
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first - address < bytes) return true;
  if (next == mappings_.begin()) return false;
  const auto previous = std::prev(next);
  return address - previous->first < previous->second.bytes;
}

void Ledger::add_plain(DeviceAddress address, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  plain_.emplace(address, bytes);
  held_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

std::optional<std::uint64_t> Ledger::take_plain(DeviceAddress address) {
  const MutexLock lock(mutex_);
  const auto it = plain_.find(address);
  if (it == plain_.end()) return std::nullopt;
  const std::uint64_t bytes = it->second;
  plain_.erase(it);
  return bytes;
}

void Ledger::restore_plain(DeviceAddress address, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  plain_.emplace(address, bytes);
}

void Ledger::finish_plain(std::uint64_t bytes) noexcept {
  held_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace gpupool::internal
