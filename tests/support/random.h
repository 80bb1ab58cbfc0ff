// Random numbers for lists of operations: SplitMix64 (Steele, Lea and Flood, 2014), since the
// distributions of <random> differ from one standard library to the next, and a seed must mean the
// same list everywhere.
//
// Thread safety: none.
#ifndef GPUPOOL_TESTS_SUPPORT_RANDOM_H_
#define GPUPOOL_TESTS_SUPPORT_RANDOM_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace gpupool::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + below(high - low + 1);
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class T, std::size_t N>
  T pick(const std::array<T, N>& values) {
    return values[below(N)];
  }

 private:
  std::uint64_t state_;
};

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SUPPORT_RANDOM_H_
