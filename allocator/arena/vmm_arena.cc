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
/// The largest handle. The driver's cost is per handle (about 28 us), hardly per byte, so that few
/// large ones are cheaper to map; larger still would be too coarse to give back.
constexpr std::uint64_t kMaxHandlePages = 16;

class VmmArena final : public Arena {
 public:
  VmmArena(Driver& driver, DeviceAddress base, std::uint64_t page_capacity)
      : Arena(driver, page_capacity), base_(base) {
    addresses_.start_range(base, page_capacity);
  }

  ~VmmArena() override {
    // Nothing can be done about a driver that refuses at the end; see Pool's destructor.
    static_cast<void>(driver_.backend().free_address(base_, page_capacity() * kPageBytes));
  }

  bool reserve() { return reserve_tables(); }
  bool is_contiguous() const noexcept override { return true; }
  std::uint64_t gap_pages() const noexcept override { return 0; }

  Result<std::vector<Mapping>> back(PageSpan pages, std::uint64_t budget_bytes,
                                    std::vector<Mapping>& stuck) override {
    if (pages.count * kPageBytes > budget_bytes) return Error::out_of_memory;
    std::vector<Mapping> mappings;
    Error error{};
    bool ok = true;
    for (std::uint64_t page = pages.first; ok && page < pages.end();) {
      const std::uint64_t count = std::min(kMaxHandlePages, std::bit_floor(pages.end() - page));
      Mapping mapping;
      mapping.pages = {page, count};
      mapping.address = base_ + page * kPageBytes;
      mapping.bytes = count * kPageBytes;
      const auto made = map_new_handle(mapping, stuck);
      ok = made.ok();
      if (ok) {
        mappings.push_back(mapping);
        page += count;
      } else {
        error = made.error();
      }
    }
    if (ok) {
      const auto access =
          driver_.set_access(base_ + pages.first * kPageBytes, pages.count * kPageBytes);
      if (access.ok()) return mappings;
      error = access.error();
    }
    for (const Mapping& mapping : mappings) {
      if (!unback(mapping, stuck).ok()) stuck.push_back(mapping);
    }
    return error;
  }

  Result<void> unback(const Mapping& mapping, std::vector<Mapping>& stuck) override {
    if (mapping.address == 0) return driver_.release(mapping.handle, mapping.bytes);
    if (const auto gone = driver_.unmap(mapping.address, mapping.bytes); !gone.ok()) return gone;
    keep_if_not_released(mapping, stuck);
    return {};
  }

 private:
  Result<void> map_new_handle(Mapping& mapping, std::vector<Mapping>& stuck) {
    const auto handle = driver_.create(mapping.bytes);
    if (!handle.ok()) return handle.error();
    mapping.handle = handle.value();
    const auto mapped = driver_.map(mapping.address, mapping.bytes, mapping.handle);
    if (mapped.ok()) return {};
    keep_if_not_released(mapping, stuck);
    return mapped.error();
  }

  void keep_if_not_released(const Mapping& unmapped, std::vector<Mapping>& stuck) {
    if (driver_.release(unmapped.handle, unmapped.bytes).ok()) return;
    stuck.push_back(unmapped);
    stuck.back().address = 0;
  }

  DeviceAddress base_;
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
