// OpenMetrics 1.0 from prometheus-cpp's families, which has no serializer for it.
//
// Beside the text format: a counter's family is named without _total, `# UNIT` says the unit that
// ends the name, families that end in _info are of the type info, bounds of buckets have the one
// form that the specification calls canonical, `# EOF` ends the page. No _created samples: they
// are optional, and double the series.
// Thread safety: plain functions; locale plays no part. Cost: about 50 us for 230 series,
// collecting them included.
#ifndef GPUPOOL_EXPORTER_METRICS_OPENMETRICS_H_
#define GPUPOOL_EXPORTER_METRICS_OPENMETRICS_H_

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

namespace gpupool::internal {

/// Requires: names of families are valid and stand once, label values are UTF-8.
std::string openmetrics_text(const std::vector<prometheus::MetricFamily>& families);

/// 1 -> "1.0", 2097152 -> "2.097152e+06", as the specification wants bounds of buckets.
std::string canonical_number(double value);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_METRICS_OPENMETRICS_H_
