// Pages in segments that cudaMalloc gave, wherever they lie. A page number says nothing of the
// address: between two segments there is always an unbacked page, so that nothing spans them.
#include <algorithm>

#include "arena/arena.h"

namespace gpupool::internal {
namespace {

/// Page numbers for each page that may be held: room for the gaps when all segments are small.
constexpr std::uint64_t kLineFactor = 8;

class SegmentArena final : public Arena {
 public:
  SegmentArena(Driver& driver, std::uint64_t page_capacity)
      : Arena(driver, page_capacity, page_capacity) {}

  bool reserve() { return reserve_tables() && addresses_.start_pages(page_capacity()); }
  bool is_contiguous() const noexcept override { return false; }
  std::uint64_t gap_pages() const noexcept override { return 1; }
  // Of the smallest segments, a page each, every other page is a gap.
  std::uint64_t most_held_bytes() const noexcept override {
    return page_capacity() / 2 * kPageBytes;
  }

  /// Requires: one target, a new one.
  Result<void> back(std::vector<Mapping>& targets, std::uint64_t budget_bytes,
                    std::vector<Mapping>& stuck) override {
    Mapping& mapping = targets.front();
    const PageSpan pages = mapping.pages;
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
    if (!AddressMap::can_hold(mapping.address + pages.count * kPageBytes)) {
      if (!driver_.deallocate(mapping.segment, mapping.bytes).ok()) {
        mapping.address = 0;
        stuck.push_back(mapping);
      }
      return Error::not_supported;
    }
    return {};
  }

  Result<void> unback(const Mapping& mapping, std::vector<Mapping>&) override {
    return driver_.deallocate(mapping.segment, mapping.bytes);
  }

  /// Nothing is ever mapped twice here.
  Result<void> unmap(DeviceAddress, std::uint64_t) override { return Error::not_supported; }

 protected:
  void on_commit(const Mapping& mapping) override {
    for (std::uint64_t i = 0; i < mapping.pages.count; ++i) {
      addresses_.set_page(mapping.pages.first + i, mapping.address + i * kPageBytes);
    }
  }

  void on_withdraw(const Mapping& mapping) override {
    for (std::uint64_t i = 0; i < mapping.pages.count; ++i) {
      addresses_.clear_page(mapping.pages.first + i);
    }
  }
};

}  // namespace

Result<std::unique_ptr<Arena>> make_segment_arena(Driver& driver, std::uint64_t limit_bytes) {
  const std::uint64_t pages = std::max(limit_bytes, kPageBytes) / kPageBytes * kLineFactor;
  auto arena = std::make_unique<SegmentArena>(driver, pages);
  if (!arena->reserve()) return Error::out_of_memory;
  return Result<std::unique_ptr<Arena>>(std::move(arena));
}

}  // namespace gpupool::internal
