// Who may still be using a free piece of memory.
//
// A ticket is a stream and one of its epochs: the piece was freed on that stream while that epoch
// was open, so everything that may touch it is complete once the epoch is. A TicketSet belongs to
// one free run or one chunk and keeps at most four tickets, one a stream, the later epoch of each;
// with more it turns into a fence: nobody's until everything that was unfinished then, on each of
// their streams, is complete. Streams of which nothing can ever be known again (destroyed
// unannounced, or of a thread that has ended) so keep only what they used themselves.
//
// Invariant: a piece may be given to a stream only if each ticket is complete or that stream's.
// Thread safety: under the pool's lock. Cost: four comparisons.
#ifndef GPUPOOL_STREAM_TICKET_H_
#define GPUPOOL_STREAM_TICKET_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace gpupool::internal {

using StreamIndex = std::uint32_t;

/// Answers to "whose is this piece?" that are not a stream.
inline constexpr StreamIndex kAnybody = 0xffffffff;  // all tickets complete
inline constexpr StreamIndex kNobody = 0xfffffffe;   // unfinished work of several streams

struct Ticket {
  StreamIndex stream = kAnybody;
  std::uint64_t epoch = 0;
};

/// All that was unfinished at one moment on some streams. 64 groups of streams stand for the
/// streams: what is waited for too much is another stream of a group.
struct Fence {
  std::uint64_t sequence = 0;  // of the moment; 0: no fence
  std::uint64_t groups = 0;

  static constexpr std::uint64_t group_of(StreamIndex stream) noexcept {
    return std::uint64_t{1} << stream % 64;
  }
};

class StreamTable;

class TicketSet {
 public:
  static constexpr std::size_t kCapacity = 4;

  bool empty() const noexcept { return count_ == 0 && !has_fence(); }
  void clear() noexcept {
    count_ = 0;
    fence_ = {};
  }
  void add(Ticket ticket, StreamTable& streams);
  void add(const TicketSet& other, StreamTable& streams);
  /// Forgets what is complete.
  void prune(const StreamTable& streams);
  /// Whose the piece is, as of the last prune: kAnybody, kNobody, or a stream.
  StreamIndex holder() const noexcept;

  std::size_t count() const noexcept { return count_; }
  const Ticket& operator[](std::size_t i) const noexcept { return tickets_[i]; }
  bool has_fence() const noexcept { return fence_.sequence != 0; }

 private:
  std::array<Ticket, kCapacity> tickets_{};
  std::uint32_t count_ = 0;
  Fence fence_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_STREAM_TICKET_H_
