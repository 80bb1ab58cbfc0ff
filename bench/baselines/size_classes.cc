#include "bench/baselines/size_classes.h"

#include <algorithm>
#include <bit>

#include "bench/baselines/growth.h"

namespace gpupool::baselines {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;
constexpr unsigned kGranuleShift = 9;
static_assert(kGranuleBytes == std::uint64_t{1} << kGranuleShift);

}  // namespace

SizeClasses::SizeClass SizeClasses::class_of(std::uint64_t bytes) {
  const auto log2 = static_cast<unsigned>(std::bit_width(bytes - 1));  // bytes <= 2^log2
  // A step is an eighth of the next power of two: four of them from the power before.
  const unsigned shift = std::max(log2, kGranuleShift + 3) - 3;
  const std::uint64_t steps = ((bytes - 1) >> shift) + 1;
  return {std::size_t{shift - kGranuleShift} * 4 + static_cast<std::size_t>(steps) - 1,
          steps << shift};
}

SizeClasses::~SizeClasses() { give_back_unused(); }

Result<void*> SizeClasses::allocate(std::uint64_t bytes, StreamIndex stream) {
  if (bytes == 0) return nullptr;
  if (bytes > kMostBytes) return Error::out_of_memory;
  const SizeClass size_class = class_of(bytes);
  Block*& first = lists_[stream][size_class.index];
  if (first == nullptr) {
    const Result<void> added = add_slab(size_class, stream);
    if (!added.ok()) return added.error();
  }
  Block& block = *first;
  first = block.next;
  block.is_live = true;
  ++block.slab->live_count;
  return to_pointer(block.address);
}

bool SizeClasses::deallocate(void* pointer, StreamIndex stream) {
  if (pointer == nullptr) return true;
  Block* const block = blocks_.find(to_address(pointer));
  if (block == nullptr || !block->is_live) return false;
  block->is_live = false;
  --block->slab->live_count;
  Block*& first = lists_[stream][block->slab->class_index];
  block->next = first;
  first = block;
  return true;
}

Result<void> SizeClasses::add_slab(const SizeClass& size_class, StreamIndex stream) {
  const bool is_cut = size_class.bytes <= kSlabBytes / 4;
  const std::uint64_t wanted = is_cut ? kSlabBytes : size_class.bytes;
  const Result<Segment> segment =
      grow(backend_, wanted, wanted, [this] { return give_back_unused(); });
  if (!segment.ok()) return segment.error();
  Slab& slab = slabs_.emplace_back();
  slab.address = segment.value().address;
  slab.bytes = segment.value().bytes;
  slab.class_index = size_class.index;
  slab.blocks.resize(static_cast<std::size_t>(slab.bytes / size_class.bytes));
  Block*& first = lists_[stream][size_class.index];
  // From the last on, so that the first of the slab is served first.
  for (std::size_t i = slab.blocks.size(); i-- > 0;) {
    Block& block = slab.blocks[i];
    block.address = slab.address + i * size_class.bytes;
    block.slab = &slab;
    block.next = first;
    first = &block;
    blocks_.insert(block.address, &block);
  }
  return {};
}

/// Looks at everything: it is rare, and the driver's calls cost more.
bool SizeClasses::give_back_unused() {
  bool has_given = false;
  for (Slab& slab : slabs_) {
    slab.is_gone = slab.live_count == 0 && backend_.deallocate(slab.address).ok();
    has_given = has_given || slab.is_gone;
  }
  if (!has_given) return false;
  for (Lists& lists : lists_) {
    for (Block*& first : lists) {
      for (Block** link = &first; *link != nullptr;) {
        if ((*link)->slab->is_gone) {
          *link = (*link)->next;
        } else {
          link = &(*link)->next;
        }
      }
    }
  }
  slabs_.remove_if([this](const Slab& slab) {
    if (!slab.is_gone) return false;
    for (const Block& block : slab.blocks) blocks_.erase(block.address);
    return true;
  });
  return true;
}

std::string SizeClasses::find_fault() const {
  std::string fault;
  std::uint64_t held = 0;
  std::size_t free_count = 0;
  std::size_t block_count = 0;
  for (const Slab& slab : slabs_) {
    held += slab.bytes;
    block_count += slab.blocks.size();
    std::size_t live_count = 0;
    for (const Block& block : slab.blocks) {
      live_count += block.is_live ? 1 : 0;
      if (blocks_.find(block.address) != &block) fault = "a block that is not found";
    }
    if (live_count != slab.live_count) fault = "a slab that counts wrongly";
    free_count += slab.blocks.size() - live_count;
  }
  for (const Lists& lists : lists_) {
    for (std::size_t index = 0; index < lists.size(); ++index) {
      for (const Block* block = lists[index]; block != nullptr; block = block->next) {
        if (free_count-- == 0) return "more blocks in lists than are free";
        if (block->is_live || block->slab->class_index != index) fault = "a block in a wrong list";
      }
    }
  }
  if (free_count != 0) fault = "free blocks that are in no list";
  if (blocks_.size() != block_count) fault = "blocks of a slab that is gone";
  if (held != backend_.held_bytes()) fault = "slabs do not sum up to what is held";
  return fault;
}

}  // namespace gpupool::baselines
