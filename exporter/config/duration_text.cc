#include "exporter/config/duration_text.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>

namespace gpupool::internal {
namespace {

constexpr std::string_view kAllowedTimes = "a time such as 60s, 500ms, 5min or 2h, or 0";

struct Unit {
  std::string_view name;
  std::uint64_t ns;
};

constexpr Unit kUnits[] = {{"h", 3'600'000'000'000}, {"min", 60'000'000'000}, {"s", 1'000'000'000},
                           {"ms", 1'000'000},        {"us", 1'000},           {"ns", 1}};

}  // namespace

Read<std::uint64_t> parse_duration(std::string_view text) {
  if (text == "0") return std::uint64_t{0};
  if (text.starts_with('-')) return refusal(text, "a negative time", kAllowedTimes);
  std::uint64_t count = 0;
  const char* const text_end = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), text_end, count);
  if (error == std::errc::invalid_argument) return refusal(text, "no time", kAllowedTimes);
  if (text[0] == '0' && end - text.data() > 1) {
    return refusal(text, "a time with a leading zero", kAllowedTimes);
  }
  std::string_view name(end, static_cast<std::size_t>(text_end - end));
  if (name.empty()) return refusal(text, "a time without a unit", kAllowedTimes);
  if (name.starts_with(' ')) name.remove_prefix(1);
  const Unit* const unit = std::ranges::find(kUnits, name, &Unit::name);
  if (unit == std::end(kUnits)) return refusal(text, "no time", kAllowedTimes);
  if (error != std::errc() || count > std::numeric_limits<std::uint64_t>::max() / unit->ns) {
    return refusal(text, "longer than 64 bits of nanoseconds can say", kAllowedTimes);
  }
  return count * unit->ns;
}

std::string format_duration(std::uint64_t ns) {
  if (ns == 0) return "0";
  const Unit* const unit =
      std::ranges::find_if(kUnits, [ns](const Unit& candidate) { return ns % candidate.ns == 0; });
  return std::to_string(ns / unit->ns) + std::string(unit->name);
}

}  // namespace gpupool::internal
