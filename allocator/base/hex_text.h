// Numbers that are addresses or handles, as a debugger shows them: "0x7f12a0".
//
// Thread safety: a function of its argument.
#ifndef GPUPOOL_BASE_HEX_TEXT_H_
#define GPUPOOL_BASE_HEX_TEXT_H_

#include <array>
#include <charconv>
#include <cstdint>
#include <string>

namespace gpupool::internal {

inline std::string hex(std::uint64_t number) {
  std::array<char, 16> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return "0x" + std::string(digits.data(), end.ptr);
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_BASE_HEX_TEXT_H_
