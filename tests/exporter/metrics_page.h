// The samples of a page in the text format or OpenMetrics.
#ifndef GPUPOOL_TESTS_EXPORTER_METRICS_PAGE_H_
#define GPUPOOL_TESTS_EXPORTER_METRICS_PAGE_H_

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <system_error>

namespace gpupool::testing_support {

/// As Prometheus reads it, whatever the locale of this process; not a number where it is none.
inline double read_sample(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = std::numeric_limits<double>::quiet_NaN();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole ? value : std::numeric_limits<double>::quiet_NaN();
}

/// "name{labels}" to value.
inline std::map<std::string, double> parse_page(const std::string& text) {
  std::map<std::string, double> samples;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const std::size_t space = line.rfind(' ');
    if (!line.starts_with('#') && space != std::string::npos) {
      samples[line.substr(0, space)] = read_sample(std::string_view(line).substr(space + 1));
    }
    begin = end + 1;
  }
  return samples;
}

/// Whether a sample may only rise.
inline bool is_cumulative(const std::string& name) {
  return name.find("_total") != std::string::npos || name.find("_count{") != std::string::npos ||
         name.find("_sum{") != std::string::npos || name.find("_bucket{") != std::string::npos;
}

/// Compares pages of one process, each with those before.
class CounterWatch {
 public:
  /// What fell, or is no number, since the pages before; empty where nothing did.
  std::string look_at(const std::map<std::string, double>& page) {
    std::string faults;
    for (const auto& [name, value] : page) {
      if (!is_cumulative(name)) continue;
      const auto [last, is_new] = last_.try_emplace(name, value);
      if (std::isnan(value) || value < last->second) faults += name + "\n";
      last->second = value;
    }
    return faults;
  }
  std::size_t size() const noexcept { return last_.size(); }

 private:
  std::map<std::string, double> last_;
};

}  // namespace gpupool::testing_support

#endif  // GPUPOOL_TESTS_EXPORTER_METRICS_PAGE_H_
