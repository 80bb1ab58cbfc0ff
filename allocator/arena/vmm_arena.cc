// Pages of one address range, each mapped from a physical handle of 2 MiB or more.
#include <algorithm>
#include <bit>

#include "arena/arena.h"
#include "base/check.h"

namespace gpupool::internal {
namespace {

/// Addresses reserved for each byte that may be held: recycling was seen to spread what is held
/// over up to 7 times its size.
constexpr std::uint64_t kRangeFactor = 8;
class VmmArena final : public Arena {
 public:
  VmmArena(Driver& driver, DeviceAddress base, std::uint64_t range_pages)
      : Arena(driver, range_pages * AddressMap::kMaxRanges, range_pages - 1),
        range_pages_(range_pages) {
    addresses_.add_range(base, range_pages);
  }

  ~VmmArena() override {
    // Nothing can be done about a driver that refuses at the end; see Pool's destructor.
    for (std::uint64_t range = 0; range < addresses_.range_count(); ++range) {
      const DeviceAddress base = address_of_page(range * range_pages_);
      static_cast<void>(driver_.backend().free_address(base, range_pages_ * kPageBytes));
    }
  }

  bool reserve() { return reserve_tables(); }
  bool is_contiguous() const noexcept override { return true; }
  std::uint64_t gap_pages() const noexcept override { return 0; }
  std::uint64_t most_held_bytes() const noexcept override {
    return page_capacity() / kRangeFactor * kPageBytes;
  }

  Result<void> back(std::vector<Mapping>& targets, std::uint64_t budget_bytes,
                    std::vector<Mapping>& stuck) override {
    std::uint64_t new_bytes = 0;
    for (const Mapping& target : targets) {
      if (is_new(target)) new_bytes += target.pages.count * kPageBytes;
    }
    if (new_bytes > budget_bytes) return Error::out_of_memory;
    std::size_t mapped = 0;
    Result<void> result;
    std::vector<bool> was_new;
    for (Mapping& target : targets) {
      was_new.push_back(is_new(target));
      target.address = address_of_page(target.pages.first);
      target.bytes = target.pages.count * kPageBytes;
      result = was_new.back() ? map_new_handle(target, stuck)
                              : driver_.map(target.address, target.bytes, target.handle);
      if (!result.ok()) break;
      ++mapped;
    }
    if (result.ok()) result = set_access(targets);
    if (result.ok()) return {};
    for (std::size_t i = 0; i < mapped; ++i) {
      if (was_new[i]) {
        if (!unback(targets[i], stuck).ok()) stuck.push_back(targets[i]);
      } else if (!driver_.unmap(targets[i].address, targets[i].bytes).ok()) {
        stuck.push_back(targets[i]);
        stuck.back().is_alias = true;
      }
    }
    return result;
  }

  // A range's last page is never backed, so that nothing reaches from one into the next.
  bool can_extend() const noexcept override {
    return addresses_.range_count() < AddressMap::kMaxRanges;
  }
  Result<DeviceAddress> reserve_more() override {
    return driver_.backend().reserve_address(range_pages_ * kPageBytes, kPageBytes);
  }
  void extend(DeviceAddress base) override {
    const std::uint64_t first = addresses_.range_count() * range_pages_;
    addresses_.add_range(base, range_pages_);
    extend_line(first, first + range_pages_ - 1);
  }

  Result<void> unmap(DeviceAddress address, std::uint64_t bytes) override {
    return driver_.unmap(address, bytes);
  }

  Result<void> unback(const Mapping& mapping, std::vector<Mapping>& stuck) override {
    if (mapping.address == 0) return driver_.release(mapping.handle, mapping.bytes);
    if (const auto gone = driver_.unmap(mapping.address, mapping.bytes); !gone.ok()) return gone;
    keep_if_not_released(mapping, stuck);
    return {};
  }

 private:
  DeviceAddress address_of_page(std::uint64_t page) const noexcept {
    return addresses_.address_of(page * kUnitsPerPage);
  }
  static bool is_new(const Mapping& target) { return target.handle == PhysicalHandle(); }

  /// One call for each row of neighbours.
  Result<void> set_access(const std::vector<Mapping>& targets) {
    for (std::size_t first = 0; first < targets.size();) {
      std::size_t next = first + 1;
      while (next < targets.size() && targets[next].pages.first == targets[next - 1].pages.end()) {
        ++next;
      }
      const std::uint64_t bytes =
          targets[next - 1].address + targets[next - 1].bytes - targets[first].address;
      if (auto set = driver_.set_access(targets[first].address, bytes); !set.ok()) return set;
      first = next;
    }
    return {};
  }

  Result<void> map_new_handle(Mapping& mapping, std::vector<Mapping>& stuck) {
    const auto handle = driver_.create(mapping.bytes);
    if (!handle.ok()) return handle.error();
    mapping.handle = handle.value();
    const auto mapped = driver_.map(mapping.address, mapping.bytes, mapping.handle);
    if (mapped.ok()) return {};
    keep_if_not_released(mapping, stuck);
    mapping.handle = PhysicalHandle();
    return mapped.error();
  }

  void keep_if_not_released(const Mapping& unmapped, std::vector<Mapping>& stuck) {
    if (driver_.release(unmapped.handle, unmapped.bytes).ok()) return;
    stuck.push_back(unmapped);
    stuck.back().address = 0;
  }

  std::uint64_t range_pages_;
};

}  // namespace

Result<std::unique_ptr<Arena>> make_vmm_arena(Driver& driver, std::uint64_t limit_bytes) {
  const std::uint64_t range = std::bit_ceil(std::max(limit_bytes, kPageBytes) * kRangeFactor);
  const auto base = driver.backend().reserve_address(range, kPageBytes);
  if (!base.ok()) return base.error();
  auto arena = std::make_unique<VmmArena>(driver, base.value(), range / kPageBytes);
  if (!arena->reserve()) return Error::out_of_memory;
  return Result<std::unique_ptr<Arena>>(std::move(arena));
}

}  // namespace gpupool::internal
