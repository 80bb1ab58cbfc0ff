// The classic heap: free pieces in a list by size, the first that fits is cut, neighbours that are
// free again are joined. Knuth, TAOCP 1, 2.5: Algorithm A (first fit, here in a list ordered by
// size, then address, so that the first fit is the best fit, lowest address) and Algorithm C
// (boundary tags). The list is a balanced tree and the tags lie in host memory, since the device's
// cannot be touched; caching allocators for GPUs commonly have this form.
//
// Memory comes in segments of kSegmentBytes, or as large as the request if that is more, and stays;
// where the device is full, segments in which nothing is live go back to the driver.
//
// Streams: a list for each. A piece is in the list of the stream that freed it, a new segment in
// that of the stream it was made for. Pieces of different streams are never joined.
//
// Invariants: the pieces of a segment follow each other without a gap; no two neighbours are free
// for the same stream; held = sum of all pieces.
// Thread safety: none. Cost: O(log free pieces of the stream), no driver call once warm.
#ifndef GPUPOOL_BENCH_BASELINES_FREE_LIST_H_
#define GPUPOOL_BENCH_BASELINES_FREE_LIST_H_

#include <deque>
#include <set>
#include <vector>

#include "bench/baselines/address_map.h"
#include "bench/baselines/allocation_system.h"
#include "gpupool/backend.h"

namespace gpupool::baselines {

class FreeList final : public AllocationSystem {
 public:
  /// 20 to 256 MiB differ little on recorded traces; this holds about the least.
  static constexpr std::uint64_t kSegmentBytes = std::uint64_t{64} << 20;
  /// Segments are multiples of a page of the device.
  static constexpr std::uint64_t kPageBytes = std::uint64_t{2} << 20;

  /// Requires: `backend` outlives the system.
  FreeList(Backend& backend, std::size_t stream_count) : backend_(backend), free_(stream_count) {}
  ~FreeList() override;

  Result<void*> allocate(std::uint64_t bytes, StreamIndex stream) override;
  bool deallocate(void* pointer, StreamIndex stream) override;
  std::string find_fault() const override;

 private:
  struct Piece {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0;
    Piece* before = nullptr;  // neighbours in the segment
    Piece* after = nullptr;
    StreamIndex stream = 0;  // of a free piece: who freed it
    bool is_free = false;
  };
  struct Entry {
    std::uint64_t bytes = 0;
    DeviceAddress address = 0;
    Piece* piece = nullptr;
    friend bool operator<(const Entry& a, const Entry& b) {
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.address < b.address;
    }
  };
  using List = std::set<Entry>;

  Piece* new_piece();
  Result<List::iterator> add_segment(std::uint64_t bytes, StreamIndex stream);
  void cut(Piece& piece, std::uint64_t bytes, List& list, List::node_type node);
  bool may_join(const Piece* piece, StreamIndex stream) const {
    return piece != nullptr && piece->is_free && piece->stream == stream;
  }
  void absorb_next(Piece& piece);
  bool give_back_unused();

  Backend& backend_;
  std::vector<List> free_;  // by stream
  AddressMap<Piece> live_;
  std::deque<Piece> pieces_;  // all that were ever needed at once
  std::vector<Piece*> spare_;
};

}  // namespace gpupool::baselines

#endif  // GPUPOOL_BENCH_BASELINES_FREE_LIST_H_
