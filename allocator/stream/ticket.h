// A ticket: a stream and one of its epochs, for something that was freed on that stream while that
// epoch was open. Everything that may touch it is complete once the epoch is. A fence stands for
// all that was unfinished at one moment on many streams.
//
// Thread safety: plain values.
#ifndef GPUPOOL_STREAM_TICKET_H_
#define GPUPOOL_STREAM_TICKET_H_

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
/// streams: what is waited for too much is another stream of a group. Pseudo-streams (see
/// StreamTable) are a group of their own, since their work counts as unfinished for long.
struct Fence {
  std::uint64_t sequence = 0;  // of the moment; 0: no fence
  std::uint64_t groups = 0;

  static constexpr std::uint64_t kPseudo = std::uint64_t{1} << 63;
  static constexpr std::uint64_t group_of(StreamIndex stream) noexcept {
    return std::uint64_t{1} << stream % 63;
  }
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_STREAM_TICKET_H_
