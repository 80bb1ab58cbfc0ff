#include "exporter/http/query.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <system_error>

#include "exporter/base/utf8.h"

namespace gpupool::internal {
namespace {

constexpr std::size_t kMaxShown = 64;

/// For an answer: printable, and no longer than a line.
std::string shown(std::string_view text) {
  std::string result = to_valid_utf8(text.substr(0, kMaxShown));
  std::ranges::replace_if(
      result, [](char c) { return c >= 0 && c < ' '; }, '?');
  return "'" + result + "'";
}

std::optional<std::string> decode(std::string_view text) {
  constexpr int kHexadecimal = 16;
  constexpr std::size_t kDigits = 2;
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      result += ' ';
    } else if (text[i] != '%') {
      result += text[i];
    } else {
      unsigned code = 0;
      const std::string_view digits = text.substr(i + 1, kDigits);
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), code, kHexadecimal);
      if (digits.size() != kDigits || error != std::errc() || end != digits.data() + kDigits) {
        return std::nullopt;
      }
      result += static_cast<char>(code);
      i += kDigits;
    }
  }
  return result;
}

std::string allowed_text(std::span<const std::string_view> known) {
  std::string text;
  for (const std::string_view name : known) text += (text.empty() ? "" : ", ") + std::string(name);
  return text.empty() ? "none is known here" : "known here: " + text;
}

}  // namespace

Result<Query, std::string> Query::parse(std::string_view text,
                                        std::span<const std::string_view> known) {
  Query query;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    if (item.empty()) continue;
    const std::size_t equal = item.find('=');
    const auto name = decode(item.substr(0, equal));
    const auto value = decode(equal == std::string_view::npos ? "" : item.substr(equal + 1));
    if (!name || !value) return "not a valid code in " + shown(item);
    if (std::ranges::find(known, *name) == known.end()) {
      return "unknown parameter " + shown(*name) + "; " + allowed_text(known);
    }
    if (query.find(*name) != nullptr) return "parameter " + shown(*name) + " is given twice";
    query.parameters_.emplace_back(*name, *value);
  }
  return query;
}

const std::string* Query::find(std::string_view name) const {
  const auto parameter =
      std::ranges::find_if(parameters_, [&](const auto& pair) { return pair.first == name; });
  return parameter == parameters_.end() ? nullptr : &parameter->second;
}

Result<std::uint64_t, std::string> Query::number(std::string_view name,
                                                 std::uint64_t otherwise) const {
  const std::string* const text = find(name);
  if (text == nullptr) return otherwise;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) {
    return "parameter " + shown(name) + " is " + shown(*text) + "; allowed is a whole number";
  }
  return value;
}

}  // namespace gpupool::internal
