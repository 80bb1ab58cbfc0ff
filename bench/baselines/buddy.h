// The binary buddy system: every block is a power of two, and is cut from a block of twice its
// size; the other half is its buddy, found by one exclusive or, and joined when both are free.
// Knowlton, CACM 8 (1965); Knuth, TAOCP 1, 2.5, Algorithms R and S.
//
// Memory comes in segments of kSegmentBytes, or of the request rounded to a power of two if that is
// more, and stays; where the device is full, segments in which nothing is live go back to
// the driver. Rounding wastes up to half of a block, a quarter in the mean over evenly spread
// sizes.
//
// Streams: free lists for each. A block is in a list of the stream that freed it, a new segment in
// that of the stream it was made for. Buddies of different streams are never joined.
//
// Invariants: a block of order k begins at a multiple of 2^k in its segment; no two buddies are
// free for the same stream; held = sum of all blocks.
// Thread safety: none. Cost: O(orders) with one tag touched an order, a search among the segments
// on free; no driver call once warm. A tag of 32 bytes a granule, of which only heads are touched.
#ifndef GPUPOOL_BENCH_BASELINES_BUDDY_H_
#define GPUPOOL_BENCH_BASELINES_BUDDY_H_

#include <array>
#include <memory>
#include <vector>

#include "bench/baselines/allocation_system.h"
#include "gpupool/backend.h"

namespace gpupool::baselines {

struct UnmapPages {
  std::size_t bytes = 0;
  void operator()(void* pages) const;
};

class Buddy final : public AllocationSystem {
 public:
  /// 20 to 256 MiB differ little on recorded traces; this holds about the least.
  static constexpr std::uint64_t kSegmentBytes = std::uint64_t{64} << 20;

  /// Requires: `backend` outlives the system.
  Buddy(Backend& backend, std::size_t stream_count) : backend_(backend), lists_(stream_count) {}
  ~Buddy() override;

  Result<void*> allocate(std::uint64_t bytes, StreamIndex stream) override;
  bool deallocate(void* pointer, StreamIndex stream) override;
  std::string find_fault() const override;

 private:
  /// 2^order granules.
  using Order = unsigned;
  static constexpr Order kOrderCount = 33;  // to 2 TiB; no device has as much

  enum class State : std::uint8_t { inside, live, free };
  struct BuddySegment;
  /// Of a granule; means something at the head of a block.
  struct Tag {
    Tag* next;
    Tag* previous;  // nullptr: the first of its list
    BuddySegment* segment;
    std::uint32_t granule;  // in the segment
    std::uint8_t order;
    State state;
    StreamIndex stream;
  };
  struct BuddySegment {
    DeviceAddress address = 0;
    Order order = 0;
    std::size_t live_count = 0;
    /// Where blocks of high order begin comes first, so that large blocks touch few pages of tags.
    /// Pages of the system's own: those that nobody touches cost nothing, and zero is
    /// State::inside.
    std::unique_ptr<Tag[], UnmapPages> tags;
  };
  struct Lists {
    std::array<Tag*, kOrderCount> first{};
    std::uint64_t filled = 0;  // a bit for each order that has a free block
  };

  static std::uint64_t bytes_of(Order order) { return kGranuleBytes << order; }
  static std::uint64_t granules_of(Order order) { return std::uint64_t{1} << order; }
  static DeviceAddress address_of(const Tag& tag) {
    return tag.segment->address + tag.granule * kGranuleBytes;
  }
  static Tag& tag_at(const BuddySegment& segment, std::uint64_t granule);
  static Tag& new_tag(BuddySegment& segment, std::uint64_t granule);

  Tag* find_live(DeviceAddress address) const;
  Tag* find_free_buddy(const Tag& tag, StreamIndex stream) const;
  void push(Tag& tag, Order order, StreamIndex stream);
  void remove(Tag& tag);
  Result<void> add_segment(Order order, StreamIndex stream);
  bool give_back_unused();

  Backend& backend_;
  std::vector<Lists> lists_;                             // by stream
  std::vector<std::unique_ptr<BuddySegment>> segments_;  // by address
};

}  // namespace gpupool::baselines

#endif  // GPUPOOL_BENCH_BASELINES_BUDDY_H_
