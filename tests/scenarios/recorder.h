// The series that scrapes of one run make, as promtool takes them: for each series a value, or
// none, at each scrape. A value after which there is none is followed by a mark that the series is
// gone, as Prometheus does where a scrape is lost or a target leaves.
//
// Thread safety: none. Cost: 8 bytes a sample.
#ifndef GPUPOOL_TESTS_SCENARIOS_RECORDER_H_
#define GPUPOOL_TESTS_SCENARIOS_RECORDER_H_

#include <prometheus/metric_family.h>

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace gpupool::test {

/// `name="value", ...`, the order as given.
using LabelText = std::string;

class Recorder {
 public:
  /// Only these families are kept.
  explicit Recorder(std::set<std::string> families) : families_(std::move(families)) {}

  void add(std::size_t scrape, const std::string& selector, double value);
  /// Every sample of the families kept; `changed` gives what a family's value is kept as.
  void add(std::size_t scrape, const std::vector<prometheus::MetricFamily>& families,
           const LabelText& target_labels,
           const std::function<double(const std::string&, double)>& changed);
  /// Calls `visitor` with each selector and its values in promtool's shorthand.
  void visit(const std::function<void(const std::string&, const std::string&)>& visitor) const;

 private:
  std::set<std::string> families_;
  std::map<std::string, std::vector<double>> series_;  // not a number: none
};

/// The shorthand: `_`, `stale`, `3x5` for six times 3, `3+2x5` for 3, 5, 7, 9, 11, 13.
std::string values_text(const std::vector<double>& values);

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SCENARIOS_RECORDER_H_
