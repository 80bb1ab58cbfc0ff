#include "backend/simulated_memory.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace gpupool::internal {
namespace {

constexpr std::uint64_t kPlainUnitBytes = 512;
constexpr std::uint64_t kLargePlainBytes = std::uint64_t{2} << 20;

bool is_power_of_two(std::uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

std::unique_ptr<SimulatedStore> make_store(const SimulatedDeviceOptions& options) {
  switch (options.memory) {
    case SimulatedMemory::address_only: return make_address_only_store(options.ordinal);
    case SimulatedMemory::real:
      return make_memfd_store(options.capacity_bytes, options.granularity_bytes);
  }
  return nullptr;
}

}  // namespace

void SimulatedBacking::remove_uses(const SimulatedStream* stream, std::uint64_t position) {
  uses.erase(std::remove_if(uses.begin(), uses.end(),
                            [&](const SimulatedUse& use) {
                              return use.stream == stream && use.position == position;
                            }),
             uses.end());
}

SimulatedDeviceMemory::SimulatedDeviceMemory(const SimulatedDeviceOptions& options,
                                             SimulatedViolations& violations)
    : capacity_bytes_(options.capacity_bytes),
      granularity_bytes_(options.granularity_bytes),
      violations_(violations),
      store_(make_store(options)) {
  GPUPOOL_CHECK(is_power_of_two(granularity_bytes_) && granularity_bytes_ >= 4096);
}

SimulatedDeviceMemory::~SimulatedDeviceMemory() {
  for (const auto& [address, backing] : plain_) store_->deallocate(address, backing.bytes);
  for (const auto& [address, bytes] : reservations_) store_->free_reservation(address, bytes);
}

Result<DeviceAddress> SimulatedDeviceMemory::reserve(std::uint64_t bytes, std::uint64_t alignment) {
  if (bytes == 0 || !is_multiple(bytes) || !is_power_of_two(alignment)) {
    return Error::invalid_argument;
  }
  const auto address =
      store_->reserve(bytes, std::max({alignment, granularity_bytes_, kLargePlainBytes}));
  if (!address) return Error::out_of_memory;
  reservations_.emplace(*address, bytes);
  return *address;
}

Result<void> SimulatedDeviceMemory::free_reservation(DeviceAddress address, std::uint64_t bytes) {
  const auto it = reservations_.find(address);
  if (it == reservations_.end() || it->second != bytes || overlaps_mapping(address, bytes)) {
    return Error::invalid_argument;
  }
  store_->free_reservation(address, bytes);
  reservations_.erase(it);
  return {};
}

Result<PhysicalHandle> SimulatedDeviceMemory::create(std::uint64_t bytes, bool is_shareable) {
  if (bytes == 0 || !is_multiple(bytes)) return Error::invalid_argument;
  if (bytes > free_bytes()) return Error::out_of_memory;
  const auto offset = store_->create(bytes);
  if (!offset) return Error::out_of_memory;
  const std::uint64_t handle = ++last_handle_;
  SimulatedBacking& backing = handles_[handle];
  backing.bytes = bytes;
  backing.store_offset = *offset;
  backing.is_shareable = is_shareable;
  held_bytes_ += bytes;
  return PhysicalHandle{handle};
}

Result<void> SimulatedDeviceMemory::release(PhysicalHandle handle) {
  const auto it = handles_.find(handle.value);
  if (it == handles_.end() || it->second.is_released) return Error::invalid_argument;
  it->second.is_released = true;
  drop_if_unused(handle.value);
  return {};
}

void SimulatedDeviceMemory::drop_if_unused(std::uint64_t handle) {
  const auto it = handles_.find(handle);
  GPUPOOL_CHECK(it != handles_.end());
  const SimulatedBacking& backing = it->second;
  if (!backing.is_released || backing.mapping_count != 0) return;
  GPUPOOL_CHECK(backing.uses.empty());  // unmap refuses while there are any
  store_->destroy(backing.store_offset, backing.bytes);
  held_bytes_ -= backing.bytes;
  handles_.erase(it);
}

Result<void> SimulatedDeviceMemory::map(DeviceAddress address, std::uint64_t bytes,
                                        PhysicalHandle handle) {
  const auto it = handles_.find(handle.value);
  if (it == handles_.end() || it->second.is_released || it->second.bytes != bytes ||
      !is_multiple(address) || !is_reserved(address, bytes) || overlaps_mapping(address, bytes)) {
    return Error::invalid_argument;
  }
  if (!store_->map(address, bytes, it->second.store_offset)) return Error::backend_failure;
  ++it->second.mapping_count;
  mappings_.emplace(address,
                    Mapping{.bytes = bytes, .handle = handle.value, .backing = &it->second});
  return {};
}

Result<void> SimulatedDeviceMemory::set_access(DeviceAddress address, std::uint64_t bytes,
                                               const std::vector<int>& peers) {
  auto it = find_whole_mappings(address, bytes);
  if (it == mappings_.end()) return Error::invalid_argument;
  if (!store_->set_access(address, bytes)) return Error::backend_failure;
  for (; it != mappings_.end() && it->first < address + bytes; ++it) {
    it->second.is_accessible = true;
    for (const int peer : peers) it->second.peers.push_back(peer);
  }
  return {};
}

Result<void> SimulatedDeviceMemory::unmap(DeviceAddress address, std::uint64_t bytes) {
  const auto first = find_whole_mappings(address, bytes);
  if (first == mappings_.end()) return Error::invalid_argument;
  for (auto it = first; it != mappings_.end() && it->first < address + bytes; ++it) {
    for (const SimulatedUse& use : it->second.backing->uses) {
      if (use.mapped_at != it->first) continue;  // through another mapping, which stays
      return violations_.refuse(
          "unmap of " + as_hex(it->first) +
          (use.position == 0 ? ", which a running capture uses" : ", which unfinished work uses"));
    }
  }
  if (!store_->unmap(address, bytes)) return Error::backend_failure;
  for (auto it = first; it != mappings_.end() && it->first < address + bytes;) {
    const std::uint64_t handle = it->second.handle;
    --it->second.backing->mapping_count;
    it = mappings_.erase(it);
    drop_if_unused(handle);
  }
  return {};
}

Result<DeviceAddress> SimulatedDeviceMemory::allocate(std::uint64_t bytes) {
  if (bytes == 0) return Error::invalid_argument;
  if (bytes > capacity_bytes_) return Error::out_of_memory;  // and so the rounding is safe
  const std::uint64_t rounded = (bytes + kPlainUnitBytes - 1) & ~(kPlainUnitBytes - 1);
  if (rounded > free_bytes()) return Error::out_of_memory;
  const auto address =
      store_->allocate(rounded, bytes >= kLargePlainBytes ? kLargePlainBytes : kPlainUnitBytes);
  if (!address) return Error::out_of_memory;
  plain_[*address].bytes = rounded;
  held_bytes_ += rounded;
  return *address;
}

void SimulatedDeviceMemory::deallocate(DeviceAddress address) {
  const auto it = plain_.find(address);
  GPUPOOL_CHECK(it != plain_.end() && it->second.uses.empty());
  store_->deallocate(address, it->second.bytes);
  held_bytes_ -= it->second.bytes;
  plain_.erase(it);
}

SimulatedBacking* SimulatedDeviceMemory::find_plain(DeviceAddress address) {
  const auto it = plain_.find(address);
  return it == plain_.end() ? nullptr : &it->second;
}

bool SimulatedDeviceMemory::is_accessible_from(int ordinal, DeviceAddress address,
                                               std::uint64_t bytes) const {
  if (find_plain_base(address) != 0) return true;
  auto it = mappings_.upper_bound(address);
  if (it == mappings_.begin()) return false;
  const DeviceAddress end = address + bytes;
  for (--it; address < end; ++it) {
    if (it == mappings_.end() || it->first > address) return false;
    const Mapping& mapping = it->second;
    if (address >= it->first + mapping.bytes) return false;
    if (std::find(mapping.peers.begin(), mapping.peers.end(), ordinal) == mapping.peers.end()) {
      return false;
    }
    address = it->first + mapping.bytes;
  }
  return true;
}

DeviceAddress SimulatedDeviceMemory::find_plain_base(DeviceAddress address) const {
  auto it = plain_.upper_bound(address);
  if (it == plain_.begin()) return 0;
  --it;
  return address - it->first < it->second.bytes ? it->first : 0;
}

PhysicalHandle SimulatedDeviceMemory::find_shareable(DeviceAddress address) const {
  auto it = mappings_.upper_bound(address);
  if (it == mappings_.begin()) return {};
  --it;
  const Mapping& mapping = it->second;
  const bool is_inside = address - it->first < mapping.bytes;
  return is_inside && mapping.backing->is_shareable ? PhysicalHandle{mapping.handle}
                                                    : PhysicalHandle{};
}

std::uint64_t SimulatedDeviceMemory::mapping_count(DeviceAddress address,
                                                   std::uint64_t bytes) const {
  std::uint64_t count = 0;
  for (auto it = mappings_.lower_bound(address);
       it != mappings_.end() && it->first - address < bytes; ++it) {
    ++count;
  }
  return std::max<std::uint64_t>(count, 1);
}

std::uint64_t SimulatedDeviceMemory::handle_bytes(PhysicalHandle handle) const {
  const auto it = handles_.find(handle.value);
  return it == handles_.end() ? 0 : it->second.bytes;
}

bool SimulatedDeviceMemory::is_reserved(DeviceAddress address, std::uint64_t bytes) const {
  auto it = reservations_.upper_bound(address);
  if (it == reservations_.begin()) return false;
  --it;
  const std::uint64_t offset = address - it->first;
  return offset < it->second && bytes <= it->second - offset;
}

bool SimulatedDeviceMemory::overlaps_mapping(DeviceAddress address, std::uint64_t bytes) const {
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first - address < bytes) return true;
  if (next == mappings_.begin()) return false;
  const auto previous = std::prev(next);
  return address - previous->first < previous->second.bytes;
}

SimulatedDeviceMemory::Mappings::iterator SimulatedDeviceMemory::find_whole_mappings(
    DeviceAddress address, std::uint64_t bytes) {
  const auto first = mappings_.find(address);
  std::uint64_t covered = 0;
  for (auto it = first; it != mappings_.end() && covered < bytes; ++it) {
    if (it->first != address + covered) return mappings_.end();
    covered += it->second.bytes;
  }
  return covered == bytes && bytes != 0 ? first : mappings_.end();
}

bool SimulatedDeviceMemory::resolve(DeviceAddress address, std::uint64_t bytes,
                                    std::vector<SimulatedSegment>& segments) {
  segments.clear();
  if (bytes == 0) return true;
  if (auto it = plain_.upper_bound(address); it != plain_.begin()) {
    --it;
    const std::uint64_t offset = address - it->first;
    if (offset < it->second.bytes) {
      if (bytes > it->second.bytes - offset) return false;
      segments.push_back({&it->second, it->first, offset, offset + bytes});
      return true;
    }
  }
  auto it = mappings_.upper_bound(address);
  if (it == mappings_.begin()) return false;
  --it;
  while (bytes != 0) {
    if (it == mappings_.end() || address < it->first) return false;
    const std::uint64_t offset = address - it->first;
    if (offset >= it->second.bytes || !it->second.is_accessible) return false;
    const std::uint64_t part = std::min(bytes, it->second.bytes - offset);
    segments.push_back({it->second.backing, it->first, offset, offset + part});
    address += part;
    bytes -= part;
    ++it;
  }
  return true;
}

Result<void> SimulatedDeviceMemory::set_taken_by_others(std::uint64_t bytes) {
  if (bytes > capacity_bytes_ - held_bytes_) return Error::out_of_memory;
  taken_by_others_ = bytes;
  return {};
}

}  // namespace gpupool::internal
