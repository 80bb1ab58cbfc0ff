// The kinds of single values that a configuration has, each read strictly: decimal only, nothing
// negative, no leading zero, no exponent, no `_`. A refusal says what was found and what is
// allowed.
//
// Thread safety: plain functions. Cost: a string where refused.
#ifndef GPUPOOL_EXPORTER_CONFIG_SCALARS_H_
#define GPUPOOL_EXPORTER_CONFIG_SCALARS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "exporter/config/yaml_document.h"
#include "gpupool/options.h"
#include "gpupool/status.h"

namespace gpupool::internal {

/// Why a value was not taken: what was found, and what is allowed.
struct Refusal {
  std::string text;
};

template <class T>
using Read = Result<T, Refusal>;

/// Any single value, quoted or not.
Read<std::string> read_text(const YamlNode& node);
/// `true` or `false`, not quoted.
Read<bool> read_boolean(const YamlNode& node);
/// A whole number from `low` to `high`, not quoted.
Read<std::uint64_t> read_integer(const YamlNode& node, std::uint64_t low, std::uint64_t high);
/// A decimal number from 0 to 1, not quoted.
Read<double> read_ratio(const YamlNode& node);
/// A size (size_text.h).
Read<std::uint64_t> read_size(const YamlNode& node);
/// A size up to kMaxTrimBytes.
Read<std::uint64_t> read_trim_size(const YamlNode& node);
/// A time (duration_text.h), in nanoseconds.
Read<std::uint64_t> read_duration(const YamlNode& node);
/// A percentage such as `0.5%`, as a fraction.
Read<double> read_percentage(const YamlNode& node);
/// A size, a percentage above 0%, or a decimal fraction above 0 and up to 1.0.
Read<CapacityLimit> read_capacity(const YamlNode& node);
/// [A-Za-z0-9_.-]{1,64}
Read<std::string> read_name(const YamlNode& node);
/// An IPv4 or IPv6 address.
Read<std::string> read_address(const YamlNode& node);

/// "'text' is no <what>; allowed is <allowed>"
Refusal refusal(std::string_view text, std::string_view what, std::string_view allowed);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_CONFIG_SCALARS_H_
