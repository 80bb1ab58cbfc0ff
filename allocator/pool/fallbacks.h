// Blocks that the arena does not hold: one driver allocation each, or one physical handle at
// addresses of its own (own_allocation.h), by address.
//
//   bytes() = sum of the allocations' sizes, live and pending
//
// A freed one goes back to the driver only when the work before its free is complete: cudaFree
// waits for the device, and the thread that frees must not.
//
// Thread safety: under the pool's lock, driver calls excepted, which the caller makes without it.
#ifndef GPUPOOL_POOL_FALLBACKS_H_
#define GPUPOOL_POOL_FALLBACKS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "base/block_record.h"
#include "gpupool/backend.h"
#include "stream/ticket_set.h"

namespace gpupool::internal {

struct Fallback {
  DeviceAddress address = 0;       // what the caller holds, aligned
  DeviceAddress allocation = 0;    // what the driver gave
  std::uint64_t bytes = 0;         // of the allocation
  PhysicalHandle handle;           // none: cudaMalloc
  bool has_own_addresses = false;  // `allocation` was reserved, for a handle
  bool is_mapped = false;          // the handle is, there
  BlockRecord block;
  TicketSet tickets;  // once freed
  bool is_pending = false;
};

class Fallbacks {
 public:
  /// With what the driver gave, as `own` says.
  Fallback& add(const Fallback& own);
  /// The block that starts at or covers `address`; nullptr if there is none.
  Fallback* find(DeviceAddress address);
  const Fallback* find(DeviceAddress address) const;
  /// The block is free for its program; it stays held until its tickets are complete.
  void retire(Fallback& fallback, const TicketSet& tickets);
  /// One whose work is complete, taken out of the table; false if there is none.
  bool take_complete(const StreamTable& streams, Fallback& out);
  /// Any one, taken out, for the pool's end.
  bool take_any(Fallback& out);
  /// Puts back one that the driver would not take.
  void put_back(const Fallback& fallback);

  std::uint64_t bytes() const noexcept { return bytes_; }
  std::uint64_t pending_bytes() const noexcept { return pending_bytes_; }
  std::size_t count() const noexcept { return by_address_.size(); }
  const std::map<DeviceAddress, Fallback>& all() const noexcept { return by_address_; }

 private:
  std::map<DeviceAddress, Fallback> by_address_;
  std::uint64_t bytes_ = 0;
  std::uint64_t pending_bytes_ = 0;
  std::size_t pending_count_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_FALLBACKS_H_
