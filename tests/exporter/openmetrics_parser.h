// A strict reader of OpenMetrics 1.0 text: what the specification's MUSTs forbid is a complaint
// that names the line. Written from the specification, not from our serializer.
#ifndef GPUPOOL_TESTS_EXPORTER_OPENMETRICS_PARSER_H_
#define GPUPOOL_TESTS_EXPORTER_OPENMETRICS_PARSER_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gpupool::testing_support {

struct OpenMetricsPage {
  struct Family {
    std::string type;
    std::string unit;
    std::string help;
  };
  std::map<std::string, Family> families;
  std::map<std::string, double> samples;  // "name{label="value"}", labels as they stand
  std::vector<std::string> complaints;

  /// All complaints in one text, empty for a valid page.
  std::string verdict() const;
};

OpenMetricsPage parse_openmetrics(std::string_view text);

}  // namespace gpupool::testing_support

#endif  // GPUPOOL_TESTS_EXPORTER_OPENMETRICS_PARSER_H_
