// What the simulated device refused: a count, the last text, and the text that the device's
// violation handler has still to be told of.
//
// Thread safety: none, the owner locks. Cost: a string per violation.
#ifndef GPUPOOL_BACKEND_SIMULATED_VIOLATIONS_H_
#define GPUPOOL_BACKEND_SIMULATED_VIOLATIONS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpupool/status.h"

namespace gpupool::internal {

class SimulatedViolations {
 public:
  /// Counts a violation; gives the error that the refused call returns.
  Error refuse(std::string text) {
    ++count_;
    last_ = std::move(text);
    untold_.push_back(last_);
    return Error::backend_failure;
  }
  std::uint64_t count() const { return count_; }
  const std::string& last() const { return last_; }
  bool has_untold() const { return !untold_.empty(); }
  /// Takes the texts that nobody was told yet, so that they can be told without the lock.
  std::vector<std::string> take_untold() { return std::exchange(untold_, {}); }

 private:
  std::uint64_t count_ = 0;
  std::string last_;
  std::vector<std::string> untold_;
};

/// `value` as logs show addresses: "0x7f00".
inline std::string as_hex(std::uint64_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), kDigits[value & 15]);
    value >>= 4;
  } while (value != 0);
  return "0x" + text;
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_BACKEND_SIMULATED_VIOLATIONS_H_
