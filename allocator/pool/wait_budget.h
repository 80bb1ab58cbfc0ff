// How much of the time requests may wait for pages to move. What is not used is saved up, so that a
// start, or a phase that asks for other sizes, may cost more for a while.
//
// Thread safety: under the pool's lock. Cost: constant. A token bucket, as networks shape traffic.
#ifndef GPUPOOL_POOL_WAIT_BUDGET_H_
#define GPUPOOL_POOL_WAIT_BUDGET_H_

#include <algorithm>
#include <cstdint>

namespace gpupool::internal {

class WaitBudget {
 public:
  /// The most that is saved up, and what there is at the start. A cold step of the six recorded
  /// jobs waits for less; a job that moves pages all the time notices no more than that.
  static constexpr double kMostNs = 500e6;

  /// Whether nothing is left. `share`: of the time; at 1 there is always some, at 0 never.
  bool is_used_up(std::uint64_t now_ns, double share) {
    save(now_ns, share);
    return share <= 0.0 || (share < 1.0 && left_ns_ < 0.0);
  }
  void use(std::uint64_t now_ns, std::uint64_t waited_ns, double share) {
    save(now_ns, share);
    left_ns_ -= static_cast<double>(waited_ns);
  }

 private:
  void save(std::uint64_t now_ns, double share) {
    if (now_ns <= since_ns_) return;
    left_ns_ = std::min(kMostNs, left_ns_ + static_cast<double>(now_ns - since_ns_) * share);
    since_ns_ = now_ns;
  }

  std::uint64_t since_ns_ = 0;
  double left_ns_ = kMostNs;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_WAIT_BUDGET_H_
