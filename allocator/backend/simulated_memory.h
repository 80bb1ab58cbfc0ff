// The memory of the simulated device: reservations, physical handles, mappings, plain
// allocations, and which unfinished work uses which bytes of them.
//
// Invariants:
//   held_bytes = bytes of backings (a handle until it is released AND nowhere mapped; a plain
//                allocation until it is given back), each once;
//   held_bytes + taken_by_others <= capacity;
//   mappings lie inside one reservation and do not overlap;
//   a use is listed at its backing from the launch of its work until its completion.
// A call that fails changes nothing.
//
// Thread safety: none, the owner locks. Cost: O(log n) in the number of mappings, and per backing
// linear in the unfinished work on it; nothing grows with what is finished.
#ifndef GPUPOOL_BACKEND_SIMULATED_MEMORY_H_
#define GPUPOOL_BACKEND_SIMULATED_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "backend/simulated_store.h"
#include "backend/simulated_violations.h"
#include "gpupool/backend.h"
#include "gpupool/simulated_backend.h"

namespace gpupool::internal {

class SimulatedStream;

/// Bytes of a backing that one piece of unfinished work uses, and through which mapping.
struct SimulatedUse {
  const SimulatedStream* stream = nullptr;
  std::uint64_t position = 0;  // of the work in its stream; 0: recorded by a running capture
  DeviceAddress mapped_at = 0;
  std::uint64_t begin = 0;  // in the backing
  std::uint64_t end = 0;
};

/// Physical bytes: what is behind a handle or a plain allocation.
struct SimulatedBacking {
  std::uint64_t bytes = 0;
  std::uint64_t store_offset = 0;
  std::uint64_t mapping_count = 0;
  bool is_released = false;
  bool is_shareable = false;
  std::vector<SimulatedUse> uses;

  /// Forgets what work `position` of `stream` uses.
  void remove_uses(const SimulatedStream* stream, std::uint64_t position);
};

/// Part of a range of addresses that is within one backing.
struct SimulatedSegment {
  SimulatedBacking* backing = nullptr;
  DeviceAddress mapped_at = 0;
  std::uint64_t begin = 0;  // in the backing
  std::uint64_t end = 0;
};

class SimulatedDeviceMemory {
 public:
  SimulatedDeviceMemory(const SimulatedDeviceOptions& options, SimulatedViolations& violations);
  /// Gives back whatever is left, as a card does when its context ends.
  ~SimulatedDeviceMemory();
  SimulatedDeviceMemory(const SimulatedDeviceMemory&) = delete;
  SimulatedDeviceMemory& operator=(const SimulatedDeviceMemory&) = delete;

  Result<DeviceAddress> reserve(std::uint64_t bytes, std::uint64_t alignment);
  Result<void> free_reservation(DeviceAddress address, std::uint64_t bytes);
  Result<PhysicalHandle> create(std::uint64_t bytes, bool is_shareable);
  Result<void> release(PhysicalHandle handle);
  Result<void> map(DeviceAddress address, std::uint64_t bytes, PhysicalHandle handle);
  /// For the device itself, and for `peers`.
  Result<void> set_access(DeviceAddress address, std::uint64_t bytes,
                          const std::vector<int>& peers);
  Result<void> unmap(DeviceAddress address, std::uint64_t bytes);
  Result<DeviceAddress> allocate(std::uint64_t bytes);
  /// Requires: find_plain(address) != nullptr and its uses are empty.
  void deallocate(DeviceAddress address);

  /// The plain allocation that starts at `address`, nullptr if there is none.
  SimulatedBacking* find_plain(DeviceAddress address);
  /// Whether the device of that ordinal may use all of the range. Plain allocations: always, what
  /// they need (cudaDeviceEnablePeerAccess) is not modelled.
  bool is_accessible_from(int ordinal, DeviceAddress address, std::uint64_t bytes) const;
  /// The plain allocation that covers `address`; 0: none.
  DeviceAddress find_plain_base(DeviceAddress address) const;
  /// The shareable handle that is mapped over `address`; 0: none.
  PhysicalHandle find_shareable(DeviceAddress address) const;
  /// How many mappings begin inside the range; 1 at least.
  std::uint64_t mapping_count(DeviceAddress address, std::uint64_t bytes) const;
  /// Bytes of a live handle, 0 for one that is not.
  std::uint64_t handle_bytes(PhysicalHandle handle) const;
  /// Cuts the range at the edges of backings; false where part of it is not mapped and accessible
  /// or outside of a plain allocation.
  bool resolve(DeviceAddress address, std::uint64_t bytes, std::vector<SimulatedSegment>& segments);

  Result<void> set_taken_by_others(std::uint64_t bytes);
  std::uint64_t free_bytes() const { return capacity_bytes_ - held_bytes_ - taken_by_others_; }
  std::uint64_t held_bytes() const { return held_bytes_; }
  std::uint64_t object_count() const { return handles_.size() + mappings_.size() + plain_.size(); }

 private:
  using Handles = std::unordered_map<std::uint64_t, SimulatedBacking>;
  struct Mapping {
    std::uint64_t bytes = 0;
    std::uint64_t handle = 0;
    SimulatedBacking* backing = nullptr;
    bool is_accessible = false;
    std::vector<int> peers;  // that were given access, too
  };
  using Mappings = std::map<DeviceAddress, Mapping>;

  bool is_multiple(std::uint64_t value) const { return value % granularity_bytes_ == 0; }
  bool is_reserved(DeviceAddress address, std::uint64_t bytes) const;
  bool overlaps_mapping(DeviceAddress address, std::uint64_t bytes) const;
  /// First of the mappings that cover exactly the range, mappings_.end() if none do.
  Mappings::iterator find_whole_mappings(DeviceAddress address, std::uint64_t bytes);
  void drop_if_unused(std::uint64_t handle);

  const std::uint64_t capacity_bytes_;
  const std::uint64_t granularity_bytes_;
  SimulatedViolations& violations_;
  std::unique_ptr<SimulatedStore> store_;
  std::uint64_t held_bytes_ = 0;
  std::uint64_t taken_by_others_ = 0;
  std::uint64_t last_handle_ = 0;
  std::map<DeviceAddress, std::uint64_t> reservations_;  // -> bytes
  Handles handles_;                                      // live, or released and still mapped
  Mappings mappings_;
  std::map<DeviceAddress, SimulatedBacking> plain_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_BACKEND_SIMULATED_MEMORY_H_
