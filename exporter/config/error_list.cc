#include "exporter/config/error_list.h"

#include <algorithm>
#include <utility>

#include "exporter/base/utf8.h"

namespace gpupool::internal {
namespace {

constexpr std::size_t kMaxShown = 40;

}  // namespace

std::string printable(std::string_view text) {
  const bool is_cut = text.size() > kMaxShown;
  if (is_cut) {
    text = text.substr(0, kMaxShown);
    text = text.substr(0, valid_utf8_prefix(text));
  }
  std::string result = to_valid_utf8(text);
  for (char& c : result) {
    if ((c >= 0 && c < ' ') || c == '\x7f') c = '?';
  }
  return is_cut ? result + "..." : result;
}

std::string join_path(std::string_view parent, std::string_view key) {
  std::string result(parent);
  if (!result.empty()) result += '.';
  return result + printable(key);
}

std::string join_path(std::string_view parent, std::size_t index) {
  return std::string(parent) + "[" + std::to_string(index) + "]";
}

void ErrorList::add(int line, std::string key_path, std::string message) {
  if (errors_.size() >= kMaxListed) {
    ++unlisted_;
    return;
  }
  errors_.push_back({line, std::move(key_path), std::move(message)});
}

std::vector<ConfigError> ErrorList::take() {
  std::ranges::stable_sort(errors_, {}, &ConfigError::line);
  if (unlisted_ > 0) {
    const int last_line = errors_.back().line;
    errors_.push_back({last_line, "", std::to_string(unlisted_) + " more errors are not listed"});
  }
  return std::move(errors_);
}

}  // namespace gpupool::internal
