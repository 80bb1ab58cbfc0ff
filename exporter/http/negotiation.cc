#include "exporter/http/negotiation.h"

#include <charconv>
#include <cstddef>
#include <system_error>

#include "exporter/base/token.h"

namespace gpupool::internal {
namespace {

constexpr double kFullWeight = 1;

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// Takes what stands before the next separator that is in no quoted string.
std::string_view take(std::string_view& rest, char separator) {
  bool is_quoted = false;
  std::size_t end = 0;
  for (; end < rest.size() && (is_quoted || rest[end] != separator); ++end) {
    if (rest[end] == '"') is_quoted = !is_quoted;
    if (rest[end] == '\\' && is_quoted) ++end;
  }
  const std::string_view taken = rest.substr(0, end);
  rest.remove_prefix(end < rest.size() ? end + 1 : rest.size());
  return trimmed(taken);
}

/// What cannot be read counts as a refusal: a client that means something else sends what is valid.
double read_weight(std::string_view text) {
  double weight = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), weight, std::chars_format::fixed);
  const bool is_valid = error == std::errc() && end == text.data() + text.size() && weight >= 0 &&
                        weight <= kFullWeight;
  return is_valid ? weight : 0;
}

struct Range {
  std::string_view name;     // "text/plain", "gzip"
  std::string_view version;  // a media type's parameter of that name, without quotes
  double weight = kFullWeight;
};

Range take_range(std::string_view& rest) {
  std::string_view element = take(rest, ',');
  Range range{.name = take(element, ';')};
  while (!element.empty()) {
    const std::string_view parameter = take(element, ';');
    const std::size_t equal = parameter.find('=');
    if (equal == std::string_view::npos) continue;
    const std::string_view name = trimmed(parameter.substr(0, equal));
    std::string_view value = trimmed(parameter.substr(equal + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      value = value.substr(1, value.size() - 2);
    }
    if (equals(name, "q")) range.weight = read_weight(value);
    if (equals(name, "version")) range.version = value;
  }
  return range;
}

/// What an Accept header says of one of our formats so far.
struct Verdict {
  int precision = 0;  // 0: nothing, 1: */*, 2: type/*, 3: type/subtype, 4: with a version
  double weight = 0;

  void consider(int with_precision, double with_weight) {
    if (with_precision < precision) return;
    // Of two of the same precision the better one is meant: clients list what they can read.
    weight = with_precision > precision || with_weight > weight ? with_weight : weight;
    precision = with_precision;
  }
};

void judge(const Range& range, std::string_view type, std::string_view any_of_type,
           std::string_view version, Verdict& verdict) {
  if (equals(range.name, "*/*")) {
    verdict.consider(1, range.weight);
  } else if (equals(range.name, any_of_type)) {
    verdict.consider(2, range.weight);
  } else if (equals(range.name, type)) {
    if (range.version.empty()) verdict.consider(3, range.weight);
    if (range.version == version) verdict.consider(4, range.weight);
  }
}

constexpr int kByName = 3;

}  // namespace

MetricsFormat choose_metrics_format(std::string_view accept) {
  constexpr std::string_view kOpenMetrics = "application/openmetrics-text";
  Verdict text;
  Verdict current;
  Verdict older;
  while (!accept.empty()) {
    const Range range = take_range(accept);
    judge(range, "text/plain", "text/*", "0.0.4", text);
    judge(range, kOpenMetrics, "application/*", "1.0.0", current);
    judge(range, kOpenMetrics, "application/*", "0.0.1", older);
  }
  const bool is_current = current.weight >= older.weight;
  const Verdict& open = is_current ? current : older;
  const bool is_open = open.weight > text.weight ||
                       (open.weight == text.weight && open.weight > 0 && open.precision >= kByName);
  if (!is_open) return MetricsFormat::text;
  return is_current ? MetricsFormat::openmetrics : MetricsFormat::openmetrics_v0_0_1;
}

const char* content_type_of(MetricsFormat format) noexcept {
  switch (format) {
    case MetricsFormat::text: return "text/plain; version=0.0.4; charset=utf-8";
    case MetricsFormat::openmetrics:
      return "application/openmetrics-text; version=1.0.0; charset=utf-8";
    case MetricsFormat::openmetrics_v0_0_1:
      return "application/openmetrics-text; version=0.0.1; charset=utf-8";
  }
  return "";
}

bool is_gzip_accepted(std::string_view accept_encoding) {
  Verdict gzip;
  double plain = 0;  // where nothing is said of it, what is packed is as welcome
  while (!accept_encoding.empty()) {
    const Range range = take_range(accept_encoding);
    if (range.name == "*") gzip.consider(1, range.weight);
    if (equals(range.name, "identity")) plain = range.weight;
    if (equals(range.name, "gzip") || equals(range.name, "x-gzip")) {
      gzip.consider(kByName, range.weight);
    }
  }
  return gzip.weight > 0 && gzip.weight >= plain;
}

}  // namespace gpupool::internal
