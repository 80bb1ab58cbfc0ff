#include "tools/trace/line_reader.h"

namespace gpupool::tools {
namespace {
constexpr std::size_t kQuotedMax = 40;
}  // namespace

bool LineReader::next(std::string_view& line) {
  if (rest_.empty()) return false;
  ++line_number_;
  const std::size_t end = rest_.find('\n');
  line = rest_.substr(0, end);
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return true;
}

Fields split(std::string_view line, char separator) {
  Fields fields;
  for (;;) {
    const std::size_t end = line.find(separator);
    if (fields.count < kMaxFields) fields.text[fields.count] = line.substr(0, end);
    ++fields.count;
    if (end == std::string_view::npos) return fields;
    line.remove_prefix(end + 1);
  }
}

std::string number_refusal(std::string_view text, std::string_view field) {
  const std::string where = " in field " + std::string(field);
  if (text.empty()) return "empty value" + where;
  const bool negative = text[0] == '-';
  const std::string_view digits = text.substr(negative ? 1 : 0);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return quote(text) + where + " is not a whole decimal number";
  }
  if (negative) return "negative number " + quote(text) + where;
  return "number " + quote(text) + where + " does not fit in 64 bits";
}

std::string quote(std::string_view text) {
  std::string result = "'";
  for (const char c : text.substr(0, kQuotedMax)) result += (c >= ' ' && c <= '~') ? c : '?';
  if (text.size() > kQuotedMax) result += "...";
  return result + "'";
}

}  // namespace gpupool::tools
