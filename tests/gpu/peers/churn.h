// Threads that allocate, use and free blocks of random sizes on every device, none of which is
// current in the thread that does it: what others do while blocks are passed between devices.
//
// What is written into a block is looked for before it is freed (counter 1 of the card's kernels).
// Thread safety: made and ended by one thread.
#ifndef GPUPOOL_TESTS_GPU_PEERS_CHURN_H_
#define GPUPOOL_TESTS_GPU_PEERS_CHURN_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "tests/gpu/peers/fleet.h"

namespace gpupool::gpu_tests {

class Churn {
 public:
  static constexpr std::size_t kThreadsPerCard = 2;

  explicit Churn(Fleet& fleet);
  ~Churn();  // ends the threads, which give back what they hold
  Churn(const Churn&) = delete;
  Churn& operator=(const Churn&) = delete;

  std::uint64_t allocations() const { return allocations_.load(); }

 private:
  void run(std::size_t card, std::size_t number);
  void hold(PoolStream& stream, std::vector<Pattern>& live, std::mt19937_64& random);
  void release(PoolStream& stream, std::vector<Pattern>& live, std::size_t index);

  Fleet& fleet_;
  std::atomic<bool> is_ending_{false};
  std::atomic<std::uint64_t> allocations_{0};
  std::vector<std::thread> threads_;
};

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_PEERS_CHURN_H_
