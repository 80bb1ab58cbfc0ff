// Pages in segments that cudaMalloc gave, wherever they lie. A page number says nothing of the
// address: between two segments there is always an unbacked page, so that nothing spans them.
#include <algorithm>
#include <iterator>
#include <map>

#include "arena/arena.h"

namespace gpupool::internal {
namespace {

/// Page numbers for each page that may be held: room for the gaps when all segments are small.
constexpr std::uint64_t kLineFactor = 8;

class SegmentArena final : public Arena {
 public:
  SegmentArena(Driver& driver, std::uint64_t page_capacity) : Arena(driver, page_capacity) {}

  bool reserve() { return reserve_tables() && addresses_.reserve(page_capacity()); }
  bool is_contiguous() const noexcept override { return false; }
  std::uint64_t gap_pages() const noexcept override { return 1; }

  DeviceAddress address_of(std::uint64_t unit) const noexcept override {
    return addresses_[unit / kUnitsPerPage] + unit % kUnitsPerPage * kUnitBytes;
  }

  std::optional<std::uint64_t> find_unit(DeviceAddress address) const noexcept override {
    auto after = by_address_.upper_bound(address);
    if (after == by_address_.begin()) return std::nullopt;
    const auto& [start, pages] = *std::prev(after);
    const std::uint64_t offset = address - start;
    if (offset >= pages.count * kPageBytes) return std::nullopt;
    return pages.first * kUnitsPerPage + offset / kUnitBytes;
  }

  Result<std::vector<Mapping>> back(PageSpan pages, std::uint64_t budget_bytes,
                                    std::vector<Mapping>& stuck) override {
    Mapping mapping;
    mapping.pages = pages;
    mapping.bytes = pages.count * kPageBytes;
    if (mapping.bytes > budget_bytes) return Error::out_of_memory;
    auto segment = driver_.allocate(mapping.bytes);
    if (!segment.ok()) return segment.error();
    if (segment.value() % kPageBytes != 0) {
      // cudaMalloc promises 256 bytes; blocks may be asked for with up to a page of alignment. So
      // take one page more and begin at the first boundary in it.
      if (!driver_.deallocate(segment.value(), mapping.bytes).ok()) {
        mapping.segment = segment.value();
        stuck.push_back(mapping);
        return Error::backend_failure;
      }
      mapping.bytes += kPageBytes;
      if (mapping.bytes > budget_bytes) return Error::out_of_memory;
      segment = driver_.allocate(mapping.bytes);
      if (!segment.ok()) return segment.error();
    }
    mapping.segment = segment.value();
    mapping.address = round_up(segment.value(), kPageBytes);
    return std::vector<Mapping>{mapping};
  }

  Result<void> unback(const Mapping& mapping, std::vector<Mapping>&) override {
    return driver_.deallocate(mapping.segment, mapping.bytes);
  }

 protected:
  void on_commit(const Mapping& mapping) override {
    for (std::uint64_t i = 0; i < mapping.pages.count; ++i) {
      addresses_[mapping.pages.first + i] = mapping.address + i * kPageBytes;
    }
    by_address_.emplace(mapping.address, mapping.pages);
  }

  void on_withdraw(const Mapping& mapping) override { by_address_.erase(mapping.address); }

 private:
  LazyArray<DeviceAddress> addresses_;  // by page
  std::map<DeviceAddress, PageSpan> by_address_;
};

}  // namespace

Result<std::unique_ptr<Arena>> make_segment_arena(Driver& driver, std::uint64_t limit_bytes) {
  const std::uint64_t pages = std::max(limit_bytes, kPageBytes) / kPageBytes * kLineFactor;
  auto arena = std::make_unique<SegmentArena>(driver, pages);
  if (!arena->reserve()) return Error::out_of_memory;
  return Result<std::unique_ptr<Arena>>(std::move(arena));
}

}  // namespace gpupool::internal
