#include "pool/own_allocation.h"

#include <algorithm>

#include "base/units.h"

namespace gpupool::internal {
namespace {

Result<void> take_handle(Driver& driver, std::uint64_t bytes, Fallback& out) {
  const auto address = driver.backend().reserve_address(bytes, kPageBytes);
  if (!address.ok()) return address.error();
  out.allocation = out.address = address.value();
  out.bytes = bytes;
  out.has_own_addresses = true;
  Result<void> result;
  if (const auto handle = driver.create_shareable(bytes); handle.ok()) {
    out.handle = handle.value();
    result = driver.map(out.allocation, bytes, out.handle);
    out.is_mapped = result.ok();
    if (result.ok()) result = driver.set_access(out.allocation, bytes);
  } else {
    result = handle.error();
  }
  if (!result.ok()) static_cast<void>(give_back_own(driver, out));
  return result;
}

}  // namespace

std::uint64_t own_bytes(std::uint64_t bytes, std::uint64_t alignment, ContiguousBacking kind) {
  if (kind == ContiguousBacking::handle) return round_up(bytes, kPageBytes);
  // Room to begin at a boundary where the driver promises less than is asked for.
  const std::uint64_t slack = alignment > kGranuleBytes ? alignment : 0;
  return round_up(bytes, kGranuleBytes) + slack;
}

Result<void> take_own(Driver& driver, std::uint64_t bytes, std::uint64_t alignment,
                      ContiguousBacking kind, Fallback& out) {
  if (kind == ContiguousBacking::handle) return take_handle(driver, bytes, out);
  const auto allocation = driver.allocate(bytes);
  if (!allocation.ok()) return allocation.error();
  out.allocation = allocation.value();
  out.address = round_up(allocation.value(), std::max<std::uint64_t>(alignment, 1));
  out.bytes = bytes;
  return {};
}

Result<void> give_back_own(Driver& driver, Fallback& own) {
  if (!own.has_own_addresses) return driver.deallocate(own.allocation, own.bytes);
  if (own.is_mapped) {
    if (const auto gone = driver.unmap(own.allocation, own.bytes); !gone.ok()) return gone;
    own.is_mapped = false;
  }
  if (!(own.handle == PhysicalHandle())) {
    if (const auto gone = driver.release(own.handle, own.bytes); !gone.ok()) return gone;
    own.handle = {};
  }
  // Addresses that the driver keeps are no memory, and there are enough.
  static_cast<void>(driver.backend().free_address(own.allocation, own.bytes).ok());
  return {};
}

}  // namespace gpupool::internal
