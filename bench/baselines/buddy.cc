#include "bench/baselines/buddy.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "bench/baselines/growth.h"

namespace gpupool::baselines {

Buddy::~Buddy() { give_back_unused(); }

void UnmapPages::operator()(void* pages) const { munmap(pages, bytes); }

/// The tags of granules that 2^k divides, and 2^(k+1) does not, lie side by side, high k first.
Buddy::Tag& Buddy::tag_at(const BuddySegment& segment, std::uint64_t granule) {
  if (granule == 0) return segment.tags[0];
  const auto zeros = static_cast<Order>(std::countr_zero(granule));
  return segment.tags[granules_of(segment.order - 1 - zeros) + (granule >> (zeros + 1))];
}

Buddy::Tag& Buddy::new_tag(BuddySegment& segment, std::uint64_t granule) {
  Tag& tag = tag_at(segment, granule);
  tag.segment = &segment;
  tag.granule = static_cast<std::uint32_t>(granule);
  return tag;
}

Result<void*> Buddy::allocate(std::uint64_t bytes, StreamIndex stream) {
  if (bytes == 0) return nullptr;
  const auto order = static_cast<Order>(std::bit_width((bytes - 1) / kGranuleBytes));
  if (order >= kOrderCount) return Error::out_of_memory;
  Lists& lists = lists_[stream];
  if (lists.filled >> order == 0) {
    const Result<void> grown = add_segment(order, stream);
    if (!grown.ok()) return grown.error();
  }
  auto found = order + static_cast<Order>(std::countr_zero(lists.filled >> order));
  Tag& tag = *lists.first[found];
  remove(tag);
  while (found > order) {
    --found;
    push(new_tag(*tag.segment, tag.granule + granules_of(found)), found, stream);
  }
  tag.order = static_cast<std::uint8_t>(order);
  tag.state = State::live;
  ++tag.segment->live_count;
  return to_pointer(address_of(tag));
}

bool Buddy::deallocate(void* pointer, StreamIndex stream) {
  if (pointer == nullptr) return true;
  Tag* tag = find_live(to_address(pointer));
  if (tag == nullptr) return false;
  --tag->segment->live_count;
  Order order = tag->order;
  while (Tag* const buddy = find_free_buddy(*tag, stream)) {
    remove(*buddy);
    tag->state = buddy->state = State::inside;
    if (buddy->granule < tag->granule) tag = buddy;
    tag->order = static_cast<std::uint8_t>(++order);
  }
  push(*tag, order, stream);
  return true;
}

/// nullptr where no live block begins at `address`.
Buddy::Tag* Buddy::find_live(DeviceAddress address) const {
  const auto after =
      std::upper_bound(segments_.begin(), segments_.end(), address,
                       [](DeviceAddress a, const auto& s) { return a < s->address; });
  if (after == segments_.begin()) return nullptr;
  const BuddySegment& segment = **std::prev(after);
  const std::uint64_t offset = address - segment.address;
  if (offset >= bytes_of(segment.order) || offset % kGranuleBytes != 0) return nullptr;
  Tag& tag = tag_at(segment, offset / kGranuleBytes);
  return tag.state == State::live ? &tag : nullptr;
}

/// The buddy of the block at `tag` where it is free as a whole and `stream`'s.
Buddy::Tag* Buddy::find_free_buddy(const Tag& tag, StreamIndex stream) const {
  if (tag.order == tag.segment->order) return nullptr;
  Tag& buddy = tag_at(*tag.segment, tag.granule ^ granules_of(tag.order));
  const bool is_one =
      buddy.state == State::free && buddy.order == tag.order && buddy.stream == stream;
  return is_one ? &buddy : nullptr;
}

void Buddy::push(Tag& tag, Order order, StreamIndex stream) {
  Lists& lists = lists_[stream];
  tag.order = static_cast<std::uint8_t>(order);
  tag.state = State::free;
  tag.stream = stream;
  tag.previous = nullptr;
  tag.next = lists.first[order];
  if (tag.next != nullptr) tag.next->previous = &tag;
  lists.first[order] = &tag;
  lists.filled |= std::uint64_t{1} << order;
}

void Buddy::remove(Tag& tag) {
  Lists& lists = lists_[tag.stream];
  if (tag.next != nullptr) tag.next->previous = tag.previous;
  if (tag.previous != nullptr) {
    tag.previous->next = tag.next;
    return;
  }
  lists.first[tag.order] = tag.next;
  if (tag.next == nullptr) lists.filled &= ~(std::uint64_t{1} << tag.order);
}

Result<void> Buddy::add_segment(Order order, StreamIndex stream) {
  const Result<Segment> grown = grow(backend_, std::max(bytes_of(order), kSegmentBytes),
                                     bytes_of(order), [this] { return give_back_unused(); });
  if (!grown.ok()) return grown.error();
  auto segment = std::make_unique<BuddySegment>();
  segment->address = grown.value().address;
  segment->order = static_cast<Order>(std::bit_width(grown.value().bytes / kGranuleBytes) - 1);
  const std::size_t tag_bytes = granules_of(segment->order) * sizeof(Tag);
  // Not calloc, which clears memory that it has used before: all of it, for a few tags.
  void* const tags = mmap(nullptr, tag_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (tags == MAP_FAILED) {
    // The host has no room for the tags. A refusal here leaves the memory held, which is counted.
    static_cast<void>(backend_.deallocate(segment->address));
    return Error::out_of_memory;
  }
  segment->tags = {static_cast<Tag*>(tags), UnmapPages{tag_bytes}};
  push(new_tag(*segment, 0), segment->order, stream);
  const auto place = std::upper_bound(
      segments_.begin(), segments_.end(), segment->address,
      [](DeviceAddress address, const auto& other) { return address < other->address; });
  segments_.insert(place, std::move(segment));
  return {};
}

bool Buddy::give_back_unused() {
  const std::size_t before = segments_.size();
  const auto is_given_back = [this](const std::unique_ptr<BuddySegment>& segment) {
    if (segment->live_count != 0 || !backend_.deallocate(segment->address).ok()) return false;
    // Several blocks where several streams have freed them.
    for (std::uint64_t granule = 0; granule < granules_of(segment->order);) {
      Tag& tag = tag_at(*segment, granule);
      granule += granules_of(tag.order);
      remove(tag);
    }
    return true;
  };
  segments_.erase(std::remove_if(segments_.begin(), segments_.end(), is_given_back),
                  segments_.end());
  return segments_.size() < before;
}

std::string Buddy::find_fault() const {
  std::string fault;
  std::uint64_t held = 0;
  std::size_t free_count = 0;
  for (const auto& segment : segments_) {
    held += bytes_of(segment->order);
    const std::uint64_t end = granules_of(segment->order);
    std::size_t live_count = 0;
    for (std::uint64_t granule = 0; granule < end;) {
      const Tag& tag = tag_at(*segment, granule);
      const std::uint64_t length = granules_of(tag.order);
      const bool is_head = tag.segment == segment.get() && tag.granule == granule;
      if (tag.state == State::inside || !is_head) return "a head that is none";
      if (granule % length != 0) fault = "a block that begins where its order cannot";
      if (tag.state == State::live) ++live_count;
      if (tag.state == State::free) {
        ++free_count;
        if (find_free_buddy(tag, tag.stream) != nullptr) fault = "free buddies not joined";
      }
      granule += length;
      if (granule > end) fault = "a block that is longer than its segment";
    }
    if (live_count != segment->live_count) fault = "a segment that counts wrongly";
  }
  for (std::size_t stream = 0; stream < lists_.size(); ++stream) {
    for (Order order = 0; order < kOrderCount; ++order) {
      const Tag* const first = lists_[stream].first[order];
      const bool is_filled = ((lists_[stream].filled >> order) & 1) != 0;
      if (is_filled != (first != nullptr)) fault = "a list whose bit says otherwise";
      for (const Tag* tag = first; tag != nullptr; tag = tag->next, --free_count) {
        if (tag->state != State::free || tag->order != order || tag->stream != stream) {
          fault = "a block in a wrong list";
        }
      }
    }
  }
  if (free_count != 0) fault = "free blocks that are in no list";
  if (held != backend_.held_bytes()) fault = "segments do not sum up to what is held";
  return fault;
}

}  // namespace gpupool::baselines
