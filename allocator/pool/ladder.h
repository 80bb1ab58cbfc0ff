// What the out-of-memory ladder keeps: for one request, which rungs were tried and what each gave;
// for the pool, how often each was tried and served, and the last requests that were no hit.
//
//   successes <= tries, for each rung;   sum of successes <= requests served
//
// Thread safety: LadderLog belongs to the thread that asks; LadderBooks are under the pool's lock.
// Cost: a log is one byte until a rung is tried; the books a step for each rung that was.
#ifndef GPUPOOL_POOL_LADDER_H_
#define GPUPOOL_POOL_LADDER_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpupool/failure_report.h"
#include "gpupool/stats.h"

namespace gpupool::internal {

class LadderLog {
 public:
  LadderLog() noexcept {}  // not defaulted: that would fill the bytes with zeros

  void note_try(LadderRung rung) noexcept {
    if (!was_tried(rung)) gave_bytes_[index(rung)] = 0;
    tried_ = static_cast<std::uint8_t>(tried_ | bit(rung));
  }
  /// The rung has given something that may serve the request, perhaps nothing that counts in bytes.
  void note_gain(LadderRung rung, std::uint64_t bytes) noexcept {
    note_try(rung);
    gave_ = static_cast<std::uint8_t>(gave_ | bit(rung));
    gave_bytes_[index(rung)] += bytes;
  }
  /// The same, where 0 is nothing.
  void note(LadderRung rung, std::uint64_t gained) noexcept {
    gained > 0 ? note_gain(rung, gained) : note_try(rung);
  }
  bool has_any() const noexcept { return tried_ != 0; }
  bool was_tried(LadderRung rung) const noexcept { return (tried_ & bit(rung)) != 0; }
  bool has_given(LadderRung rung) const noexcept { return (gave_ & bit(rung)) != 0; }
  std::array<RungReport, kLadderRungCount> reports() const noexcept {
    std::array<RungReport, kLadderRungCount> all;
    for (std::size_t i = 0; i < kLadderRungCount; ++i) {
      if ((tried_ >> i & 1U) != 0) all[i] = {true, gave_bytes_[i]};
    }
    return all;
  }
  void add_to(StatsV1& stats, bool is_served) const noexcept {
    for (std::size_t i = 0; i < kLadderRungCount; ++i) stats.ladder_tries[i] += tried_ >> i & 1U;
    if (is_served && gave_ != 0) ++stats.ladder_successes[std::bit_width(unsigned{gave_}) - 1U];
  }

  std::uint64_t waited_ns = 0;  // on the rung `wait`
  int retries = 0;              // that the handler asked for
  bool is_unfit = false;  // at the last try a block was there, which the guards could not fill

 private:
  static constexpr std::size_t index(LadderRung rung) noexcept {
    return static_cast<std::size_t>(rung);
  }
  static constexpr unsigned bit(LadderRung rung) noexcept { return 1U << index(rung); }
  static_assert(kLadderRungCount <= 8);

  std::uint8_t tried_ = 0;
  std::uint8_t gave_ = 0;
  std::array<std::uint64_t, kLadderRungCount> gave_bytes_;  // of those that were tried
};

/// How long one request has waited, and how long it waits until it looks again: a share of what it
/// has waited, so that what comes early is seen early, and a long wait costs few looks.
struct LadderWait {
  static constexpr std::uint64_t kFirstPauseNs = 20'000;
  static constexpr std::uint64_t kLongestPauseNs = 20'000'000;
  static constexpr std::uint64_t kShare = 16;

  std::uint64_t waited_ns = 0;
  bool could_grow = false;  // at the last try, which failed all the same
  bool is_over = false;

  std::uint64_t pause_ns(std::uint64_t most_ns) const noexcept {
    return std::min(most_ns, std::clamp(waited_ns / kShare, kFirstPauseNs, kLongestPauseNs));
  }
};

/// The last requests that were no hit, the newest first.
class MissHistory {
 public:
  void note(const MissRecord& miss) noexcept { ring_[count_++ % ring_.size()] = miss; }
  std::vector<MissRecord> last() const {
    const std::size_t kept = std::min<std::size_t>(count_, ring_.size());
    std::vector<MissRecord> all;
    for (std::size_t i = 1; i <= kept; ++i) all.push_back(ring_[(count_ - i) % ring_.size()]);
    return all;
  }

 private:
  std::array<MissRecord, FailureReport::kMaxMisses> ring_;
  std::size_t count_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_LADDER_H_
