// Where the simulated device's addresses and bytes come from: nowhere (numbers only, so that a
// card of 141 GB fits in a test) or from the host's memory (one sparse memfd, mapped wherever the
// device maps, so that two mappings of one handle show the same bytes).
//
// A store checks nothing: SimulatedDeviceMemory has checked that the call is legal. Where a method
// says that it failed, nothing has changed.
//
// Thread safety: none, the owner locks. Cost: O(log n), plus the host's system calls for memfd.
#ifndef GPUPOOL_BACKEND_SIMULATED_STORE_H_
#define GPUPOOL_BACKEND_SIMULATED_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "gpupool/backend.h"

namespace gpupool::internal {

class SimulatedStore {
 public:
  virtual ~SimulatedStore() = default;

  virtual std::optional<DeviceAddress> reserve(std::uint64_t bytes, std::uint64_t alignment) = 0;
  virtual void free_reservation(DeviceAddress address, std::uint64_t bytes) = 0;
  /// Physical bytes, zeroed; gives their offset in the store.
  virtual std::optional<std::uint64_t> create(std::uint64_t bytes) = 0;
  virtual void destroy(std::uint64_t offset, std::uint64_t bytes) = 0;
  virtual bool map(DeviceAddress address, std::uint64_t bytes, std::uint64_t offset) = 0;
  virtual bool set_access(DeviceAddress address, std::uint64_t bytes) = 0;
  virtual bool unmap(DeviceAddress address, std::uint64_t bytes) = 0;
  /// A plain allocation: addresses and bytes in one.
  virtual std::optional<DeviceAddress> allocate(std::uint64_t bytes, std::uint64_t alignment) = 0;
  virtual void deallocate(DeviceAddress address, std::uint64_t bytes) = 0;
};

/// Addresses of different stores do not overlap while both live, of 500 at once, as in one process
/// on real cards. Those of the first with an `ordinal` (modulo 8) are always the same.
std::unique_ptr<SimulatedStore> make_address_only_store(int ordinal);
std::unique_ptr<SimulatedStore> make_memfd_store(std::uint64_t capacity_bytes,
                                                 std::uint64_t granularity_bytes);

}  // namespace gpupool::internal

#endif  // GPUPOOL_BACKEND_SIMULATED_STORE_H_
