// A buffer of a process that is made of blocks: grows and shrinks to a size.
#ifndef GPUPOOL_TESTS_SCENARIOS_BUFFER_H_
#define GPUPOOL_TESTS_SCENARIOS_BUFFER_H_

#include <cstdint>
#include <vector>

#include "tests/scenarios/run.h"

namespace gpupool::test {

class Buffer {
 public:
  explicit Buffer(Process& process, std::uint64_t block_bytes = mib(64))
      : process_(process), block_bytes_(block_bytes) {}

  void grow_to(std::uint64_t bytes) {
    while (this->bytes() + block_bytes_ <= bytes) blocks_.push_back(process_.take(block_bytes_));
  }
  void shrink_to(std::uint64_t bytes) {
    for (; this->bytes() > bytes; blocks_.pop_back()) process_.give(blocks_.back());
  }
  void resize(std::uint64_t bytes) {
    shrink_to(bytes);
    grow_to(bytes);
  }
  std::uint64_t bytes() const { return blocks_.size() * block_bytes_; }

 private:
  Process& process_;
  std::uint64_t block_bytes_;
  std::vector<void*> blocks_;
};

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SCENARIOS_BUFFER_H_
