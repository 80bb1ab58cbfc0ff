#include "exporter/metrics/openmetrics.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>

namespace gpupool::internal {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::string_view kTotal = "_total";
constexpr std::string_view kInfo = "_info";
constexpr std::string_view kUnits[] = {"bytes", "seconds", "ratio"};
constexpr double kExactIntegers = 9007199254740992;  // 2^53

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
}

void append_integer(std::string& out, std::uint64_t value) {
  std::array<char, 24> buffer;
  out.append(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
}

void append_number(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "+Inf" : "-Inf";
  } else if (value >= 0 && value < kExactIntegers && value == std::floor(value)) {
    append_integer(out, static_cast<std::uint64_t>(value));
  } else {
    std::array<char, 32> buffer;
    const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    out.append(buffer.data(), result.ptr);
  }
}

/// Names and values in braces; `bound` is that of a bucket, empty for everything else.
void append_labels(std::string& out, const ClientMetric& metric, std::string_view bound = {}) {
  if (metric.label.empty() && bound.empty()) return;
  char before = '{';
  for (const ClientMetric::Label& label : metric.label) {
    out += before;
    out += label.name;
    out += "=\"";
    append_escaped(out, label.value);
    out += '"';
    before = ',';
  }
  if (!bound.empty()) {
    out += before;
    out += "le=\"";
    out += bound;
    out += '"';
  }
  out += '}';
}

void append_sample(std::string& out, std::string_view name, std::string_view suffix,
                   const ClientMetric& metric, double value) {
  out += name;
  out += suffix;
  append_labels(out, metric);
  out += ' ';
  append_number(out, value);
  out += '\n';
}

void append_bucket(std::string& out, std::string_view name, const ClientMetric& metric,
                   std::string_view bound, std::uint64_t count) {
  out += name;
  out += "_bucket";
  append_labels(out, metric, bound);
  out += ' ';
  append_integer(out, count);
  out += '\n';
}

void append_histogram(std::string& out, std::string_view name, const ClientMetric& metric) {
  const ClientMetric::Histogram& histogram = metric.histogram;
  for (const ClientMetric::Bucket& bucket : histogram.bucket) {
    if (std::isinf(bucket.upper_bound)) continue;  // the last one is written below in any case
    append_bucket(out, name, metric, canonical_number(bucket.upper_bound), bucket.cumulative_count);
  }
  append_bucket(out, name, metric, "+Inf", histogram.sample_count);
  append_sample(out, name, "_count", metric, static_cast<double>(histogram.sample_count));
  append_sample(out, name, "_sum", metric, histogram.sample_sum);
}

std::string_view unit_of(std::string_view name) {
  for (const std::string_view unit : kUnits) {
    if (name.size() > unit.size() && name.ends_with(unit) &&
        name[name.size() - unit.size() - 1] == '_') {
      return unit;
    }
  }
  return {};
}

/// A family as OpenMetrics names it: its samples have `suffix` behind that.
struct Naming {
  std::string_view name;
  std::string_view type;
  std::string_view suffix;
};

Naming naming_of(const MetricFamily& family) {
  const std::string_view name = family.name;
  const auto without = [&](std::string_view end) {
    return name.substr(0, name.size() - end.size());
  };
  switch (family.type) {
    case MetricType::Counter:
      if (name.ends_with(kTotal)) return {without(kTotal), "counter", kTotal};
      return {name, "unknown", ""};  // no counter by OpenMetrics' rules
    case MetricType::Histogram: return {name, "histogram", ""};
    case MetricType::Gauge:
      if (name.ends_with(kInfo)) return {without(kInfo), "info", kInfo};
      return {name, "gauge", ""};
    default: return {name, "unknown", ""};
  }
}

void append_metadata(std::string& out, const Naming& naming, std::string_view help) {
  const auto line = [&](std::string_view keyword) {
    out += "# ";
    out += keyword;
    out += ' ';
    out += naming.name;
    out += ' ';
  };
  line("TYPE");
  out += naming.type;
  out += '\n';
  if (const std::string_view unit = unit_of(naming.name); !unit.empty()) {
    line("UNIT");
    out += unit;
    out += '\n';
  }
  line("HELP");
  append_escaped(out, help);
  out += '\n';
}

double value_of(const MetricFamily& family, const ClientMetric& metric) {
  switch (family.type) {
    case MetricType::Counter: return metric.counter.value;
    case MetricType::Gauge: return metric.gauge.value;
    default: return metric.untyped.value;
  }
}

}  // namespace

std::string canonical_number(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "NaN" : (value > 0 ? "+Inf" : "-Inf");
  // Exponents from -4 to 5 are written out, whole numbers with ".0"; the others with an exponent.
  constexpr int kLowest = -4;
  constexpr int kHighest = 5;
  std::array<char, 64> buffer;
  char* const begin = buffer.data();
  char* const limit = begin + buffer.size();
  const auto scientific = std::to_chars(begin, limit, value, std::chars_format::scientific);
  const std::string_view text(begin, static_cast<std::size_t>(scientific.ptr - begin));
  const std::size_t at = text.find('e');
  int exponent = 0;
  const char* digits = begin + at + 1;
  if (*digits == '+') ++digits;
  std::from_chars(digits, scientific.ptr, exponent);
  if (exponent < kLowest || exponent > kHighest) return std::string(text);
  const auto fixed = std::to_chars(begin, limit, value, std::chars_format::fixed);
  std::string result(begin, fixed.ptr);
  if (result.find('.') == std::string::npos) result += ".0";
  return result;
}

std::string openmetrics_text(const std::vector<MetricFamily>& families) {
  constexpr std::size_t kBytesAFamily = 512;
  std::string out;
  out.reserve(families.size() * kBytesAFamily);
  for (const MetricFamily& family : families) {
    const Naming naming = naming_of(family);
    append_metadata(out, naming, family.help);
    for (const ClientMetric& metric : family.metric) {
      if (family.type == MetricType::Histogram) {
        append_histogram(out, naming.name, metric);
      } else {
        append_sample(out, naming.name, naming.suffix, metric, value_of(family, metric));
      }
    }
  }
  out += "# EOF\n";
  return out;
}

}  // namespace gpupool::internal
