// How many empty pages nobody has needed for a while, and how many of them may go back by now.
//
// A page has no age of its own: what counts is the fewest that were empty at any moment of the time
// that TrimOptions names, as seen in kParts parts of it. Those are more than anybody needed all
// that time, whichever they are.
//
// Times are the pool's, which never go back.
//
// Thread safety: under the pool's lock. Cost: O(kParts).
#ifndef GPUPOOL_POOL_IDLE_PAGES_H_
#define GPUPOOL_POOL_IDLE_PAGES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/units.h"
#include "gpupool/options.h"

namespace gpupool::internal {

class IdlePages {
 public:
  static constexpr std::size_t kParts = 8;

  /// `fewest`: since the last call.
  void note(std::uint64_t now_ns, std::uint64_t fewest, const TrimOptions& options) noexcept {
    const std::uint64_t part_ns = std::max<std::uint64_t>(options.idle_after_ns / kParts, 1);
    if (full_parts_ == 0 && fewest_[0] == kUnknown) part_start_ns_ = now_ns;
    fewest_[0] = std::min(fewest_[0], fewest);
    if (options.idle_after_ns == 0 || now_ns - part_start_ns_ < part_ns) return;
    part_start_ns_ = now_ns;
    full_parts_ = std::min(full_parts_ + 1, kParts);
    std::copy_backward(fewest_.begin(), fewest_.end() - 1, fewest_.end());
    fewest_[0] = kUnknown;
  }
  /// At the rate that is allowed, of which no more than a second's is saved up, or one page.
  std::uint64_t due(std::uint64_t now_ns, const TrimOptions& options) noexcept {
    if (options.idle_after_ns == 0 || full_parts_ < kParts) return 0;
    const auto rate = static_cast<double>(options.idle_bytes_per_second) / kPageBytes;
    const double seconds = static_cast<double>(now_ns - rated_ns_) / 1e9;
    most_allowed_pages_ = std::max(rate, 1.0);
    allowed_pages_ = std::min(allowed_pages_ + seconds * rate, most_allowed_pages_);
    rated_ns_ = now_ns;
    return std::min(idle(), static_cast<std::uint64_t>(std::max(allowed_pages_, 0.0)));
  }
  /// Whether a handle or segment of `pages` may go, which it does as a whole, beside `leaving` that
  /// do. It must be idle as a whole, too. One of more than is ever saved up goes, by itself, once
  /// that is; what was too much is made up for before the next. As of the last due().
  bool lets_go(std::uint64_t pages, std::uint64_t leaving) const noexcept {
    if (leaving + pages > idle()) return false;
    const bool is_full = leaving == 0 && allowed_pages_ >= most_allowed_pages_;
    return is_full || static_cast<double>(leaving + pages) <= allowed_pages_;
  }
  /// May be more than were due, see lets_go().
  void note_released(std::uint64_t pages) noexcept {
    allowed_pages_ -= static_cast<double>(pages);
    for (std::uint64_t& fewest : fewest_) {
      if (fewest != kUnknown) fewest -= std::min(fewest, pages);
    }
  }
  /// Another time is in force: what was seen in parts of the one before says nothing about it.
  void restart() noexcept {
    fewest_ = all_unknown();
    full_parts_ = 0;
  }

 private:
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};

  std::uint64_t idle() const noexcept { return *std::min_element(fewest_.begin(), fewest_.end()); }

  std::array<std::uint64_t, kParts + 1> fewest_ = all_unknown();  // this part first
  std::size_t full_parts_ = 0;
  std::uint64_t part_start_ns_ = 0;
  double allowed_pages_ = 0;  // below 0: more went back than was allowed
  double most_allowed_pages_ = 0;
  std::uint64_t rated_ns_ = 0;

  static constexpr std::array<std::uint64_t, kParts + 1> all_unknown() noexcept {
    std::array<std::uint64_t, kParts + 1> all{};
    for (std::uint64_t& fewest : all) fewest = kUnknown;
    return all;
  }
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_IDLE_PAGES_H_
