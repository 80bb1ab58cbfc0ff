// Where two threads meet before each round, without the system's help, so that they go on at the
// same moment.
//
// Thread safety: meet() by two threads in turn.
#ifndef GPUPOOL_TESTS_SUPPORT_RENDEZVOUS_H_
#define GPUPOOL_TESTS_SUPPORT_RENDEZVOUS_H_

#include <atomic>
#include <cstdint>
#include <thread>

namespace gpupool {

class Rendezvous {
 public:
  void meet() {
    const std::uint64_t round = arrived_.fetch_add(1) / 2;
    for (unsigned looks = 1; arrived_.load() < 2 * (round + 1); ++looks) {
      if (looks % 64 == 0) std::this_thread::yield();
    }
  }

 private:
  std::atomic<std::uint64_t> arrived_{0};
};

}  // namespace gpupool

#endif  // GPUPOOL_TESTS_SUPPORT_RENDEZVOUS_H_
