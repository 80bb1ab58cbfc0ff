// Asks the distribution's promtool whether Prometheus would take a page.
#ifndef GPUPOOL_TESTS_EXPORTER_PROMTOOL_H_
#define GPUPOOL_TESTS_EXPORTER_PROMTOOL_H_

#include <string>

namespace gpupool::testing_support {

/// What `promtool check metrics` says against `text`; empty where it is content.
std::string check_metrics(const std::string& text);

}  // namespace gpupool::testing_support

#endif  // GPUPOOL_TESTS_EXPORTER_PROMTOOL_H_
