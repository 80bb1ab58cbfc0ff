// Who may still be using a free piece of memory: the tickets of one free run or one chunk.
//
// At most four tickets, one a stream, the later epoch of each; with more the set turns into a
// fence: nobody's until everything that was unfinished then, on each of their streams, is complete.
// Streams of which nothing can ever be known again (destroyed unannounced, or of a thread that has
// ended) so keep only what they used themselves.
//
// Nearly every set has no ticket or one. Those lie in one word, packed as
//
//   bit 63: there is more, in the rest;   bits 62-47: stream;   bits 46-0: epoch, from 1 on
//
// so that a set which stands at the end of a record's first cache line leaves the next one alone.
// 2^47 epochs are four years of an epoch a microsecond; StreamTable gives no index of more than 16
// bits.
//
// Invariants: a piece may be given to a stream only if each ticket is complete or that stream's;
// there is more <=> there are two tickets or a fence. Zero bytes are an empty set.
// Thread safety: under the pool's lock. Cost: a few instructions where no rest is involved.
#ifndef GPUPOOL_STREAM_TICKET_SET_H_
#define GPUPOOL_STREAM_TICKET_SET_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "stream/stream_table.h"
#include "stream/ticket.h"

namespace gpupool::internal {

class TicketSet {
 public:
  static constexpr std::size_t kCapacity = 4;

  TicketSet() noexcept {}  // not defaulted: that would fill the rest with zeros in `TicketSet()`
  explicit TicketSet(Ticket ticket) noexcept : head_(pack(ticket)) {}
  TicketSet(const TicketSet& other) noexcept { *this = other; }
  TicketSet& operator=(const TicketSet& other) noexcept {
    head_ = other.head_;
    if (has_more()) rest_ = other.rest_;
    return *this;
  }

  bool empty() const noexcept { return head_ == 0; }
  void clear() noexcept { head_ = 0; }
  void add(Ticket ticket, StreamTable& streams) {
    const std::uint64_t packed = pack(ticket);
    if (head_ == 0) {
      head_ = packed;
    } else if ((head_ ^ packed) >> kEpochBits == 0) {
      head_ = std::max(head_, packed);  // the same stream, and no more
    } else {
      add_to_several(ticket, streams);
    }
  }
  void add(const TicketSet& other, StreamTable& streams) {
    if (other.has_more()) {
      add_several(other, streams);
    } else if (other.head_ != 0) {
      add(unpack(other.head_), streams);
    }
  }
  /// Forgets what is complete.
  void prune(const StreamTable& streams) {
    if (head_ == 0) return;
    if (has_more()) {
      prune_several(streams);
    } else if (streams.is_complete(unpack(head_))) {
      head_ = 0;
    }
  }
  /// Forgets what others may have: what is complete, but where streams are kept apart.
  void forget_shared(const StreamTable& streams) {
    if (head_ == 0) return;
    if (has_more()) {
      forget_shared_several(streams);
    } else if (streams.is_shared(unpack(head_))) {
      head_ = 0;
    }
  }
  /// Of several streams whose work is complete, where they are kept apart: that of the first alone,
  /// which is the one that freed the piece.
  void keep_first_if_complete(const StreamTable& streams);
  /// Whose the piece is, as of the last prune: kAnybody, kNobody, or a stream.
  StreamIndex holder() const noexcept {
    if (head_ == 0) return kAnybody;
    return has_more() ? kNobody : unpack(head_).stream;
  }
  /// Whether the one stream that this set waits for, if any, is `stream`.
  bool is_at_most_of(StreamIndex stream) const noexcept {
    return head_ == 0 || head_ >> kEpochBits == stream;
  }

  /// The set in a word, where it has one ticket or none: 0 for none. Several: is_several() is true
  /// of what this gives. Words of one stream are in the order of their epochs.
  std::uint64_t packed() const noexcept { return head_; }
  static bool is_several(std::uint64_t packed) noexcept { return (packed & kMore) != 0; }
  static bool is_of_one_stream(std::uint64_t a, std::uint64_t b) noexcept {
    return (a ^ b) >> kEpochBits == 0;
  }
  static Ticket ticket_of(std::uint64_t packed) noexcept { return unpack(packed); }

  std::size_t count() const noexcept {
    return has_more() ? several().count : static_cast<std::size_t>(head_ != 0);
  }
  /// Whether pseudo-streams are among what it waits for.
  bool is_pinned(const StreamTable& streams) const noexcept;
  Ticket operator[](std::size_t i) const noexcept { return several().tickets[i]; }
  bool has_fence() const noexcept { return has_more() && rest_.fence_sequence != 0; }

 private:
  static constexpr unsigned kEpochBits = 47;
  static constexpr std::uint64_t kEpochMask = (std::uint64_t{1} << kEpochBits) - 1;
  static constexpr std::uint64_t kMore = std::uint64_t{1} << 63;
  static_assert(StreamTable::kMaxStreams <= std::uint64_t{1} << (63 - kEpochBits));

  static constexpr std::uint64_t pack(Ticket ticket) noexcept {
    return std::uint64_t{ticket.stream} << kEpochBits | ticket.epoch;
  }
  static constexpr Ticket unpack(std::uint64_t packed) noexcept {
    return {static_cast<StreamIndex>((packed & ~kMore) >> kEpochBits), packed & kEpochMask};
  }

  /// The set spelled out, for what is rare.
  struct Several {
    std::array<Ticket, kCapacity> tickets;
    std::size_t count = 0;
    Fence fence;

    void add(Ticket ticket, StreamTable& streams);
    void prune(const StreamTable& streams);
    void forget_shared(const StreamTable& streams);
  };
  Several several() const noexcept;
  void set(const Several& several) noexcept;
  void add_to_several(Ticket ticket, StreamTable& streams);
  void add_several(const TicketSet& other, StreamTable& streams);
  void prune_several(const StreamTable& streams);
  void forget_shared_several(const StreamTable& streams);

  bool has_more() const noexcept { return (head_ & kMore) != 0; }

  /// Means something only where there is more.
  struct Rest {
    std::array<std::uint64_t, kCapacity - 1> packed;  // 0: none
    std::uint64_t fence_sequence;
    std::uint64_t fence_groups;
  };
  std::uint64_t head_ = 0;
  Rest rest_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_STREAM_TICKET_SET_H_
