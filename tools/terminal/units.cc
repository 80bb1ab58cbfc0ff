#include "tools/terminal/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace gpupool::tools {

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 999.5 would print as 1000: four digits, so it goes to the next unit a little early.
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  // 9.995 would print as 10.00, and 99.95 as 100.0.
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fixed(value, decimals) + " " + kUnits[unit];
}

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t i = text.size(); i > 3;) {
    i -= 3;
    text.insert(i, 1, ' ');
  }
  return text;
}

std::string percent_text(double percent) {
  std::array<char, 400> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), percent,
                                          std::chars_format::fixed);
  return error == std::errc() ? std::string(buffer.data(), end) + "%" : "?";
}

std::string fixed(double number, int decimals) {
  std::array<char, 400> buffer{};  // the largest double has 309 digits
  std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, number);
  return buffer.data();
}

}  // namespace gpupool::tools
