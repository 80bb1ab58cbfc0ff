#include "stream/stream_holds.h"

#include <algorithm>

namespace gpupool::internal {

void StreamHolds::begin(CapturePoolId pool, std::uint64_t thread) {
  for (Hold& hold : holds_) {
    if (!(hold.pool == pool)) continue;
    hold.thread = thread;
    return;
  }
  holds_.push_back({pool, thread, {}});
}

void StreamHolds::note_served(CapturePoolId pool, StreamIndex stream) {
  for (Hold& hold : holds_) {
    if (!(hold.pool == pool)) continue;
    const bool is_known =
        std::find(hold.streams.begin(), hold.streams.end(), stream) != hold.streams.end();
    if (!is_known) hold.streams.push_back(stream);
    return;
  }
}

void StreamHolds::end(CapturePoolId pool) {
  std::erase_if(holds_, [&](const Hold& hold) { return hold.pool == pool; });
}

void StreamHolds::announce(StreamIndex stream, std::uint64_t thread) {
  withdraw(stream);
  holds_.push_back({{}, thread, {stream}});
}

void StreamHolds::withdraw(StreamIndex stream) {
  std::erase_if(holds_, [&](const Hold& hold) {
    return hold.is_announced() && hold.streams.front() == stream;
  });
}

void StreamHolds::forget(StreamIndex stream) {
  withdraw(stream);
  for (Hold& hold : holds_) {
    // One that served nobody else goes on as one of no stream, not of all.
    std::replace(hold.streams.begin(), hold.streams.end(), stream, kAnybody);
  }
}

bool StreamHolds::is_any_open() const noexcept {
  return std::any_of(holds_.begin(), holds_.end(),
                     [](const Hold& hold) { return hold.is_announced() || hold.streams.empty(); });
}

bool StreamHolds::is_held_by_another(StreamIndex stream, std::uint64_t thread) const noexcept {
  return std::any_of(holds_.begin(), holds_.end(), [&](const Hold& hold) {
    if (hold.thread == thread) return false;
    return hold.streams.empty() ||
           std::find(hold.streams.begin(), hold.streams.end(), stream) != hold.streams.end();
  });
}

}  // namespace gpupool::internal
