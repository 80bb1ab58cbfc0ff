#include "gpupool/size_text.h"

#include <array>
#include <charconv>
#include <limits>
#include <system_error>

namespace gpupool {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::array<Unit, 10> kSizeUnits{{{"TiB", std::uint64_t{1} << 40},
                                           {"GiB", std::uint64_t{1} << 30},
                                           {"MiB", std::uint64_t{1} << 20},
                                           {"KiB", std::uint64_t{1} << 10},
                                           {"TB", 1'000'000'000'000},
                                           {"GB", 1'000'000'000},
                                           {"MB", 1'000'000},
                                           {"KB", 1'000},
                                           {"B", 1},
                                           {"", 1}}};
constexpr std::size_t kBinaryUnits = 4;

// Quoted input is cut so that a binary file given by mistake does not fill a terminal.
constexpr std::size_t kQuotedMax = 40;

std::string refusal(std::string_view text, std::string_view reason) {
  std::string quoted;
  for (const char c : text.substr(0, kQuotedMax)) quoted += (c >= ' ' && c <= '~') ? c : '?';
  if (text.size() > kQuotedMax) quoted += "...";
  return "'" + quoted + "' is not a size: " + std::string(reason) +
         "; allowed are whole decimal numbers with B, KiB, MiB, GiB, TiB, KB, MB, GB, TB or no"
         " unit (bytes), such as 8GiB or 512MiB";
}

}  // namespace

Result<std::uint64_t, std::string> parse_size(std::string_view text) {
  if (text.empty()) return refusal(text, "it is empty");
  if (text[0] == '-') return refusal(text, "it is negative");

  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::invalid_argument) return refusal(text, "it does not begin with a digit");
  if (error != std::errc()) return refusal(text, "it does not fit in 64 bits");
  const auto digits = static_cast<std::size_t>(end - text.data());
  if (digits > 1 && text[0] == '0') return refusal(text, "it has a leading zero");

  std::string_view suffix = text.substr(digits);
  if (suffix.size() > 1 && suffix[0] == ' ') suffix.remove_prefix(1);
  for (const Unit& unit : kSizeUnits) {
    if (suffix != unit.name) continue;
    if (number > std::numeric_limits<std::uint64_t>::max() / unit.bytes) {
      return refusal(text, "it does not fit in 64 bits");
    }
    return number * unit.bytes;
  }
  return refusal(text, suffix[0] == '.' ? "it has a fraction" : "its unit is unknown");
}

std::string format_size(std::uint64_t bytes) {
  for (std::size_t i = 0; i < kBinaryUnits && bytes != 0; ++i) {
    if (bytes % kSizeUnits[i].bytes == 0) {
      return std::to_string(bytes / kSizeUnits[i].bytes) + std::string(kSizeUnits[i].name);
    }
  }
  return std::to_string(bytes);
}

}  // namespace gpupool
