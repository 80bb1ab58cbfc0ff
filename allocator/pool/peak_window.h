// The highest values of the last 60 seconds, whoever asks and however often: one maximum a second
// in a ring, of which the seconds that are too old are passed over.
//
// Times are the pool's, which never go back.
//
// Thread safety: under the pool's lock. Cost: note() two comparisons; roll() and read O(60).
#ifndef GPUPOOL_POOL_PEAK_WINDOW_H_
#define GPUPOOL_POOL_PEAK_WINDOW_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace gpupool::internal {

class PeakWindow {
 public:
  static constexpr std::uint64_t kSeconds = 60;

  struct Peaks {
    std::uint64_t requested_bytes = 0;
    std::uint64_t held_bytes = 0;
  };

  void note_requested(std::uint64_t bytes) {
    current_.requested_bytes = std::max(current_.requested_bytes, bytes);
  }
  void note_held(std::uint64_t bytes) {
    current_.held_bytes = std::max(current_.held_bytes, bytes);
  }

  /// Files what was noted since the last call under the second of `now_ns`, and goes on from `now`.
  void roll(std::uint64_t now_ns, Peaks now) {
    const std::uint64_t second = now_ns / 1'000'000'000 + 1;
    Entry& entry = ring_[second % kSeconds];
    if (entry.second != second) entry = {second, {}};
    entry.peaks = higher(entry.peaks, current_);
    current_ = now;
  }

  Peaks read(std::uint64_t now_ns) const {
    const std::uint64_t second = now_ns / 1'000'000'000 + 1;
    Peaks peaks = current_;
    for (const Entry& entry : ring_) {
      if (entry.second != 0 && entry.second + kSeconds > second) {
        peaks = higher(peaks, entry.peaks);
      }
    }
    return peaks;
  }

 private:
  struct Entry {
    std::uint64_t second = 0;  // 0: empty
    Peaks peaks;
  };
  static Peaks higher(Peaks a, Peaks b) {
    return {std::max(a.requested_bytes, b.requested_bytes), std::max(a.held_bytes, b.held_bytes)};
  }

  Peaks current_;
  std::array<Entry, kSeconds> ring_{};
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_PEAK_WINDOW_H_
