#include "exporter/config/scalars.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include "exporter/config/duration_text.h"
#include "exporter/config/error_list.h"

namespace gpupool::internal {
namespace {

constexpr std::size_t kMaxNameLength = 64;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Digits, or digits '.' digits, without a leading zero; nothing else that a C library would take.
std::optional<double> parse_decimal(std::string_view text) {
  const std::size_t point = std::min(text.find('.'), text.size());
  const std::string_view whole = text.substr(0, point);
  if (whole.empty() || !std::ranges::all_of(whole, is_digit)) return std::nullopt;
  if (whole.size() > 1 && whole[0] == '0') return std::nullopt;
  if (point < text.size()) {
    const std::string_view fraction = text.substr(point + 1);
    if (fraction.empty() || !std::ranges::all_of(fraction, is_digit)) return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

constexpr double kPercent = 100;

/// The number before `%`, one space allowed.
std::optional<double> parse_percentage(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  text.remove_suffix(1);
  if (text.ends_with(' ')) text.remove_suffix(1);
  return parse_decimal(text);
}

/// Why `text` is not taken as a percentage: "-1%" is a percentage, only none that there can be.
std::string_view percentage_flaw(std::string_view text) {
  const bool is_negative = text.starts_with('-') && parse_percentage(text.substr(1));
  return is_negative ? "out of range" : "no percentage";
}

Refusal wrong_kind(const YamlNode& node, std::string_view allowed) {
  const bool is_empty = node.kind == YamlNode::Kind::null;
  return {(is_empty ? std::string("has no value") : std::string("is ") + kind_text(node.kind)) +
          "; allowed is " + std::string(allowed)};
}

/// The text of an unquoted single value.
Read<std::string> read_plain(const YamlNode& node, std::string_view allowed) {
  if (node.kind != YamlNode::Kind::scalar) return wrong_kind(node, allowed);
  if (node.is_quoted) {
    return Refusal{"is text in quotes; allowed is " + std::string(allowed) + ", without quotes"};
  }
  return node.text;
}

std::string number_flaw(std::string_view text) {
  if (text.starts_with('-')) return "a negative number";
  const auto is_number_like = [](char c) {
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') ||
           c == 'o' || c == 'x' || c == 'X';
  };
  const bool is_other_base =
      text.size() > 1 && text[0] == '0' && std::ranges::all_of(text, is_number_like);
  return is_other_base ? "octal, hexadecimal or has a leading zero" : "no such number";
}

}  // namespace

Refusal refusal(std::string_view text, std::string_view what, std::string_view allowed) {
  return {"'" + printable(text) + "' is " + std::string(what) + "; allowed is " +
          std::string(allowed)};
}

Read<std::string> read_text(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar) return wrong_kind(node, "a single value");
  return node.text;
}

Read<bool> read_boolean(const YamlNode& node) {
  const auto text = read_plain(node, "true or false");
  if (!text.ok()) return text.error();
  if (text.value() == "true") return true;
  if (text.value() == "false") return false;
  return refusal(text.value(), "neither", "true or false");
}

Read<std::uint64_t> read_integer(const YamlNode& node, std::uint64_t low, std::uint64_t high) {
  const std::string allowed =
      "a whole decimal number from " + std::to_string(low) + " to " + std::to_string(high);
  const auto plain = read_plain(node, allowed);
  if (!plain.ok()) return plain.error();
  const std::string& text = plain.value();
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool has_leading_zero = text.size() > 1 && text[0] == '0';
  if (error == std::errc::invalid_argument || end != text.data() + text.size() ||
      has_leading_zero) {
    return refusal(text, number_flaw(text), allowed);
  }
  if (error != std::errc() || value < low || value > high) {
    return refusal(text, "out of range", allowed);
  }
  return value;
}

Read<double> read_ratio(const YamlNode& node) {
  constexpr std::string_view kAllowed = "a decimal number from 0 to 1, such as 0.5";
  const auto plain = read_plain(node, kAllowed);
  if (!plain.ok()) return plain.error();
  const auto value = parse_decimal(plain.value());
  if (!value) return refusal(plain.value(), number_flaw(plain.value()), kAllowed);
  if (*value > 1) return refusal(plain.value(), "out of range", kAllowed);
  return *value;
}

Read<std::uint64_t> read_size(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar) return wrong_kind(node, "a size such as 8GiB");
  auto size = parse_size(node.text);
  if (!size.ok()) return Refusal{size.error()};
  return size.value();
}

Read<std::uint64_t> read_trim_size(const YamlNode& node) {
  auto size = read_size(node);
  if (size.ok() && size.value() > kMaxTrimBytes) {
    return refusal(node.text, "out of range", "a size up to " + format_size(kMaxTrimBytes));
  }
  return size;
}

Read<std::uint64_t> read_duration(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar) return wrong_kind(node, "a time such as 60s, or 0");
  return parse_duration(node.text);
}

Read<double> read_percentage(const YamlNode& node) {
  constexpr std::string_view kAllowed = "a percentage from 0% to 100%, such as 0.5%";
  if (node.kind != YamlNode::Kind::scalar) return wrong_kind(node, kAllowed);
  const auto value = parse_percentage(node.text);
  if (!value) return refusal(node.text, percentage_flaw(node.text), kAllowed);
  if (*value > kPercent) return refusal(node.text, "out of range", kAllowed);
  return *value / kPercent;
}

Read<CapacityLimit> read_capacity(const YamlNode& node) {
  constexpr std::string_view kAllowed =
      "a size such as 8GiB, a percentage such as 90%, or a fraction such as 0.9, above 0 and up to"
      " 1.0";
  if (node.kind != YamlNode::Kind::scalar) return wrong_kind(node, kAllowed);
  const std::string& text = node.text;
  if (text.ends_with('%')) {
    const auto value = parse_percentage(text);
    if (!value) return refusal(text, percentage_flaw(text), kAllowed);
    if (*value <= 0 || *value > kPercent) return refusal(text, "out of range", kAllowed);
    return CapacityLimit(*value / kPercent);
  }
  if (text.find('.') != std::string::npos) {
    const auto value = parse_decimal(text);
    if (!value) return refusal(text, "neither a fraction nor a whole size", kAllowed);
    if (*value <= 0 || *value > 1) return refusal(text, "out of range", kAllowed);
    return CapacityLimit(*value);
  }
  // A bare 1 may be meant as all of the device, and would be one byte.
  if (text == "1") {
    return Refusal{"'1' can be read as one byte or as all of the device; allowed is " +
                   std::string(kAllowed)};
  }
  const auto size = parse_size(text);
  if (!size.ok()) {
    return Refusal{size.error() + ", or a percentage such as 90%, or a fraction such as 0.9"};
  }
  if (size.value() < kMinCapacityBytes) {
    return refusal(text, "less than one page, " + format_size(kMinCapacityBytes), kAllowed);
  }
  return CapacityLimit(size.value());
}

Read<std::string> read_name(const YamlNode& node) {
  constexpr std::string_view kAllowed = "1 to 64 of the characters A-Z a-z 0-9 _ . -";
  if (node.kind != YamlNode::Kind::scalar) return wrong_kind(node, kAllowed);
  const auto is_allowed = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.' || c == '-';
  };
  const std::string& text = node.text;
  if (text.empty() || text.size() > kMaxNameLength || !std::ranges::all_of(text, is_allowed)) {
    return refusal(text, "no valid name", kAllowed);
  }
  return text;
}

Read<std::string> read_address(const YamlNode& node) {
  constexpr std::string_view kAllowed = "an IPv4 or IPv6 address such as 127.0.0.1 or ::1";
  if (node.kind != YamlNode::Kind::scalar) return wrong_kind(node, kAllowed);
  in6_addr address{};
  if (node.text.find('\0') != std::string::npos ||
      (inet_pton(AF_INET, node.text.c_str(), &address) != 1 &&
       inet_pton(AF_INET6, node.text.c_str(), &address) != 1)) {
    return refusal(node.text, "no address", kAllowed);
  }
  return node.text;
}

}  // namespace gpupool::internal
