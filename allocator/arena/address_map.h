// From a unit to its address and back, by arithmetic, without a lock: a few ranges of addresses of
// one size, or pages wherever they lie.
//
// The line goes on from range to range, wherever those lie.
//
// For pages, a table by the upper bits of the address, 2 MiB an entry, is reserved for all
// addresses that a device can have (49 bits) and touched where there are pages.
//
// Thread safety: reads from any thread; writes under the pool's lock. What a read says of an
// address that nobody holds may be out of date; the block's record decides.
// Cost: one or two loads.
#ifndef GPUPOOL_ARENA_ADDRESS_MAP_H_
#define GPUPOOL_ARENA_ADDRESS_MAP_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/lazy_array.h"
#include "base/relaxed.h"
#include "base/units.h"
#include "gpupool/backend.h"

namespace gpupool::internal {

/// No unit, as an answer to where something is.
inline constexpr std::uint64_t kNoUnit = ~std::uint64_t{0};

class AddressMap {
 public:
  static constexpr std::size_t kMaxRanges = 4;

  /// The next so many pages of the line are neighbouring addresses, from `base` on. Requires: all
  /// ranges have the same length, a power of two; there are fewer than kMaxRanges.
  void add_range(DeviceAddress base, std::uint64_t pages) noexcept {
    const std::uint32_t count = range_count_.get();
    if (count == 0) {
      base_ = base;
      units_ = pages * kUnitsPerPage;
    }
    bases_[count].set(base);
    range_count_.set_last(count + 1);
  }
  std::size_t range_count() const noexcept { return range_count_.get(); }
  /// Each page lies somewhere. False where the kernel refuses the tables.
  bool start_pages(std::uint64_t pages) {
    is_range_ = false;
    return addresses_.reserve(pages) && pages_.reserve(kMaxAddress / kPageBytes);
  }
  static bool can_hold(DeviceAddress end) noexcept { return end <= kMaxAddress; }
  void set_page(std::uint64_t page, DeviceAddress address) noexcept {
    addresses_[page].set(address);
    pages_[address / kPageBytes].set(static_cast<std::uint32_t>(page) + 1);
  }
  void clear_page(std::uint64_t page) noexcept {
    pages_[addresses_[page].get() / kPageBytes].set(0);
  }

  DeviceAddress address_of(std::uint64_t unit) const noexcept {
    if (is_range_) return bases_[unit / units_].get() + unit % units_ * kUnitBytes;
    return addresses_[unit / kUnitsPerPage].get() + unit % kUnitsPerPage * kUnitBytes;
  }
  /// The unit at `address`, backed or not; kNoUnit where there is none.
  std::uint64_t unit_at(DeviceAddress address) const noexcept {
    // One comparison for both ends: an address below the base wraps to a huge offset.
    const std::uint64_t unit = (address - base_) / kUnitBytes;
    if (unit < units_) [[likely]]
      return unit;
    return is_range_ ? unit_in_later_range(address) : unit_in_pages(address);
  }
  /// The first range, for whoever does the same himself; empty where pages lie anywhere.
  DeviceAddress range_base() const noexcept { return base_; }
  std::uint64_t range_units() const noexcept { return units_; }

 private:
  static constexpr DeviceAddress kMaxAddress = DeviceAddress{1} << 49;

  std::uint64_t unit_in_later_range(DeviceAddress address) const noexcept {
    const std::uint32_t count = range_count_.get_first();
    for (std::uint32_t range = 1; range < count; ++range) {
      const std::uint64_t unit = (address - bases_[range].get()) / kUnitBytes;
      if (unit < units_) return range * units_ + unit;
    }
    return kNoUnit;
  }
  std::uint64_t unit_in_pages(DeviceAddress address) const noexcept {
    if (address >= kMaxAddress) return kNoUnit;
    const std::uint32_t entry = pages_[address / kPageBytes].get();
    if (entry == 0) return kNoUnit;
    return std::uint64_t{entry - 1} * kUnitsPerPage + address % kPageBytes / kUnitBytes;
  }

  bool is_range_ = true;
  DeviceAddress base_ = 0;
  std::uint64_t units_ = 0;  // of each range
  std::array<Relaxed<DeviceAddress>, kMaxRanges> bases_{};
  Relaxed<std::uint32_t> range_count_;
  LazyArray<Relaxed<DeviceAddress>> addresses_;  // by page
  LazyArray<Relaxed<std::uint32_t>> pages_;      // by address; page + 1
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_ARENA_ADDRESS_MAP_H_
